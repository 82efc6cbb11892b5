"""The public snapshot: public columns, scanned, whole at each moment, and the same curves as inside."""

from __future__ import annotations

import json
import shutil
import threading
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest
import s3fs

from isoline.analysis.curves import curve_groups, curve_readings, curve_table
from isoline.errors import InfraError, InputError
from isoline.results.foreign.store import Said, keep
from isoline.results.publishing.public import PUBLIC, may_pass_on
from isoline.results.publishing.publish import Published, UnfitError, publish
from isoline.results.publishing.published import MANIFEST, published_points, read_manifest
from isoline.results.publishing.remote import FolderPlace, Place, place_at
from isoline.results.warehouse.file import open_reader
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.snapshots import snapshot_points
from isoline.settings import Settings, load_settings

RUNS = [f"2026120{day}T020000Z-nightly-aaaaa{day}" for day in range(1, 5)]
ROW = {"model_id": "openai/gpt-oss-120b", "completed": 9, "num_prompts": 9, "total_output_tokens": 90}
ROW |= {"request_throughput": 1.0, "median_tpot_ms": 2.0, "mean_tpot_ms": 2.0, "duration": 3.0}
NAMES = {"sku": "h200", "engine": "vllm", "precision": "fp8", "gpus": "8"}


def bring(settings: Settings, name: str, licence: str | None, load: int = 1, **said: Any) -> None:
    """Import two rows of somebody else's, no two alike."""
    folder = settings.project / "incoming" / name
    folder.mkdir(parents=True)
    for number in (load, load + 1):
        row = ROW | {
            "max_concurrency": number,
            "median_ttft_ms": 5.0 + zlib.crc32(f"{name}{number}".encode()),
        }
        (folder / f"{number}.json").write_text(json.dumps(row))
    keep(settings.store, [folder], Said(**{"source": "theirs", **said}, licence=licence, given=NAMES))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, bundles: Any) -> Path:
    """Two models of ours in two runs, a try-out, an incomplete run, and rows of two others."""
    folder = tmp_path_factory.mktemp("template")
    for name in ("recipes", "sweeps", "results"):
        (folder / name).mkdir()
    settings = load_settings(
        folder, store=folder / "results" / "store", warehouse=folder / "results" / "warehouse.duckdb"
    )
    make, launch, point = bundles.make_plan, bundles.LaunchDef, bundles.PointDef
    loads = [point(c) for c in (1, 2, 4, 8)]
    plan = make([(launch(), loads), (launch(model="other-model", recipe_id="o/llamacpp-cpu"), loads)])
    bundles.make_run(settings.store, plan, RUNS[0])
    bundles.make_run(settings.store, plan, RUNS[1])
    bundles.make_run(settings.store, make([(launch(), loads)], publish=False), RUNS[2])
    bundles.make_run(settings.store, make([(launch(), loads)]), RUNS[3], {(8, 1): None})
    bring(settings, "open", "Apache-2.0")
    bring(settings, "closed", None, source="somebody")
    ingest(settings)
    return folder


@pytest.fixture
def filled(template: Path, settings: Settings) -> Settings:
    """A copy of it that the test may change."""
    shutil.copytree(template / "results", settings.project / "results", dirs_exist_ok=True)
    return settings


def curves(points: Any) -> Any:
    """Everything that is drawn and read of a set of points."""
    rows = curve_table(points)
    return rows, [curve_readings(part, [1.0, 20.0, 500.0]) for part in curve_groups(rows).values()]


def inside(settings: Settings, **filters: str) -> Any:
    """The official snapshot of the warehouse, without what may not be passed on."""
    con = open_reader(settings.warehouse)
    try:
        points = snapshot_points(con, **filters)
    finally:
        con.close()
    return points[points["source"] != "somebody"]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def out(tmp_path: Path) -> FolderPlace:
    """A folder to publish to, which is not there yet."""
    return FolderPlace(tmp_path / "public")


def test_the_same_curves_as_inside(filled: Settings, out: FolderPlace) -> None:
    """Points, frontiers and readings from the published files are those of the warehouse."""
    done = publish(filled, out)
    assert done.manifest.sources == {"own": 8, "theirs": 2}
    assert curves(published_points(out)) == curves(inside(filled))
    assert {row["run_id"] for row in curve_table(published_points(out))} >= {RUNS[1]}
    part = published_points(out, model="other-model", sku="cpu")
    assert curves(part) == curves(inside(filled, model="other-model", sku="cpu"))
    assert published_points(out, model="of nobody").empty
    with pytest.raises(TypeError, match="no filter pool"):
        published_points(out, pool="local")


def test_the_same_curves_from_s3(filled: Settings, out: FolderPlace, s3: Any) -> None:
    """In S3 lie the very files of the folder, and DuckDB reads the same curves from them there."""
    place = place_at("s3://results/public/v1")
    moment = datetime(2026, 12, 5, tzinfo=UTC)
    publish(filled, place, now=moment)
    publish(filled, out, now=moment)
    assert {name: place.read(name) for name in place.sizes()} == contents(out.folder)
    assert curves(published_points(place)) == curves(inside(filled))
    assert publish(filled, place).unchanged
    s3.put_object(Bucket="results", Key="public/v1/other.txt", Body=b"x")
    with pytest.raises(InputError, match=r"something else lies there: other\.txt"):
        publish(filled, place)
    s3.put_object(Bucket="results", Key="public/v1-of-others/x", Body=b"x")  # a longer name is another place
    s3.delete_object(Bucket="results", Key="public/v1/other.txt")
    extra = f"points/model=x/scenario=y/{'0' * 64}.parquet"
    s3.put_object(Bucket="results", Key=f"public/v1/{extra}", Body=b"x")
    assert publish(filled, place, prune=True).removed == 1
    assert extra not in place.sizes()
    with pytest.raises(InputError, match="no such bucket"):
        publish(filled, place_at("s3://nobody/x"))
    for wrong in ("s3://", "gs://bucket/x", "s3://key:secret@bucket/x"):
        with pytest.raises(InputError, match=r"not of the form s3://bucket/prefix"):
            place_at(wrong)


def test_a_file_in_s3_is_asked_for_once(
    filled: Settings, s3: Any, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading many files costs about a request each, not ten."""
    publish(filled, place_at("s3://results/public"))
    place = place_at("s3://results/public")
    asked: list[str] = []
    before = s3fs.S3FileSystem._call_s3

    async def counted(self: Any, method: str, *values: Any, **named: Any) -> Any:
        asked.append(method)
        return await before(self, method, *values, **named)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    assert len(published_points(place)) == 10
    assert len(asked) <= 3 + 2 * 3  # the manifest, one listing, and three files


def test_a_public_bucket_needs_no_credentials(
    filled: Settings, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has no credentials asks as anybody may, instead of being told to get some."""
    place = place_at("s3://results/public")
    publish(filled, place)
    for name in place.sizes():
        s3.put_object_acl(Bucket="results", Key=f"public/{name}", ACL="public-read")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert len(published_points(place_at("s3://results/public"))) == 10


def test_an_s3_that_refuses_is_one_line(
    filled: Settings, s3: Any, monkeypatch: pytest.MonkeyPatch, s3_server: str
) -> None:
    """An end point where nobody answers is an error of the machine, told in one line."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(InfraError, match="S3 does not answer as it should"):
        publish(filled, place_at("s3://results/public"))


def test_any_engine_reads_it(filled: Settings, out: FolderPlace) -> None:
    """DuckDB by a pattern and Arrow as a Hive data set find rows by model and scenario, with types."""
    publish(filled, out)
    pattern = f"{out.folder}/points/*/*/*.parquet"
    found = duckdb.sql(f"SELECT model, count(*) FROM '{pattern}' GROUP BY 1 ORDER BY 1").fetchall()
    assert found == [("gpt-oss-120b", 2), ("other-model", 4), ("smollm2-135m-instruct", 4)]
    table = ds.dataset(out.folder / "points", partitioning="hive").to_table(
        filter=ds.field("model") == "other-model"
    )
    assert table.num_rows == 4
    assert table.schema.field("total_tps_per_gpu").type == "double"
    manifest = json.loads((out.folder / MANIFEST).read_text())
    assert {path for path in contents(out.folder) if path != MANIFEST} == {
        file["path"] for table in manifest["tables"].values() for file in table["files"]
    }


def test_only_what_is_public(filled: Settings, out: FolderPlace) -> None:
    """Neither pools, paths in the store, launches nor try-outs are in any file; columns are those allowed."""
    publish(filled, out)
    for name, table in PUBLIC.items():
        for path in (out.folder / name).rglob("*.parquet"):
            assert ds.dataset(path).schema.names == table.names
    assert not {"pool", "bundle_path", "launch_id", "node", "argv", "env"} & set(PUBLIC["points"].names)
    text = b"".join(contents(out.folder).values())
    for private in (b"incoming", str(filled.project).encode(), RUNS[2].encode()):
        assert private not in text
    assert {
        row["run_id"] for row in duckdb.sql(f"FROM '{out.folder}/runs/*.parquet'").df().to_dict("records")
    } == {
        RUNS[1],
        "import-theirs-open",
    }


def test_what_may_not_be_passed_on_stays_out(filled: Settings, out: FolderPlace) -> None:
    """Rows of others without an open licence are left out and counted; a curve is there whole or not."""
    first = publish(filled, out)
    assert first.left_out == {("no licence to pass on", "somebody"): 2}
    assert first.manifest.left_out == {"no licence to pass on": 2}
    assert b"somebody" not in b"".join(contents(out.folder).values())
    bring(filled, "late", "all rights reserved", load=3, group="open")  # on the curve that was open until now
    ingest(filled)
    mixed = publish(filled, out).manifest
    assert mixed.sources == {"own": 8}
    assert mixed.left_out == {"no licence to pass on": 6}
    bring(filled, "third", "CC-BY-4.0 (the paper's repository)", source="paper")
    ingest(filled)
    assert publish(filled, out).manifest.licences["CC-BY-4.0 (the paper's repository)"] == 2
    own = publish(filled, out, own_only=True)
    assert set(own.manifest.sources) == {"own"}
    assert own.left_out[("of others", "paper")] == 2


@pytest.mark.parametrize(
    ("note", "may"),
    [
        ("Apache-2.0", True),
        ("apache 2.0, see the repository", True),
        ("MIT", True),
        ("CC-BY-4.0 (the paper)", True),
        ("BSD 3-Clause", True),
        ("CC-BY-SA-4.0", True),
        ("CC-BY-NC-4.0", False),
        ("CC-BY-4.0-with-secrets", False),
        ("MITRE internal", False),
        ("not Apache-2.0", False),
        ("figures only", False),
        ("", False),
        (None, False),
    ],
)
def test_licence_notes(note: str | None, may: bool) -> None:
    """A note must begin with the name of a licence under which anybody may pass data on."""
    assert may_pass_on(note) is may


def decide(settings: Settings, reason: str) -> None:
    """Annotate a published run."""
    line = {
        "run_id": RUNS[1],
        "action": "annotate",
        "reason": reason,
        "reviewer": "ops",
        "dated": "2026-12-02",
    }
    path = settings.project / "results" / "overrides.yaml"
    path.write_text(json.dumps({"schema_version": 1, "overrides": [line]}))
    ingest(settings)


def test_a_find_refuses_the_whole(filled: Settings, out: FolderPlace) -> None:
    """A path in a reviewed reason stops everything, names column and point, and changes nothing there."""
    publish(filled, out)
    before = contents(out.folder)
    decide(filled, "log in /mnt/somebody/x.log")
    with pytest.raises(UnfitError) as caught:
        publish(filled, out)
    assert caught.value.exit_code == 2
    line = caught.value.line()
    assert "a path of a machine in points.decisions: '/mnt/somebody/x.log'" in line
    assert line.startswith(("smollm2-135m.", "o."))
    assert contents(out.folder) == before
    with pytest.raises(UnfitError):
        publish(filled, out, dry_run=True)
    publish(filled, out, allowed=["/mnt/somebody/x.log"])
    assert contents(out.folder) != before


def test_names_of_our_machines_are_found(
    filled: Settings, out: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of this machine is private, and so is that of a machine in a pool."""
    monkeypatch.setattr("socket.gethostname", lambda: "blackbird.example")
    decide(filled, "seen while Blackbird was busy")
    with pytest.raises(UnfitError, match=r"a host in points\.decisions: 'Blackbird'"):
        publish(filled, out)


def test_a_second_time_nothing_is_written(filled: Settings, out: FolderPlace, bundles: Any) -> None:
    """The same snapshot is not published anew; its date stays."""
    first = publish(filled, out, now=datetime(2026, 12, 5, tzinfo=UTC))
    before = contents(out.folder)
    again = publish(filled, out, now=datetime(2026, 12, 9, tzinfo=UTC))
    assert (first.unchanged, again.unchanged, again.written) == (False, True, [])
    assert contents(out.folder) == before
    assert again.manifest.published_at == "2026-12-05T00:00:00Z"
    bring(filled, "more", None, source="somebody else")  # not for the public: only left_out changes
    bundles.make_run(filled.store, bundles.make_plan(publish=False), "20261206T020000Z-tryout-aaaaa6")
    ingest(filled)
    assert not publish(filled, out).unchanged
    bundles.make_run(filled.store, bundles.make_plan(publish=False), "20261207T020000Z-tryout-aaaaa7")
    ingest(filled)
    assert publish(filled, out).unchanged


def test_readers_of_the_old_manifest_lose_nothing(filled: Settings, out: FolderPlace, bundles: Any) -> None:
    """After a newer snapshot every file of the former is there, until somebody prunes."""
    publish(filled, out)
    old, was = read_manifest(out), contents(out.folder)
    bundles.make_run(filled.store, bundles.make_plan(), "20261205T020000Z-nightly-aaaaa5")
    ingest(filled)
    done = publish(filled, out)
    assert done.older == len(set(was) - set(contents(out.folder))) + done.older > 0
    assert old is not None
    for table in old.tables.values():
        for file in table.files:
            assert out.read(file.path) == was[file.path]
    kept = {file.path for table in done.manifest.tables.values() for file in table.files}
    assert any(path in was for path in kept)  # what did not change is not written again
    left = out.folder / "points" / f".{'0' * 64}.parquet.0a1b2c3d.part"  # of a writer that was killed
    left.write_bytes(b"PAR1")
    pruned = publish(filled, out, prune=True)
    assert (pruned.unchanged, pruned.removed) == (True, done.older + 1)
    assert set(contents(out.folder)) == {MANIFEST, *kept}
    assert curves(published_points(out)) == curves(inside(filled))


def test_a_dry_run_writes_nothing(filled: Settings, out: FolderPlace) -> None:
    """It says what would be new, and makes no folder."""
    said = publish(filled, out, dry_run=True)
    assert not out.folder.exists()
    assert said.written == publish(filled, out).written


class Dying(FolderPlace):
    """A folder whose writer dies at one of its steps."""

    def __init__(self, folder: Path, at: int, after: bool) -> None:
        super().__init__(folder)
        self.left, self.after = at, after

    def put(self, path: str, content: bytes) -> None:
        if self.left == 0 and not self.after:
            raise KeyboardInterrupt
        super().put(path, content)
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1


def test_a_killed_writer_leaves_a_whole_snapshot(filled: Settings, out: FolderPlace, bundles: Any) -> None:
    """Killed at any file, readers see the old snapshot or the new one; the next call completes."""
    publish(filled, out)
    before = curves(published_points(out))
    kept = out.folder.with_name("kept")
    shutil.copytree(out.folder, kept)
    bundles.make_run(filled.store, bundles.make_plan(), "20261205T020000Z-nightly-aaaaa5")
    ingest(filled)
    after = curves(inside(filled))
    assert after != before
    for step in range(9):
        shutil.rmtree(out.folder)
        shutil.copytree(kept, out.folder)
        try:
            publish(filled, Dying(out.folder, step // 2, bool(step % 2)))
        except KeyboardInterrupt:
            seen = curves(published_points(out))
            assert seen in (before, after)
        publish(filled, out)
        assert curves(published_points(out)) == after


def test_readers_at_full_speed(filled: Settings, out: FolderPlace) -> None:
    """While snapshots come and go, each reading is one of them whole."""
    publish(filled, out)
    sizes = {len(published_points(out)), 8}
    assert len(sizes) == 2
    seen: set[int] = set()
    errors: list[BaseException] = []
    over = threading.Event()

    def read() -> None:
        try:
            while not over.is_set():
                seen.add(len(published_points(out)))
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(6):
        publish(filled, out, own_only=number % 2 == 0)
    over.set()
    for reader in readers:
        reader.join()
    assert errors == []
    assert seen == sizes


def test_a_place_of_somebody_else_is_refused(filled: Settings, out: FolderPlace) -> None:
    """Other files, a manifest of a newer Isoline or of another kind, a file for a folder: no change."""
    publish(filled, out)
    manifest = out.folder / MANIFEST
    good = manifest.read_text()
    for change in ({"schema_version": 2}, {"kind": "other"}, {"extra": 1}):
        manifest.write_text(json.dumps(json.loads(good) | change))
        with pytest.raises(InputError, match="no manifest of a published snapshot that this Isoline knows"):
            publish(filled, out)
        with pytest.raises(InputError):
            published_points(out)
    manifest.write_text(good)
    (out.folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"something else lies there: notes\.txt; nothing was changed"):
        publish(filled, out)
    file = FolderPlace(out.folder / "notes.txt")
    with pytest.raises(InputError, match="not a folder"):
        publish(filled, file)
    with pytest.raises(InputError, match="no published snapshot there"):
        published_points(FolderPlace(out.folder.parent))


def test_an_empty_snapshot_replaces_no_full_one(filled: Settings, out: FolderPlace, bundles: Any) -> None:
    """Where nothing is official any more, nothing is published: a lost store empties no public page."""
    publish(filled, out)
    before = contents(out.folder)
    for run in filled.store.glob("*/*/*/*"):
        shutil.rmtree(run)
    shutil.rmtree(filled.store / "imports")
    filled.warehouse.unlink()
    bundles.make_run(filled.store, bundles.make_plan(publish=False), RUNS[2])
    ingest(filled)
    with pytest.raises(InputError, match="there is nothing to publish"):
        publish(filled, out)
    assert contents(out.folder) == before


def test_a_hostile_manifest_leads_nowhere(filled: Settings, out: FolderPlace, tmp_path: Path) -> None:
    """Paths out of the place are refused; a column's name never becomes SQL; a damaged file is one line."""
    publish(filled, out)
    manifest = out.folder / MANIFEST
    good = json.loads(manifest.read_text())

    def changed(change: Callable[[dict[str, Any]], None]) -> Place:
        forged = json.loads(json.dumps(good))
        change(forged["tables"]["points"])
        manifest.write_text(json.dumps(forged))
        return out

    for path in (
        "../../secret.parquet",
        f"points/../../{'0' * 64}.parquet",
        "/etc/passwd",
        "s3://x/y.parquet",
    ):
        with pytest.raises(InputError, match="no manifest"):
            published_points(changed(lambda table, path=path: table["files"][0].update(path=path)))
    column = "x\" FROM read_csv('/etc/passwd') --"
    assert len(published_points(changed(lambda table: table["columns"].update({column: "VARCHAR"})))) == 10
    first = good["tables"]["points"]["files"][0]["path"]
    (out.folder / first).write_bytes(b"PAR1 nothing")
    with pytest.raises(InfraError, match="a file of the snapshot cannot be read"):
        published_points(changed(lambda table: None))
    repaired: Published = publish(filled, out)
    assert repaired.written == [first]
    assert len(published_points(out)) == 10


DATA = Path(__file__).parents[3] / "shared" / "data" / "results"


@pytest.mark.skipif(not DATA.is_dir(), reason="shared/data is not here")
def test_the_fields_own_data_comes_out_as_it_is(settings: Settings, out: FolderPlace) -> None:
    """All of the field's data, imported and published again, gives the same curves; nothing is found."""
    for folder in sorted(path for path in DATA.iterdir() if path.is_dir()):
        keep(settings.store, [folder], Said(licence="Apache-2.0"))
    ingest(settings)
    done = publish(settings, out)
    assert done.left_out == {}
    assert done.manifest.curves > 50
    assert curves(published_points(out)) == curves(inside(settings))
