"""Which points are official, and in which window a curve is shown (DESIGN 5.3, 5.4). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

ACCEPTED: frozenset[str] = frozenset({"passed", "provisional", "inconclusive"})
"""Accuracy states that do not stand in the way. ``failed`` and ``invalid`` do; ``not_run`` depends
on the other points of the topology."""

NOT_RUN = "not_run"

WORST_FIRST: tuple[str, ...] = ("failed", "invalid", "inconclusive", "provisional", "passed")
"""The states of a check, the one that decides about its point first."""


def worst_state(states: Iterable[str]) -> str:
    """The accuracy state of a point: the worst of its checks, ``not_run`` without one."""
    found = set(states)
    return next((state for state in WORST_FIRST if state in found), NOT_RUN)


@dataclass(frozen=True)
class Candidate:
    """What decides about one point.

    :param group: points whose answers come from the same configuration: recipe and topology in one
        run. A failed check at one of them says something about the others.
    :param verdict: of the counting attempt; None without one.
    :param conforming: whether it keeps to the rule set of its scenario.
    :param published: whether its sweep is meant to be shown.
    :param planned_accuracy: whether a check was planned at this point.
    :param disturbed: what else used the accelerator meanwhile, in one line; "" = nothing worth naming.
    """

    key: str
    group: str
    concurrency: int
    verdict: str | None
    accuracy_state: str
    kind: str = "measured"
    source: str = "own"
    conforming: bool = True
    withdrawn: bool = False
    published: bool = True
    twin: bool = False
    planned_accuracy: bool = False
    disturbed: str = ""
    resolved: bool = True  # whether it is known which image answered


def official(candidates: Iterable[Candidate]) -> dict[str, str]:
    """For each point of one run: "" when it is official, else why not, in one line.

    official = valid and measured and own and published and conforming and not withdrawn and accuracy
    accepted, or not run while every evaluated point of the group passed. When one fails, the
    unevaluated points up to the next evaluated concurrency that passed are withheld too, in both
    directions: below the failure nothing is known either.
    """
    groups: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[candidate.group].append(candidate)
    answer: dict[str, str] = {}
    for members in groups.values():
        good, bad = _evaluated(members)
        for member in members:
            answer[member.key] = _why_not(member, good, bad)
    return answer


def _evaluated(members: Collection[Candidate]) -> tuple[set[int], set[int]]:
    """The evaluated concurrencies at which all passed, and those at which any did not.

    A check that was planned and never came to its end did not pass: an invalid point must not make
    its neighbours official by taking the question with it.
    """
    evaluated = [member for member in members if member.accuracy_state != NOT_RUN]
    bad = {member.concurrency for member in evaluated if member.accuracy_state not in ACCEPTED}
    bad |= {
        member.concurrency
        for member in members
        if member.planned_accuracy and member.accuracy_state == NOT_RUN
    }
    good = {member.concurrency for member in evaluated} - bad
    return good, bad


def _why_not(point: Candidate, good: set[int], bad: set[int]) -> str:
    if point.verdict is None:
        return "not measured in this run"
    if point.verdict != "valid":
        return f"verdict {point.verdict}"
    if point.twin:
        return "accuracy twin: its speed is not the recipe's"
    if not point.published:
        return "a try-out: its sweep is not published"
    if point.kind != "measured":
        return f"{point.kind}, not measured"
    if point.source != "own":
        return f"from {point.source}"
    if not point.resolved:
        return "its image is known by a tag only: nobody can say what answered"
    if point.disturbed:
        return point.disturbed
    if not point.conforming:
        return "off the rule set of its scenario"
    if point.withdrawn:
        return "withdrawn"
    if point.accuracy_state in ACCEPTED:
        return ""
    if point.accuracy_state != NOT_RUN:
        return f"accuracy {point.accuracy_state}"
    return _withheld(point.concurrency, good, bad)


def _withheld(concurrency: int, good: set[int], bad: set[int]) -> str:
    """Why an unevaluated point is withheld: a failure reaches it with no passed check between."""
    for failed in sorted(bad, key=lambda c: abs(c - concurrency)):
        between = range(min(failed, concurrency), max(failed, concurrency) + 1)
        if not any(passed in between for passed in good):
            return f"accuracy not run here, and not passed at concurrency {failed}"
    return ""


def headline_window(points: Iterable[tuple[str | None, bool]]) -> Literal["steady", "full"]:
    """The window in which all points of one curve of one run are shown: never mixed in one frontier.

    :param points: (verdict, whether its steady window is usable) of every point. Only those that
        can be drawn, valid or partial, have a say.
    """
    usable = [steady for verdict, steady in points if verdict in ("valid", "partial")]
    return "steady" if usable and all(usable) else "full"
