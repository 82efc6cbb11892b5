"""What became of a run, in counts, and the exit code that says it."""

from __future__ import annotations

from dataclasses import dataclass, field

from isoline.results.judging.reasons import Verdict
from isoline.sweeps.state.runs import Run, verdicts

NEXT_AFTER = {
    "breaker": "`isoline sweep retry RUN POINT` or another image opens it",
    "window_closed": "run the same command again in the next window",
    "budget": "raise the sweep's budget",
    "cancelled_run": "`isoline sweep resume RUN`",
    "not_staged": "`isoline pool stage POOL --sweep SWEEP`, then the same command again",
    "no_node": "`isoline pool list` shows the nodes; `isoline pool release NODE` opens one",
}
"""What a person can do about points that were left out, by cause."""


@dataclass
class Outcome:
    """What became of a run: counts of verdicts of the counting attempts, and points without one.

    ``missing`` points have no attempt: ``skipped`` counts them by cause, ``lost`` of them have none
    because the machine let their launch down.
    """

    run_id: str
    verdicts: dict[str, int] = field(default_factory=dict)
    missing: int = 0
    lost: int = 0
    measured: int = 0
    interrupted: bool = False
    skipped: dict[str, int] = field(default_factory=dict)
    told: str = ""  # why it ended before everything was measured, in one line

    @property
    def exit_code(self) -> int:
        """0 all valid; 130 interrupted; 4 the machine failed; 3 anything else that is not valid."""
        if self.interrupted:
            return 130
        bad = {name: count for name, count in self.verdicts.items() if name != Verdict.VALID.value and count}
        if not bad and not self.missing:
            return 0
        return 4 if set(bad) <= {Verdict.INFRA_ERROR.value} and self.missing == self.lost else 3


def outcome_of(run: Run, measured: int = 0, interrupted: bool = False) -> Outcome:
    """Count the counting attempts of a run."""
    outcome = Outcome(run.run_id, measured=measured, interrupted=interrupted)
    for items in verdicts(run).values():
        if items:
            name = items[-1].value
            outcome.verdicts[name] = outcome.verdicts.get(name, 0) + 1
        else:
            outcome.missing += 1
    return outcome
