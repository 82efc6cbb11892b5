"""The expected points of one run with what is known of each: measured here or taken over. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isoline.results.bundles.readers import PointBundle, RunFiles
from isoline.results.bundles.records import Plan, PlanLaunch, PlanPoint
from isoline.results.decisions.documents import Override
from isoline.results.judging.official import NOT_RUN, Candidate
from isoline.results.warehouse.reused import TakenOver, concurrency_of, group_of

Withdrawals = Collection[tuple[str, str | None]]
"""(run id, point id; None for the whole run) that people have withdrawn."""


def withdrawals(overrides: Sequence[Override]) -> Withdrawals:
    """What the decisions withdraw."""
    return {(item.run_id, item.point_id) for item in overrides if item.action == "withdraw"}


def is_withdrawn(withdrawn: Withdrawals, run_id: str, point_id: str) -> bool:
    """Whether a point of a run is withdrawn, alone or with its run."""
    return (run_id, None) in withdrawn or (run_id, point_id) in withdrawn


def scenario_of(point: PlanPoint) -> Mapping[str, Any]:
    """The scenario that a point's digest covers."""
    scenario = point.identity.get("scenario")
    return scenario if isinstance(scenario, dict) else {}


@dataclass(frozen=True)
class Expected:
    """One expected point and its counting attempt, measured here or taken over."""

    launch: PlanLaunch
    point: PlanPoint
    run_id: str  # of the run that measured it
    bundle: PointBundle | None
    attempts: int
    is_added: bool
    missing_cause: str


def expected_points(files: RunFiles, plan: Plan, cause_of: Callable[[str, str], str]) -> list[Expected]:
    """The points of the plan, and those that it took over on curves that it adds to.

    :param cause_of: point id and launch digest -> why there is no attempt.
    """
    attempts: dict[str, list[PointBundle]] = defaultdict(list)
    for each in files.points:
        attempts[each.record.point_id].append(each)
    added = {name for item in plan.additions for name in item.point_ids}
    found = [
        Expected(
            launch,
            point,
            files.run_id,
            max(attempts[point.point_id], key=lambda item: item.record.attempt, default=None),
            len(attempts[point.point_id]),
            point.point_id in added,
            cause_of(point.point_id, launch.launch_digest),
        )
        for launch in plan.launches
        for point in launch.points
    ]
    return found + [
        Expected(
            *taken.planned,
            taken.item.run_id,
            taken.attempt,
            taken.item.attempt if taken.attempt else 0,
            taken.is_added,
            "missing",  # its own run tells why
        )
        for taken in files.taken
        if taken.planned is not None
    ]


def candidate_of(each: Expected, run_id: str, plan: Plan, withdrawn: Withdrawals) -> Candidate:
    """What decides whether the point is official.

    :param run_id: of the run whose plan it is; a withdrawal there or where it was measured counts.
    """
    point, record = each.point, each.bundle.record if each.bundle else None
    return Candidate(
        key=point.point_id,
        group=group_of(point.point_id),
        concurrency=point.concurrency,
        verdict=record.verdict.value if record else None,
        accuracy_state=record.accuracy_state if record else NOT_RUN,
        kind=str(point.curve["kind"]),
        source=str(point.curve["source"]),
        conforming=not scenario_of(point).get("non_conforming", False),
        withdrawn=any(is_withdrawn(withdrawn, run, point.point_id) for run in (run_id, each.run_id)),
        published=plan.publish,
        planned_accuracy=bool(point.accuracy),
        disturbed=disturbed(record.client, str(point.curve["sku"])) if record else "",
        twin=each.launch.twin_of is not None,
        resolved=is_resolved(each.launch, each.bundle),
    )


def is_resolved(launch: PlanLaunch, bundle: PointBundle | None) -> bool:
    """Whether the image is known for good: by digest in the plan, or by what the lock found on the node."""
    image = launch.identity.get("image")
    ref = image.get("ref") if isinstance(image, dict) else None
    if not isinstance(ref, str) or "@sha256:" in ref:
        return True
    return bundle is not None and bool(bundle.lock.resolved.get("image_id"))


def evidence(taken: TakenOver) -> Candidate:
    """A reused point beside the curves of this run: only what its check said counts (a twin's, for one)."""
    return Candidate(
        key=taken.item.point_id,
        group=group_of(taken.item.point_id),
        concurrency=concurrency_of(taken.item.point_id),
        verdict=None,
        accuracy_state=taken.state or NOT_RUN,
        planned_accuracy=bool(taken.item.accuracy),
    )


MAX_FOREIGN_CPU_SHARE = 0.25
"""Of all cores, by programs that are not ours: above it a number of SKU ``cpu`` is nobody's number."""


def disturbed(client: Mapping[str, Any], sku: str) -> str:
    """What disturbed a measurement, in one line, or "". The CPU is the accelerator of SKU ``cpu`` only."""
    share = client.get("foreign_cpu_share")
    if sku != "cpu" or not isinstance(share, (int, float)) or share <= MAX_FOREIGN_CPU_SHARE:
        return ""
    return f"other programs used {share:.0%} of the CPU"


def marks_of(each: Expected, candidate: Candidate) -> list[str]:
    """The marks of a point (DESIGN 2)."""
    marks = {
        "added": each.is_added,
        "unverified": each.launch.recipe.get("status") == "unverified",
        "non_conforming": not candidate.conforming or bool(candidate.disturbed),
        "provisional": candidate.accuracy_state == "provisional",
        "withdrawn": candidate.withdrawn,
        "unofficial": not candidate.published,
    }
    return [name for name, holds in marks.items() if holds]
