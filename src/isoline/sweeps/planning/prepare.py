"""From a sweep's name to its plan and the run that continues it. Starts nothing, and loads nothing that runs.

Apart from :mod:`isoline.sweeps.execution.start`, so that planning does not pay for what only a run needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from isoline.catalog.facts import catalog_of
from isoline.catalog.pools import Pool
from isoline.catalog.prices import load_prices, rates_on
from isoline.catalog.treecache import cached_trees
from isoline.errors import InputError
from isoline.results.bundles.records import Plan, PlanPoint
from isoline.results.decisions.documents import load_overrides
from isoline.runners.ownership.held import find_held
from isoline.settings import Settings
from isoline.sweeps.planning.assemble import assemble, check_limits
from isoline.sweeps.planning.changed import digests_at, only_launch, only_new
from isoline.sweeps.planning.due import due_points, grown_from, reuse
from isoline.sweeps.planning.estimates import Terms
from isoline.sweeps.planning.kept import kept_plans
from isoline.sweeps.planning.only import narrowed, parts_of
from isoline.sweeps.planning.plan import Sources, make_plan
from isoline.sweeps.planning.schema import Sweep, load_sweep
from isoline.sweeps.planning.sources import git_state, read_sources
from isoline.sweeps.state.control import read_controls
from isoline.sweeps.state.runs import Run, find_run, measured_elsewhere, past_durations, verdicts


@dataclass(frozen=True)
class Prepared:
    """A plan, what it was made of, and the run that continues it (None: a new one is due)."""

    sources: Sources
    plan: Plan
    run: Run | None


@dataclass(frozen=True)
class Wishes:
    """What a person asks for beside the sweep's file.

    :param pool: instead of the sweep's own: a name, or one that was declared (an endpoint).
    :param is_new: do not continue and reuse nothing.
    :param images: channel -> reference, for this run only.
    :param changed_since: a git revision: only points whose digest is not in the plan of that revision.
    :param recipe: this one instead of all that the sweep selects (:mod:`isoline.sweeps.planning.only`).
    :param attach: id of a held launch: only its points, on it as it is, as a try-out.
    """

    pool: str | Pool | None = None
    is_new: bool = False
    images: Mapping[str, str] = field(default_factory=dict)
    changed_since: str | None = None
    recipe: str | None = None
    attach: str | None = None


def prepare(settings: Settings, sweep: str, wishes: Wishes = Wishes()) -> Prepared:
    """Plan a sweep and look whether a run of it can go on (DESIGN 5.8). Changes nothing but the cache.

    Facts are those of the project's own catalog; documents that did not change are not parsed again.
    """
    cache = settings.state / "cache"
    with catalog_of(settings.project), cached_trees(cache), kept_plans(cache):
        return _prepare(settings, sweep, wishes)


def _prepare(settings: Settings, sweep: str, wishes: Wishes) -> Prepared:
    document = asked = load_sweep(settings.project, sweep)
    pool = wishes.pool
    held = None
    if wishes.attach is not None:
        held = find_held(settings.state, wishes.attach)
        pool = pool or held.pool
        document = document.model_copy(update={"publish": False})
    if wishes.recipe is not None:
        document, pool = narrowed(settings.project, document, wishes.recipe, pool)
    sources = read_sources(settings.project, document, pool=pool, images=wishes.images)
    rates = rates_on(load_prices(settings.project), datetime.now(UTC).date(), settings.price_tier)
    sources = replace(sources, past=past_durations(settings.store), rates=rates)
    plan = make_plan(sources, git_state(settings.project))
    if wishes.recipe is not None and document.publish:
        plan = plan.model_copy(update={"parts": _parts(settings, asked, wishes, plan)})
    if wishes.changed_since is not None:
        if isinstance(wishes.pool, Pool):
            raise InputError("an endpoint is measured as it is now", where="--changed-since")
        known = digests_at(settings.project, wishes.changed_since, sweep, wishes.pool)
        plan = only_new(plan, document, known, sources.terms)
    if held is not None:
        plan = only_launch(plan, document, held.launch_digest, held.launch_id, sources.terms)
    run = None if wishes.is_new else find_run(settings.store, plan, document.reuse.max_age_h)
    if run is None and held is None and not wishes.is_new and not isinstance(wishes.pool, Pool):
        plan = _without_known(settings, document, plan, sources.terms)
    check_limits(document, plan)
    return Prepared(sources, run.plan if run else plan, run)


def _parts(settings: Settings, asked: Sweep, wishes: Wishes, plan: Plan) -> list[str]:
    """The curves that a plan of one recipe has only a part of; all of them where nobody can tell."""
    try:
        whole = make_plan(read_sources(settings.project, asked, pool=wishes.pool, images=wishes.images), {})
    except InputError:
        return sorted({point.curve_key for launch in plan.launches for point in launch.points})
    return parts_of(plan, whole)


def _without_known(settings: Settings, document: Sweep, plan: Plan, terms: Terms) -> Plan:
    """The plan without what other runs have of it (DESIGN 5.8).

    Where only the sweep's own runs count, they do when the plan adds to the newest of them and changes
    nothing else; a plan that changes what was measured is a new beginning.
    """
    withdrawn = {
        (item.run_id, item.point_id) for item in load_overrides(settings.project) if item.action == "withdraw"
    }
    elsewhere = measured_elsewhere(
        settings.store,
        plan,
        document.reuse.max_age_h,
        withdrawn=withdrawn,
        own_only=not document.reuse.from_other_runs,
    )
    if not document.reuse.from_other_runs:
        planned = [point.point_id for launch in plan.launches for point in launch.points]
        elsewhere = grown_from(planned, elsewhere)
    if not elsewhere:
        return plan
    launches, reused, additions = reuse(plan.launches, elsewhere)
    return assemble(
        document,
        launches,
        reused=reused,
        excluded=plan.excluded,
        created_from=plan.created_from,
        channels=plan.channels,
        additions=additions,
        parts=plan.parts,
        terms=terms,
    )


def open_points(plan: Plan, run: Run | None) -> list[PlanPoint]:
    """The points of the plan that are due, in its order."""
    have = verdicts(run) if run else {}
    retries = read_controls(run.work).retries if run else {}
    return [point for launch in plan.launches for point in due_points(launch, have, retries)]
