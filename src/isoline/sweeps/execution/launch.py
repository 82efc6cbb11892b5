"""One start of a server in a run: stage to ready, the points on it, stop, and its own bundle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from isoline.catalog.facts import WeightFile, load_catalog
from isoline.errors import InfraError
from isoline.recipes.deployment import deployment_of
from isoline.recipes.schema import Recipe
from isoline.results.bundles.bundle import BundleWriter, file_sha256, utc_now, write_record
from isoline.results.bundles.records import LaunchRecord, PlanLaunch, ReasonNote
from isoline.results.identity import launch_id
from isoline.results.judging.reasons import REASONS, Verdict, worst
from isoline.runners.causes import Cause, explain, explain_logs, server_logs
from isoline.runners.engines import engine_adapter
from isoline.runners.launchers.compile_cache import CompileCache
from isoline.runners.launchers.deadlines import ready_budget, weights_bytes
from isoline.runners.launchers.interface import (
    Deadlines,
    Launcher,
    LaunchSpec,
    PhaseFailedError,
    Server,
    StoppedError,
)
from isoline.runners.launchers.watch import Watch
from isoline.runners.machine.hosts import Host, ToolUnavailableError, this_host
from isoline.runners.staging.place import missing_inputs
from isoline.runners.staging.pool import inputs_in_use
from isoline.runners.staging.tokenizer import ensure_tokenizer
from isoline.sweeps.execution.context import Context
from isoline.sweeps.execution.phases import Phases
from isoline.sweeps.execution.record import Live
from isoline.sweeps.execution.surroundings import Surroundings


class LaunchFailedError(Exception):
    """A start did not come to a ready server; its bundle is sealed and holds the reasons."""

    def __init__(self, reasons: list[ReasonNote], log_tail: str = "", cause: Cause | None = None) -> None:
        self.reasons = reasons
        self.log_tail = log_tail
        self.cause = cause
        self.verdict = worst([note.code for note in reasons])
        super().__init__("; ".join(f"{note.code}: {note.detail}" for note in reasons))


def planned_weights(launch: PlanLaunch) -> tuple[WeightFile, ...]:
    """The weight files of a launch, by the digests that are part of its identity.

    :raises LaunchFailedError: when the catalog has another file under that name now.
    """
    model = load_catalog().models.get(str(launch.identity["model"]))
    known = {item.sha256: item for item in model.weights} if model else {}
    found = []
    for item in launch.identity["weights"]:
        if "sha256" not in item:
            continue  # from a hub: :func:`planned_hub`
        if item["sha256"] not in known:
            raise LaunchFailedError(
                [
                    ReasonNote(
                        code="weights_digest_mismatch",
                        detail=f"{item['file']}: the plan says {item['sha256']}, the catalog has another",
                    )
                ]
            )
        found.append(known[item["sha256"]])
    return tuple(found)


def planned_hub(launch: PlanLaunch) -> tuple[str, str | None] | None:
    """(hub id, revision) of a launch's weights; None where they are files of the catalog."""
    for item in launch.identity["weights"]:
        if item.get("hub_id"):
            return str(item["hub_id"]), item.get("revision")
    return None


def check_script(launch: PlanLaunch) -> None:
    """Refuse a launch whose start script is not the one that its identity was made with.

    :raises LaunchFailedError: ``image_digest_drift``.
    """
    wanted = launch.identity["image"].get("script_sha256")
    if wanted is None:
        return  # an image holds its own
    found = file_sha256(engine_adapter(str(launch.identity["engine"])).script())
    if found != wanted:
        raise LaunchFailedError(
            [
                ReasonNote(
                    code="image_digest_drift",
                    detail=f"the engine's start script has sha256 {found[:12]}, the plan says {wanted[:12]}",
                )
            ]
        )


def launch_spec(
    context: Context,
    run_id: str,
    launch: PlanLaunch,
    name: str,
    folder: Path,
    node: Host | None = None,
    devices: tuple[int, ...] = (),
) -> LaunchSpec:
    """What the launcher gets: the plan's launch with the folders of this start.

    :param node: the machine it was given; ``devices`` the ones leased to it there.
    """
    recipe = Recipe.model_validate(launch.recipe)
    weights = planned_weights(launch)
    scenarios = [context.scenarios[point.scenario] for point in launch.points]
    return LaunchSpec(
        run_id=run_id,
        launch_id=name,
        engine=str(launch.identity["engine"]),
        alias=str(launch.identity["model"]),
        deployment=deployment_of(launch.identity),
        weights=weights,
        packages=tuple(launch.identity["image"].get("packages") or ()),
        scratch=scratch_root(context, node) / f"{run_id}-{name}",
        log=folder / "server.log",
        host=context.host,
        deadlines=Deadlines(
            ready_s=recipe.readiness.ready_s,
            reset_s=max(scenario.deadlines.reset_s for scenario in scenarios),
            stop_s=recipe.readiness.stop_s,
            ready=ready_budget(
                weights_bytes(launch.identity),
                context.pool,
                recipe.engine,
                past=context.past_loads,
                floor_s=recipe.readiness.ready_s,
            ),
        ),
        pool=context.pool,
        node=node or this_host(),
        devices=devices or tuple(range(launch.gpus)),
        files=recipe_files(context.settings.project, launch),
        hub=planned_hub(launch),
    )


def scratch_root(context: Context, node: Host | None) -> Path:
    """Where scratch folders of launches lie: below our state here, where the pool says on other machines."""
    if node is None or node.is_local or context.pool.container is None:
        return context.settings.state / "scratch"
    return context.pool.container.scratch_in(context.settings.state)


def recipe_files(project: Path, launch: PlanLaunch) -> dict[str, Path]:
    """The recipe's own files by name, each the one that the plan's identity was made with.

    :raises LaunchFailedError: ``image_digest_drift`` when one is not there or another now.
    """
    folder = project / "recipes" / Path(launch.recipe_id).parent
    found = {}
    for name, wanted in launch.identity.get("files", {}).items():
        path = folder / name
        if not path.is_file() or file_sha256(path) != wanted:
            detail = f"{name} beside the recipe is not the file that was planned"
            raise LaunchFailedError([ReasonNote(code="image_digest_drift", detail=detail)])
        found[name] = path
    return found


class LaunchRun:
    """One start. Use :meth:`running` as a context: inside, the server is ready.

    :param on_phase: called with the name of each phase.
    :param node: the machine that it was given, and ``devices`` there.
    """

    def __init__(
        self,
        context: Context,
        launcher: Launcher,
        run_id: str,
        run: Path,
        launch: PlanLaunch,
        number: int,
        on_phase: Callable[[str], None],
        *,
        node: Host | None = None,
        devices: tuple[int, ...] = (),
    ) -> None:
        self.context = context
        self.node = node
        self.devices = devices
        self.launcher = launcher
        self.run_id = run_id
        self.launch = launch
        self.name = launch_id(launch.launch_digest, number)
        self.phases = Phases(on_phase)
        self.reasons: list[ReasonNote] = []
        self.served: list[str] = []
        self.started_at = utc_now()
        self.writer = BundleWriter(run, "launch", f"_launch/{self.name}", self.name)
        self.around = Surroundings(
            context.pool,
            node or Host("local"),
            devices or tuple(range(launch.gpus)),
            context.settings.state,
            launcher.starts_servers,
        )
        self.compiled: CompileCache | None = None
        self._resources = contextlib.ExitStack()
        self._server: Server | None = None
        self._watch: Watch | None = None
        self.cause: Cause | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that its end speaks of, where the pool's own scheduler chose them."""
        return self._server.nodes if self._server is not None else ()

    @contextmanager
    def running(self) -> Iterator[Live]:
        """Stage, start, wait for ready; on leaving stop and seal the launch bundle, whatever happened.

        :raises LaunchFailedError: when it does not get ready.
        :raises StoppedError: when the run was asked to stop meanwhile.
        """
        try:
            try:
                live = self._begin()
            except PhaseFailedError as error:
                self.reasons.append(ReasonNote(code=error.code, detail=error.detail))
                self.cause = self._explain() or explain(error.detail, self._engine)
                if self.cause is not None and self.cause.is_proof_against(error.code):
                    self.reasons.append(ReasonNote(code=self.cause.code, detail=self.cause.lines[0][1]))
                raise LaunchFailedError(self.reasons, error.log_tail, self.cause) from error
            except LaunchFailedError as error:
                self.reasons += error.reasons
                raise
            except ToolUnavailableError as error:
                # One machine that does not answer is that machine's error, not the end of the run.
                self.reasons.append(ReasonNote(code="tool_missing", detail=error.line()))
                raise LaunchFailedError(self.reasons) from error
            except StoppedError:
                self.reasons.append(ReasonNote(code="interrupted", detail="asked to stop"))
                raise
            yield live
        except BaseException:
            self._end(keep_error=True)
            raise
        self._end(keep_error=False)

    @property
    def _engine(self) -> str:
        return str(self.launch.identity["engine"])

    def _explain(self) -> Cause | None:
        """Why the server ended, by the logs of its programs."""
        return explain_logs(server_logs(self.writer.path), self._engine)

    def _begin(self) -> Live:
        launch, should_stop = self.launch, self.context.stop.why
        with self.phases.phase("stage"):
            check_script(launch)
            self._hold_inputs()
            spec = launch_spec(
                self.context, self.run_id, launch, self.name, self.writer.path, self.node, self.devices
            )
            staged = self.launcher.stage(spec)
            tokenizer = self.context.tokenizers.get(spec.alias) or ensure_tokenizer(
                self.context.settings, staged.local_model or staged.model_path, spec.alias
            )
            self.context.tokenizers[spec.alias] = tokenizer
        with self.phases.phase("preflight"):
            problems = self.around.look(self.writer.path, spec.weights)
            problems += self.launcher.preflight(spec, staged)
            if problems:
                raise LaunchFailedError([ReasonNote(code=item.code, detail=item.detail) for item in problems])
        if should_stop():
            raise StoppedError("interrupted")
        self.around.begin()
        self.compiled = self.around.compile_cache(spec.deployment.used_image)
        if self.compiled is not None:
            spec = replace(spec, compile_cache=self.compiled.path)
        with self.phases.phase("start"):
            self._server = self.launcher.start(spec, staged)
        with self.phases.phase("ready"):
            self.launcher.ready(self._server, should_stop)
        self.compiled = self.compiled or self._server.compiled
        self._watch = self.launcher.watch(self._server)
        self._watch.devices = self.around.samples
        return Live(
            launch=launch,
            launch_id=self.name,
            recipe=Recipe.model_validate(launch.recipe),
            server=self._server,
            launcher=self.launcher,
            watch=self._watch,
            tokenizer=tokenizer,
            lock=self.launcher.collect(self._server, self.writer.path),
            fingerprint=self.around.before or self.context.fingerprint,
            compiled=self.compiled,
        )

    def _hold_inputs(self) -> None:
        """See that everything is on the launch's machines, and keep it there until the launch is over.

        :raises PhaseFailedError: ``not_staged``.
        """
        pool = self.context.pool
        if pool.launcher not in ("container", "slurm"):
            return  # a process pool is this machine: what it needs is brought by its own stage
        if pool.hosts and self.node is not None:
            pool = pool.model_copy(update={"hosts": [self.node.name]})
        missing = missing_inputs(self.context.settings, pool, self.launch)
        if missing:
            raise PhaseFailedError("not_staged", "; ".join(missing), where=f"pool {pool.name}")
        self._resources.enter_context(inputs_in_use(self.context.settings, pool, self.launch, self.name))

    def _end(self, *, keep_error: bool) -> None:
        """Stop and seal. An error on the way here is not hidden by one of ours."""
        try:
            with self._resources:
                self._stop_and_seal()
        except BaseException:
            # Whatever stood in the way (a full disk, a closed terminal): no process of ours stays behind.
            self.around.close()
            if self._server is not None:
                with contextlib.suppress(InfraError):
                    self.launcher.stop(self._server)
            self.writer.discard()
            if not keep_error:
                raise

    def _stop_and_seal(self) -> None:
        status = None
        if self._watch is not None:
            for event in self._watch.events():
                self.reasons.append(ReasonNote(code=event.code, detail=event.detail))
        if self._server is not None:
            with self.phases.phase("stop"):
                status = self.launcher.stop(self._server).status
                if note := self.around.drained():
                    self.reasons.append(note)
            if self._watch is not None:
                self._watch.close()
                self._watch.write_telemetry(self.writer.path / "telemetry.parquet")
            self.launcher.collect(self._server, self.writer.path)
        self.around.end(self.writer.path, dict(self.context.fingerprint))
        codes = [note.code for note in self.reasons]
        if self.cause is None and set(codes) - {"interrupted"}:
            self.cause = self._explain()
        write_record(
            self.writer.path / "launch.json",
            LaunchRecord(
                run_id=self.run_id,
                launch_id=self.name,
                launch_digest=self.launch.launch_digest,
                recipe_id=self.launch.recipe_id,
                started_at=self.started_at,
                ended_at=utc_now(),
                verdict=worst(codes),
                reasons=self.reasons,
                phases=list(self.phases.rows),
                exit_code=status.exit_code if status else None,
                signal=status.signal if status else None,
                points=self.served,
                cause=self.cause.record() if self.cause else None,
                compile_cache=self.compiled.record() if self.compiled else None,
            ),
        )
        self.writer.seal()


def is_infra(reasons: list[ReasonNote]) -> bool:
    """Whether the worst of the reasons is the machine's fault."""
    return worst([note.code for note in reasons]) is Verdict.INFRA_ERROR


def needs_new_server(codes: list[str]) -> bool:
    """Whether an attempt's reasons say that the server cannot serve the next point."""
    gone = {
        "server_died",
        "server_killed",
        "server_restarted",
        "stalled",
        "oom",
        "reset_failed",
        "load_timeout",
    }
    return bool(gone & set(codes)) or any(REASONS[code].phase == "launch" for code in codes)
