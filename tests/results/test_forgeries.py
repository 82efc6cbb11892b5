"""A bundle whose hashes are right and whose content is not: each forgery is refused, alone, and told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoline.results import identity
from isoline.results.bundles.checks import plan_digest
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.maintain import verify
from isoline.settings import Settings

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def run(bundles: Any, settings: Settings) -> Path:
    """A run of four good points."""
    folder: Path = bundles.make_run(settings.store)
    return folder


@pytest.fixture
def attempt(run: Path) -> Path:
    """Its first attempt, at concurrency 1."""
    return next(run.glob("*.c1.*/1"))


def _metric(name: str, **changes: Any) -> Change:
    return lambda content: next(row.update(changes) for row in content["metrics"] if row["name"] == name)


def _result(**changes: Any) -> dict[str, Any]:
    return {
        "task": "arithmetic",
        "dataset_digest": "ef" * 32,
        "n": 20,
        "correct": 15,
        "unparsed": 0,
        "reference": 0.7,
        "interval_low": 0.5,
        "interval_high": 0.9,
        "state": "passed",
        "concurrency": 1,
        **changes,
    }


POINT: dict[str, tuple[Change, str]] = {
    "a better number": (_metric("total_tps_per_gpu", value=1e6), "1000000.0, derived now"),
    "a number left out": (lambda content: content["metrics"].pop(), "only derived now"),
    "a number of its own": (
        lambda content: content["metrics"].append({**content["metrics"][0], "name": "tokens_per_mood"}),
        "not derived any more",
    ),
    "a number of a later version": (_metric("ttft_p50_ms", metrics_version=99), "a newer Isoline"),
    "a number of an older version beside a better one": (
        lambda content: (
            _metric("total_tps_per_gpu", value=1e6)(content),
            _metric("ttft_p50_ms", metrics_version=1)(content),
        ),
        "version 1 and 2",
    ),
    "a better number that is said to be of an older version": (
        lambda content: (
            _metric("total_tps_per_gpu", value=1e6)(content),
            [row.update(metrics_version=1) for row in content["metrics"]],
        ),
        "1000000.0, derived now",
    ),
    "numbers of no version": (
        lambda content: [row.update(metrics_version=0) for row in content["metrics"]],
        "metrics of version 0",
    ),
    "a number that is none": (_metric("ttft_p50_ms", value=float("nan")), "is nan"),
    "a window that ends first": (lambda content: content["windows"]["full"].update(end_ns=1), "windows"),
    "more asked than completed": (lambda content: content["counts"].update(asked=80), "valid with 80 asked"),
    "fewer asked than none": (lambda content: content["counts"].update(asked=-5), "counts|asked"),
    "a count that no column holds": (lambda content: content["counts"].update(asked=10**30), "counts.asked"),
    "infinity in a free part": (lambda content: content["client"].update(x=float("inf")), "client.x is inf"),
    "NaN in the canary": (lambda content: content["canary"].update(x=float("nan")), "canary.x is nan"),
    "less than no time": (lambda content: content["phases"][0].update(duration_s=-1.0), "less than no time"),
    "a year that UTC lacks": (
        lambda content: content.update(started_at="0001-01-01T00:00:00+14:00"),
        "not a UTC time",
    ),
    "a wrong canary": (lambda content: content["canary"].update(correct=0), "canary of 0 correct of 1"),
    "no canary": (lambda content: content.update(canary=None), "canary of None"),
    "passed without a check": (lambda content: content.update(accuracy_state="passed"), "accuracy_state"),
    "passed with nothing right": (
        lambda content: content.update(accuracy_state="passed", accuracy=[_result(correct=0)]),
        "passed with 0 of 20",
    ),
    "passed without a reference": (
        lambda content: content.update(accuracy_state="passed", accuracy=[_result(reference=None)]),
        "reference None",
    ),
    "more right than asked": (
        lambda content: content.update(accuracy_state="passed", accuracy=[_result(correct=21)]),
        "21 of 20",
    ),
    "a broken check that passed": (
        lambda content: content.update(accuracy_state="passed", accuracy=[_result(state="invalid")]),
        "expected 'invalid'",
    ),
}


def _refused(settings: Settings, where: Path, reason: str) -> None:
    """The bundle alone is in quarantine with that reason; the rest landed; verify tells the same."""
    report = ingest(settings)
    name = where.relative_to(settings.store).as_posix()
    assert [bad.path for bad in report.quarantined] == [name]
    assert any(part in report.quarantined[0].reason for part in reason.split("|"))
    assert report.ingested == 5
    assert [(problem.path, problem.problem) for problem in verify(settings)] == [
        (name, report.quarantined[0].reason)
    ]


@pytest.mark.parametrize("what", POINT)
def test_a_forged_point_is_refused_alone(bundles: Any, settings: Settings, attempt: Path, what: str) -> None:
    """What point.json says must follow from its requests, its plan and itself; the other points land."""
    change, reason = POINT[what]
    bundles.edit(attempt, "point.json", change)
    _refused(settings, attempt, reason)


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("launch", "gpus", 8),
        ("launch", "argv", ["other"]),
        ("point", "concurrency", 64),
        ("point", "seed", 1),
    ],
)
def test_a_lock_says_what_the_plan_says(
    bundles: Any, settings: Settings, attempt: Path, part: str, field: str, value: Any
) -> None:
    """The lock is what is run again: it must be the launch and the point of the plan, in every field."""
    bundles.edit(attempt, "lock.json", lambda content: content[part].update({field: value}))
    _refused(settings, attempt, f"{part} of lock.json has another {field}")


@pytest.mark.parametrize(
    "take",
    [lambda table: table.slice(0, 0), lambda table: table.slice(0, table.num_rows // 2)],
    ids=["none", "half"],
)
def test_other_requests_are_refused(
    bundles: Any, settings: Settings, attempt: Path, take: Callable[[pa.Table], pa.Table]
) -> None:
    """Numbers stand only on their own requests."""
    path = attempt / "requests.parquet"
    pq.write_table(take(pq.read_table(path)), path)
    bundles.reseal(attempt)
    _refused(settings, attempt, "derived now|not derived")


def test_damaged_requests_are_refused(bundles: Any, settings: Settings, attempt: Path) -> None:
    """A request table that cannot be read to its end is no evidence."""
    path = attempt / "requests.parquet"
    data = path.read_bytes()
    path.write_bytes(data[:200] + b"\xff" * 200 + data[400:])
    bundles.reseal(attempt)
    report = ingest(settings)
    assert [bad.path for bad in report.quarantined] == [attempt.relative_to(settings.store).as_posix()]
    assert report.ingested == 5


def test_a_copied_attempt_is_refused(bundles: Any, settings: Settings, attempt: Path) -> None:
    """The same requests under two attempts are one measurement that was copied."""
    again = attempt.parent / "2"
    shutil.copytree(attempt, again)
    manifest = again / "MANIFEST.json"
    manifest.write_text(manifest.read_text().replace(f"{attempt.parent.name}/1", f"{attempt.parent.name}/2"))
    bundles.edit(again, "point.json", lambda content: content.update(attempt=2))
    report = ingest(settings)
    assert [bad.reason.split(" of ")[0] for bad in report.quarantined] == ["it has the very requests"]


def test_a_manifest_of_another_place_is_refused(settings: Settings, run: Path, attempt: Path) -> None:
    """A bundle says where it belongs."""
    manifest = attempt / "MANIFEST.json"
    manifest.write_text(manifest.read_text().replace(".c1.", ".c2."))
    _refused(settings, attempt, "the manifest is of")


def test_an_attempt_that_was_taken_away_is_found(bundles: Any, settings: Settings, run: Path) -> None:
    """Who removes a bad first attempt leaves a gap in the numbers."""
    point = next(run.glob("*.c1.*"))
    plan_launch, plan_point = next(bundles.points_of(bundles.make_plan()))
    bundles.seal_attempt(run, plan_launch, plan_point, attempt=2)
    assert verify(settings) == []
    shutil.rmtree(point / "1")
    assert [problem.problem for problem in verify(settings)] == ["an attempt before it is gone; all are kept"]


def _link_file(attempt: Path, aside: Path) -> None:
    shutil.move(attempt / "requests.parquet", aside)
    (attempt / "requests.parquet").symlink_to(aside)


def _link_all(attempt: Path, aside: Path) -> None:
    shutil.move(attempt, aside)
    attempt.symlink_to(aside)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_link_file, "requests.parquet: not a plain file"),
        (_link_all, "the bundle is a link"),
        (lambda attempt, aside: (attempt / "more").symlink_to(aside), "more: not a plain file"),
        (lambda attempt, aside: (attempt / "more").symlink_to("/"), "more: not a plain file"),
        (lambda attempt, aside: os.mkfifo(attempt / "more"), "more: not a plain file"),
    ],
    ids=["file", "bundle", "dangling", "folder", "fifo"],
)
def test_a_bundle_holds_only_plain_files(
    settings: Settings, attempt: Path, tmp_path: Path, change: Callable[[Path, Path], None], reason: str
) -> None:
    """What lies elsewhere is not sealed here, whatever its hash."""
    change(attempt, tmp_path / "aside")
    _refused(settings, attempt, reason)


def test_a_manifest_that_is_no_file_stops_nothing(settings: Settings, attempt: Path) -> None:
    """A folder of that name seals nothing; the other bundles land, and verify names it."""
    (attempt / "MANIFEST.json").unlink()
    (attempt / "MANIFEST.json").mkdir()
    assert ingest(settings).ingested == 5
    assert [problem.path for problem in verify(settings)] == [attempt.relative_to(settings.store).as_posix()]


def _rename_curve(content: dict[str, Any], **fields: Any) -> None:
    for launch in content["launches"]:
        for point in launch["points"]:
            point["curve"].update(fields)
            point["curve_key"] = identity.curve_key(point["curve"])
            point["series_key"] = identity.series_key(
                point["curve_key"], launch["topology"], point["concurrency"]
            )


def _other_concurrency(content: dict[str, Any]) -> None:
    launch = content["launches"][0]
    point = launch["points"][0]
    point["concurrency"] = 64
    point["point_id"] = identity.point_id(
        launch["recipe_id"],
        launch["topology"],
        point["scenario"],
        64,
        point["repetition"],
        point["point_digest"],
    )
    point["series_key"] = identity.series_key(point["curve_key"], launch["topology"], 64)


def _gpus(content: dict[str, Any]) -> None:
    """A topology of two workers on eight devices each, counted as one GPU."""
    launch = content["launches"][0]
    launch["identity"]["topology"] = {"aggregated": {"workers": 2, "tp": 8, "pp": 1, "ep": 8}}
    launch["launch_digest"] = identity.digest(launch["identity"])
    for point in launch["points"]:
        point["identity"]["launch_digest"] = launch["launch_digest"]
        point["point_digest"] = identity.digest(point["identity"])
        point["point_id"] = identity.point_id(
            launch["recipe_id"],
            launch["topology"],
            point["scenario"],
            point["concurrency"],
            point["repetition"],
            point["point_digest"],
        )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: _rename_curve(content, weight_precision="fp4"), "weight_precision of its curve"),
        (lambda content: _rename_curve(content, sku="h200"), "sku of its curve"),
        (lambda content: _rename_curve(content, dataset_digest="0" * 64), "dataset_digest of its curve"),
        (lambda content: _rename_curve(content, client_class="gpu-host"), "client_class of its curve"),
        (lambda content: content["launches"][0].update(argv=["other"]), "argv is"),
        (_other_concurrency, "concurrency is 64, expected 1"),
        (_gpus, "gpus is 1, expected 16"),
        (lambda content: content["budget"].update(usd=float("inf")), "budget.usd is inf"),
    ],
    ids=["precision", "sku", "dataset", "client", "argv", "concurrency", "gpus", "budget"],
)
def test_a_plan_shows_what_its_digests_cover(
    bundles: Any, settings: Settings, run: Path, change: Change, reason: str
) -> None:
    """A curve, a GPU count or an argument that the identity does not have is no plan."""

    def edit(content: dict[str, Any]) -> None:
        change(content)
        content["plan_digest"] = plan_digest(content)

    bundles.edit(run / "_run", "plan.json", edit)
    refused = {bad.path.rsplit("/", 1)[-1]: bad.reason for bad in ingest(settings).quarantined}
    assert reason in refused["_run"]


def test_a_planned_check_that_was_not_made_is_no_valid_point(bundles: Any, settings: Settings) -> None:
    """Where the plan asks for an accuracy check, speed without it does not count."""
    points = [bundles.PointDef(1, accuracy=("arithmetic",)), bundles.PointDef(2)]
    plan = bundles.make_plan([(bundles.LaunchDef(), points)])
    bundles.make_run(settings.store, plan)
    assert [bad.reason for bad in ingest(settings).quarantined] == [
        "valid without the planned check arithmetic"
    ]


def test_a_check_below_the_recipes_reference_has_not_passed(bundles: Any, settings: Settings) -> None:
    """The limit is the recipe's, not what the result says about itself."""
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1)])]).model_dump(mode="json")
    plan["launches"][0]["recipe"]["accuracy"] = {"arithmetic": {"correct_share": 0.9, "tolerance": 0.05}}
    run = bundles.make_run(settings.store, type(bundles.make_plan()).model_validate(plan), outcomes={})
    assert ingest(settings).quarantined == []
    bundles.edit(
        next(run.glob("*.c1.*/1")),
        "point.json",
        lambda content: content.update(accuracy_state="passed", accuracy=[_result(reference=0.9)]),
    )
    assert "the recipe asks for 0.85" in ingest(settings).quarantined[0].reason


def test_only_the_bundle_that_makes_no_rows_is_refused(bundles: Any, settings: Settings, run: Path) -> None:
    """A number too large for its column costs its own bundle, not the run."""
    launch = next((run / "_launch").iterdir())
    bundles.edit(launch, "launch.json", lambda content: content.update(exit_code=2**40))
    report = ingest(settings)
    assert [bad.path for bad in report.quarantined] == [launch.relative_to(settings.store).as_posix()]
    assert report.ingested == 5
