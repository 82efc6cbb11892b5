"""Where the logs of a point or a launch are: sealed in its bundles, or still being written."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from isoline.errors import InputError
from isoline.results.bundles.bundle import attempts
from isoline.results.bundles.tombstone import tombstone_path
from isoline.runners.ownership.held import held_folder
from isoline.sweeps.state.journal import JOURNAL, read_journal
from isoline.sweeps.state.runs import Run, named_run, read_point, runs_newest_first

POLL_S = 0.25


@dataclass(frozen=True)
class Log:
    """One log. ``label`` says whose: ``server`` or ``client``, with the launch or attempt."""

    label: str
    path: Path


def launch_logs(run: Run, launch_id: str) -> list[Log]:
    """The logs of a start's programs, sealed or being written."""
    folders = [run.folder / "_launch" / launch_id, *run.work.glob(f"_launch~{launch_id}.*")]
    return [
        Log(f"{path.stem} of launch {launch_id}", path)
        for folder in folders
        for path in sorted(folder.glob("server*.log"))
    ]


def point_logs(run: Run, point_id: str) -> list[Log]:
    """The load generator's log of the attempt that runs or was the last, and its launch's logs."""
    going = sorted(run.work.glob(f"{point_id}~*"))
    sealed = attempts(run.folder, point_id)
    launch_id = ""
    if going:
        for event in reversed(read_journal(run.work / JOURNAL)):
            if event.get("point_id") == point_id and event.get("launch_id"):
                launch_id = str(event["launch_id"])
                break
        folder, number = going[-1], going[-1].name.partition("~")[2].partition(".")[0]
    elif sealed:
        folder, number = sealed[-1], sealed[-1].name
        launch_id = read_point(folder).launch_id
    else:
        return []
    found = launch_logs(run, launch_id) if launch_id else []
    client = folder / "aiperf.log"
    return [*found, Log(f"client of attempt {number}", client)] if client.exists() else found


def find_logs(store: Path, name: str, run_id: str | None = None) -> tuple[Run, list[Log]]:
    """The logs of a point or launch in one run, else in the newest run that has some.

    :raises InputError: when no run has any; says so where they were thinned.
    """
    for run in [named_run(store, run_id)] if run_id else runs_newest_first(store):
        points = {point.point_id for launch in run.plan.launches for point in launch.points}
        found = point_logs(run, name) if name in points else launch_logs(run, name)
        if found:
            return run, found
        folders = [run.folder / "_launch" / name, *attempts(run.folder, name)]
        if any(tombstone_path(folder).exists() for folder in folders):
            raise InputError(
                f"the logs of {name} are gone: they were thinned",
                where=f"run {run.run_id}",
                remedy="results/retention.yaml says how long they stay",
            )
    raise InputError(
        f"no log of point or launch {name!r}",
        where=f"run {run_id}" if run_id else str(store),
        remedy="`isoline sweep status` shows points, `isoline pool status` launches",
    )


def held_logs(state: Path, launch_id: str) -> list[Log]:
    """The logs of the programs of a launch that `isoline launch` starts or keeps; none of any other."""
    folders = [path for path in held_folder(state).glob("*") if path.is_dir() and path.name == launch_id]
    return [
        Log(f"{path.stem} of held launch {launch_id}", path)
        for folder in folders
        for path in sorted(folder.glob("server*.log"))
    ]


def is_written(run: Run | None, logs: Sequence[Log]) -> bool:
    """Whether any of the logs is still being written: in the run's work folder, or of a held launch."""
    return any((run is None or run.work in log.path.parents) and log.path.exists() for log in logs)


def tail(path: Path, lines: int) -> str:
    """The last lines of a file; "" where there is none."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 200 * lines - 4096))
        text = file.read().decode("utf-8", errors="replace")
        return "".join(text.splitlines(keepends=True)[-lines:])
    return ""


def follow_logs(
    logs: Sequence[Log], is_over: Callable[[], bool], sleep: Callable[[float], None] = time.sleep
) -> Iterator[tuple[Log, str]]:
    """What is added to the logs, as it comes. A log that is sealed meanwhile is read to its end.

    :param is_over: whether nothing more will come.
    """
    with contextlib.ExitStack() as stack:
        # Held open: sealing renames the folder, the file stays the same one.
        files = [(log, stack.enter_context(log.path.open("rb"))) for log in logs]
        for _, file in files:
            file.seek(0, 2)
        while True:
            over = is_over()
            for log, file in files:
                if data := file.read():
                    yield log, data.decode("utf-8", errors="replace")
            if over:
                return
            sleep(POLL_S)
