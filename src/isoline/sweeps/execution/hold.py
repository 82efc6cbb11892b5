"""Bring-up: start one launch of a recipe, keep it, and measure on it without a restart."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from isoline.catalog.facts import catalog_of
from isoline.catalog.pools import Pool
from isoline.errors import InfraError, InputError
from isoline.recipes.load import load_recipe
from isoline.results.bundles.records import PlanLaunch
from isoline.results.identity import new_run_id
from isoline.runners.launchers.attach import attach_launcher, held_of
from isoline.runners.launchers.interface import PhaseFailedError, Server
from isoline.runners.launchers.kinds import launcher_for
from isoline.runners.machine.hosts import Host, hosts_of
from isoline.runners.ownership import held as heldrecord
from isoline.runners.ownership import leases
from isoline.runners.ownership.held import Held, find_held
from isoline.runners.ownership.quarantine import kept_away, stamp
from isoline.settings import Settings
from isoline.sweeps.execution.context import Context, Stop
from isoline.sweeps.execution.flight import Flight, Ticket
from isoline.sweeps.execution.launch import launch_spec
from isoline.sweeps.execution.start import make_context
from isoline.sweeps.planning.only import only_pool
from isoline.sweeps.planning.plan import Sources, make_plan
from isoline.sweeps.planning.prepare import Prepared, open_points
from isoline.sweeps.planning.refuse import refuse_unfit
from isoline.sweeps.planning.schema import Selection, Sweep
from isoline.sweeps.planning.sources import read_sources
from isoline.sweeps.state.journal import JOURNAL, Journal
from isoline.sweeps.state.outcome import Outcome, outcome_of
from isoline.sweeps.state.poollock import clean_up_after_others, pool_lock
from isoline.sweeps.state.progress import Progress
from isoline.sweeps.state.runs import new_run, next_launch_number

NAME = "launch"
LOOK_S = 0.2


@dataclass(frozen=True)
class Wanted:
    """What a person asks for. None: the recipe's first scenario, its only topology."""

    recipe: str
    concurrency: int
    pool: str | None = None
    scenario: str | None = None
    topology: str | None = None


def planned(settings: Settings, wanted: Wanted) -> tuple[Sources, PlanLaunch]:
    """The one launch of a recipe at a concurrency.

    :raises InputError: when it is not one, or no pool of runners/ has the recipe's SKU.
    """
    with catalog_of(settings.project):
        recipe = load_recipe(settings.project, wanted.recipe).recipe
        scenario = wanted.scenario or next(iter(recipe.scenarios))
        listed = recipe.scenarios[scenario].all if scenario in recipe.scenarios else None
        if listed is not None and wanted.concurrency not in listed:
            raise InputError(
                f"concurrency {wanted.concurrency} is not in scenario {scenario!r} of this recipe",
                where=wanted.recipe,
                remedy=f"name one of {', '.join(map(str, listed))}, or add it to the recipe",
            )
        selection = Selection(recipes=[wanted.recipe], scenario=scenario, concurrency=[wanted.concurrency])
        sweep = Sweep(
            schema_version=1,
            name=NAME,
            pool=wanted.pool or only_pool(settings.project, recipe, wanted.recipe),
            select=[selection],
            publish=False,
        )
        sources = read_sources(settings.project, sweep, pool=wanted.pool)
        plan = make_plan(sources, {})
        refuse_unfit(settings.project, plan)
    found = [
        launch
        for launch in plan.launches
        if launch.twin_of is None and wanted.topology in (None, launch.topology)
    ]
    if len(found) != 1:
        labels = ", ".join(launch.topology for launch in plan.launches if launch.twin_of is None)
        raise InputError(
            f"{wanted.recipe} has {len(found) or 'no'} such launches at concurrency {wanted.concurrency}",
            where="--topology",
            remedy=f"name one of {labels}",
        )
    return sources, found[0]


def hold(settings: Settings, wanted: Wanted, hold_s: float, stop: Stop, say: Callable[[str], None]) -> Held:
    """Start a launch, keep it for so many seconds or until somebody asks for the end, and stop it.

    :param say: told a line for each thing that happens.
    :returns: the record of what was held.
    :raises LaunchFailedError, PhaseFailedError, StoppedError: when it does not get ready, or ends by itself.
    """
    sources, launch = planned(settings, wanted)
    pool = sources.pool
    with pool_lock(settings.state, pool.name), stop.on_signals():
        clean_up_after_others(settings.state, say, pool)
        node = _host(settings, pool)
        context = make_context(settings, dict(sources.scenarios), dict(sources.datasets), pool, stop)
        name = f"{launch.launch_digest[:10]}-h{secrets.token_hex(2)}"
        folder = heldrecord.held_folder(settings.state) / name
        folder.mkdir(parents=True)
        try:
            with leases.leased(settings.state, **_lease(pool, launch, name, folder, hold_s, node)) as lease:
                return _keep(context, launch, lease.run_id, name, folder, hold_s, node, say)
        except PhaseFailedError:
            if heldrecord.keep_failed(settings.state, name):
                say(f"its logs: isoline logs {name}")
            raise
        finally:
            heldrecord.forget(settings.state, name)


def _host(settings: Settings, pool: Pool) -> Host | None:
    """The machine to start on: the first that is not drained; None where a scheduler places launches.

    :raises InfraError: when none takes anything.
    """
    if not pool.is_placed_by_us:
        return None
    away = kept_away(settings.state, pool, datetime.now(UTC))
    hosts = hosts_of(pool)
    found = next((host for host in hosts if host.name not in away), None)
    if found is None:
        first = hosts[0].name
        raise InfraError(
            f"node {first} takes nothing: {away[first]}",
            where=f"pool {pool.name}",
            remedy=f"`isoline pool release {first}`, or another pool",
        )
    return found


def _lease(
    pool: Pool, launch: PlanLaunch, name: str, folder: Path, hold_s: float, node: Host | None
) -> dict[str, Any]:
    return {
        "pool": pool.name,
        "run_id": new_run_id(NAME),
        "launch_id": name,
        "places": ((node.name, tuple(range(launch.gpus))),) if node else (),
        "is_whole": not pool.share_node,
        "run_folder": folder,
        "ends_at": stamp(datetime.now(UTC) + timedelta(seconds=hold_s)),
    }


def _keep(
    context: Context,
    launch: PlanLaunch,
    run_id: str,
    name: str,
    folder: Path,
    hold_s: float,
    node: Host | None,
    say: Callable[[str], None],
) -> Held:
    launcher = launcher_for(context.pool.launcher, context.settings, say)
    spec = launch_spec(context, run_id, launch, name, folder, node)
    staged = launcher.stage(spec)
    for problem in launcher.preflight(spec, staged):
        raise PhaseFailedError(problem.code, problem.detail, where=f"launch {name}")
    server = launcher.start(spec, staged)
    try:
        say(f"started; waiting until it is ready (log: {server.main.log})")
        readiness = launcher.ready(server, context.stop.why)
        now = datetime.now(UTC)
        held = held_of(
            server,
            launch_digest=launch.launch_digest,
            recipe_id=launch.recipe_id,
            topology=launch.topology,
            kind=context.pool.launcher,
            since=stamp(now),
            until=stamp(now + timedelta(seconds=hold_s)),
        )
        path = heldrecord.write_held(context.settings.state, held)
        try:
            say(f"ready after {readiness.took_s:.1f} s: {held.url}")
            _wait(context, server, hold_s, held, say)
        finally:
            path.unlink(missing_ok=True)
    finally:
        launcher.stop(server)
    return held


def _wait(context: Context, server: Server, hold_s: float, held: Held, say: Callable[[str], None]) -> None:
    say(f"held as {held.launch_id} until {held.until}; Ctrl-C ends it")
    until = time.monotonic() + hold_s
    while time.monotonic() < until and not context.stop.why():
        if (ended := server.ended()) is not None:
            part, status = ended
            raise PhaseFailedError("server_died", f"{part.name} ended by {status.text()}", log=part.log)
        time.sleep(LOOK_S)


def run_attached(settings: Settings, prepared: Prepared, launch_id: str, stop: Stop | None = None) -> Outcome:
    """Measure what is due on a held launch, in turn; the server is neither started nor stopped.

    :raises InputError: when the launch is not held any more.
    """
    held = find_held(settings.state, launch_id)
    plan, sources = prepared.plan, prepared.sources
    context = make_context(
        settings, dict(sources.scenarios), dict(sources.datasets), sources.pool, stop or Stop()
    )
    run = prepared.run or new_run(settings.store, plan, {"attached_to": launch_id})
    (launch,) = plan.launches
    due = tuple(open_points(plan, prepared.run))
    estimates = {point.point_id: point.estimate_s for point in due}
    with Progress(len(due), estimates) as progress, context.stop.on_signals():
        progress.say(f"run {run.run_id}: {len(due)} point(s) to measure on {launch_id} ({held.url})")
        flight = Flight(
            context,
            attach_launcher(settings, held, progress.say),
            run,
            Ticket(launch, next_launch_number(run, launch), due, None, ()),
            Journal(run.work / JOURNAL),
            progress.line,
        )
        flight.run()  # here, not as a thread: it is the only one
    landed = flight.landed
    if landed.fatal is not None:
        raise landed.fatal
    if landed.failure is not None:
        progress.say(f"launch {flight.launch_id} failed: {landed.failure}")
    return outcome_of(run, len(landed.records), context.stop.why() is not None)
