"""A plan out of its launches: its digest, and whether it keeps the sweep's budget and window. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from isoline.errors import InputError
from isoline.results import identity
from isoline.results.bundles.checks import plan_digest
from isoline.results.bundles.records import Addition, Excluded, Plan, PlanLaunch, Reused
from isoline.sweeps.planning.estimates import Terms, budget_of
from isoline.sweeps.planning.schema import Sweep


def assemble(
    sweep: Sweep,
    launches: list[PlanLaunch],
    *,
    reused: list[Reused],
    excluded: list[Excluded],
    created_from: Mapping[str, Any],
    channels: Mapping[str, str] | None = None,
    additions: Sequence[Addition] = (),
    parts: Collection[str] = (),
    terms: Terms = Terms(),
) -> Plan:
    """A plan with its digest and its budget, which :func:`check_limits` compares with the sweep's.

    :param parts: curves of which the plan has only a part.
    :param terms: prices and lanes; they change the budget and no digest.
    """
    plan = Plan(
        plan_digest="",
        sweep=sweep.name,
        created_from=dict(created_from),
        channels=dict(channels or {}),
        launches=launches,
        reused=reused,
        excluded=excluded,
        shards=1,
        budget=budget_of(launches, terms),
        additions=list(additions),
        parts=sorted({point.curve_key for launch in launches for point in launch.points} & {*parts}),
        publish=sweep.publish,
    )
    return plan.model_copy(update={"plan_digest": plan_digest(plan)})


def check_limits(sweep: Sweep, plan: Plan) -> None:
    """Refuse a plan that takes more than the sweep allows.

    :raises InputError: when it is over the sweep's budget, or longer than its window on one pool; also
        when there is a limit in dollars and it cannot be told what the plan costs.
    """
    _check_window(sweep, plan)
    gpu_minutes, usd = plan.budget["gpu_minutes"], plan.budget["usd"]
    problem, remedy = None, "select less, or raise the budget"
    if sweep.budget.gpu_minutes is not None and gpu_minutes > sweep.budget.gpu_minutes:
        problem = (
            f"the plan takes about {gpu_minutes:g} GPU-minutes, the budget is {sweep.budget.gpu_minutes:g}"
        )
    elif sweep.budget.usd is not None and plan.launches and usd is None:
        problem = f"the budget is ${sweep.budget.usd:g}, and the cost is not known: {plan.budget['note']}"
        remedy = "limit gpu_minutes instead, or add the price to the newest of dashboard/prices"
    elif sweep.budget.usd is not None and (usd or 0) > sweep.budget.usd:
        problem = f"the plan costs about ${usd:.2f}, the budget is ${sweep.budget.usd:g}"
    if problem:
        raise InputError(problem, where=f"sweeps/{sweep.name}.yaml", remedy=remedy)


def joined(first: PlanLaunch, second: PlanLaunch) -> tuple[PlanLaunch, Excluded]:
    """One launch of two recipes that render to it, under the first one's id; and what to say of the second.

    What only the second asks for (points, repetitions, checks) is measured too: nothing that a sweep
    selects is lost because another recipe is the same. A twin stays a twin: points that are to be timed
    are never put on one.
    """
    what = f"{second.recipe_id} {second.topology}"
    if (first.twin_of is None) != (second.twin_of is None):
        whose = "the twin of " if first.twin_of else ""
        return first, Excluded(
            what=what, why=f"the same launch as {whose}{first.recipe_id}, which is planned"
        )
    points = {(point.point_digest, point.repetition): point for point in first.points}
    added = []
    for point in second.points:
        key = (point.point_digest, point.repetition)
        if (there := points.get(key)) is not None:
            tasks = sorted({*there.accuracy, *point.accuracy})
            points[key] = there.model_copy(update={"accuracy": tasks})
            continue
        name = identity.point_id(
            first.recipe_id,
            first.topology,
            point.scenario,
            point.concurrency,
            point.repetition,
            point.point_digest,
        )
        points[key] = point.model_copy(update={"point_id": name})
        added.append(point)
    seconds = round(first.estimate_s + sum(point.estimate_s for point in added), 1)
    why = f"the same launch as {first.recipe_id}, which is planned"
    if added:
        levels = ", ".join(dict.fromkeys(f"{point.scenario} c{point.concurrency}" for point in added))
        why += f"; {levels} of it is measured there"
    launch = first.model_copy(update={"points": list(points.values()), "estimate_s": seconds})
    return launch, Excluded(what=what, why=why)


def _check_window(sweep: Sweep, plan: Plan) -> None:
    if sweep.window is None:
        return
    for row in plan.budget["pools"]:
        pool, seconds = row["pool"], row["wall_minutes"] * 60
        if seconds > sweep.window.hours * 3600:
            raise InputError(
                f"the plan takes about {seconds / 3600:.1f} h on pool {pool!r}, "
                f"its window is {sweep.window.hours:g} h",
                where=f"sweeps/{sweep.name}.yaml",
                remedy="select less, or widen the window",
            )
