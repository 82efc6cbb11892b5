"""Only what changed: points whose digest is not in the plan of an earlier revision."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

from isoline.errors import InputError
from isoline.results.bundles.records import Excluded, Plan
from isoline.sweeps.planning.assemble import assemble
from isoline.sweeps.planning.due import without
from isoline.sweeps.planning.estimates import Terms
from isoline.sweeps.planning.plan import make_plan
from isoline.sweeps.planning.schema import Sweep, load_sweep
from isoline.sweeps.planning.sources import read_sources

FOLDERS = ("recipes", "sweeps", "runners", "datasets")
GIT_TIMEOUT_S = 60


def digests_at(project: Path, revision: str, sweep: str, pool: str | None) -> set[str]:
    """The point digests of a sweep's plan at a git revision; empty where the sweep was not there yet.

    Planned by today's code and catalog: what is compared is what people edited.

    :raises InputError: for an unknown revision, or files of it that cannot be planned.
    """
    if not _git(project, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"):
        raise InputError(f"no such revision: {revision!r}", where="--changed-since")
    listed = _git(project, "ls-tree", "--name-only", revision, "--", *FOLDERS)
    there = [name for name in listed.decode().split() if name in FOLDERS]
    with tempfile.TemporaryDirectory(prefix="isoline-plan-") as name:
        folder = Path(name)
        if there:
            archive = _git(project, "archive", "--format=tar", revision, "--", *there)
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(folder, filter="data")
        if not (folder / "sweeps" / f"{sweep}.yaml").is_file():
            return set()
        try:
            plan = make_plan(read_sources(folder, load_sweep(folder, sweep), pool=pool), {})
        except InputError as error:
            raise InputError(
                f"the sweep cannot be planned there: {error.line()}",
                where=f"--changed-since {revision}",
                remedy="name a revision whose files are right",
            ) from None
    return {point.point_digest for launch in plan.launches for point in launch.points}


def _git(project: Path, *args: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(project), *args], capture_output=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"git does not answer: {error}", where=str(project)) from None
    return done.stdout if done.returncode == 0 else b""


def only_new(plan: Plan, sweep: Sweep, known: set[str], terms: Terms = Terms()) -> Plan:
    """The plan without the points that are known; what is left out is said, and whose curves lack it."""
    launches, left_out, parts = [], [], set(plan.parts)
    for launch in plan.launches:
        points = [point for point in launch.points if point.point_digest not in known]
        left_out += [point.point_id for point in launch.points if point.point_digest in known]
        parts |= {point.curve_key for point in launch.points if point.point_digest in known}
        if points:
            launches.append(without(launch, points))
    excluded = [*plan.excluded, *(Excluded(what=name, why="not changed") for name in left_out)]
    return assemble(
        sweep,
        launches,
        reused=plan.reused,
        excluded=excluded,
        created_from=plan.created_from,
        channels=plan.channels,
        parts=parts,
        terms=terms,
    )


def only_launch(plan: Plan, sweep: Sweep, launch_digest: str, launch_id: str, terms: Terms = Terms()) -> Plan:
    """The plan with one launch, for a server that is held.

    :raises InputError: when the sweep has no such launch.
    """
    launches = [launch for launch in plan.launches if launch.launch_digest == launch_digest]
    if not launches:
        raise InputError(
            f"the sweep plans no launch like the held {launch_id}",
            where="--attach",
            remedy="name its recipe with --recipe; image, arguments and pool must be those of the launch",
        )
    excluded = [
        *plan.excluded,
        *(
            Excluded(what=f"{launch.recipe_id} {launch.topology}", why=f"not the held launch {launch_id}")
            for launch in plan.launches
            if launch.launch_digest != launch_digest
        ),
    ]
    return assemble(
        sweep,
        launches,
        reused=[],
        excluded=excluded,
        created_from=plan.created_from,
        channels=plan.channels,
        terms=terms,
    )
