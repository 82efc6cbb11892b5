"""What a run has come to, read from its sealed bundles; its window; what it says that it left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isoline.results.bundles.bundle import is_sealed
from isoline.results.judging.reasons import Verdict
from isoline.sweeps.execution.schedule import Skip
from isoline.sweeps.execution.schedule_breaker import image_key
from isoline.sweeps.execution.sofar import SoFar, last_skipped, seal_skipped, window_of
from isoline.sweeps.state.control import Controls
from isoline.sweeps.state.journal import JOURNAL, Journal
from isoline.sweeps.state.runs import Run, read_point


@pytest.fixture
def run(bundles: Any, tmp_path: Path) -> Run:
    """A run of three launches of one image: two failed alike at their start, one never began."""
    names = [bundles.LaunchDef(recipe_id=f"m/{n}", args=(f"-{n}",), gpus=2) for n in "abc"]
    plan = bundles.make_plan([(item, [bundles.PointDef(1)]) for item in names])
    folder = bundles.seal_plan(tmp_path / "store", plan)
    for launch in plan.launches[:2]:
        bundles.seal_launch(folder, launch, reasons=("oom",))
    return Run(folder.name, folder, plan)


def test_a_restarted_run_knows_what_the_killed_one_knew(run: Run) -> None:
    """Verdicts, the breaker with its evidence, failed launches and device time come from the bundles."""
    found = SoFar(run)
    image = image_key(run.plan.launches[0])
    hold = found.images(Controls())[image].hold
    assert hold is not None
    assert hold.signature.startswith("oom")
    assert all((run.folder / path).is_file() for path in hold.evidence)
    assert found.failed_launches == {launch.launch_digest for launch in run.plan.launches[:2]}
    assert found.spent_s == 2 * 2 * 300
    assert set(map(tuple, found.verdicts.values())) == {()}


def test_one_good_point_proves_an_image_before_its_launch_ends(run: Run, bundles: Any) -> None:
    """The launches that wait for the canary need not wait for the rest of its points."""
    found, launch = SoFar(run), run.plan.launches[2]
    image = image_key(launch)
    assert not found.images(Controls())[image].is_proven
    folder = bundles.seal_attempt(run.folder, launch, launch.points[0])
    found.note_attempt(read_point(folder))
    assert found.images(Controls())[image].is_proven
    assert found.verdicts[launch.points[0].point_id] == [Verdict.VALID]


def test_a_retry_of_any_of_its_points_opens_an_image(run: Run) -> None:
    """Asked for after the failures it opens the breaker; asked for before them it does not."""
    point = run.plan.launches[2].points[0].point_id
    image = image_key(run.plan.launches[0])
    later, earlier = "2026-12-01T09:00:00.000Z", "2026-12-01T01:00:00.000Z"
    assert SoFar(run).images(Controls(retried_at={point: later}))[image].hold is None
    assert SoFar(run).images(Controls(retried_at={point: earlier}))[image].hold is not None


def test_a_killed_run_keeps_its_window_and_an_ended_one_gets_the_next(run: Run) -> None:
    """Back after its close a killed run has nothing left of its window; a new command opens another one."""
    evening = datetime(2026, 12, 1, 22, tzinfo=UTC)
    morning = evening + timedelta(hours=10)
    assert window_of(None, run, evening) is None
    first = window_of("07:00", run, evening)
    assert first == datetime(2026, 12, 2, 7, tzinfo=UTC).timestamp()
    journal = Journal(run.work / JOURNAL)
    journal.write("run", closes_at=first)
    assert window_of("07:00", run, morning) == first
    journal.write("end")
    assert window_of("07:00", run, morning) == datetime(2026, 12, 3, 7, tzinfo=UTC).timestamp()


def test_what_was_left_out_is_sealed_once(run: Run) -> None:
    """The same again, with nothing measured between, adds no bundle; another cause does."""
    point = run.plan.launches[2].points[0].point_id
    skip = Skip("k", (point,), "budget", "no room", ("_launch/x/server.log",))
    assert last_skipped(run) is None
    seal_skipped(run, [skip], is_new=False)
    seal_skipped(run, [skip], is_new=False)
    assert [path.name for path in (run.folder / "_skipped").iterdir()] == ["1"]
    seal_skipped(run, [Skip("k", (point,), "breaker", "held")], is_new=False)
    seal_skipped(run, [Skip("k", (point,), "breaker", "held")], is_new=True)
    assert all(is_sealed(run.folder / "_skipped" / str(number)) for number in (1, 2, 3))
    last = last_skipped(run)
    assert last is not None
    assert [(item.point_id, item.cause) for item in last.points] == [(point, "breaker")]
