"""What comes from elsewhere: the same from a folder, an archive or S3, once, and nothing that is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from isoline.errors import InfraError, InputError
from isoline.results.arrivals import bring as module
from isoline.results.arrivals.admit import ROOM, Arrived, room
from isoline.results.arrivals.archive import Limits
from isoline.results.arrivals.bring import bring, bring_aside
from isoline.results.foreign.store import Kept, Said
from isoline.results.warehouse.ingest import IngestReport, ingest
from isoline.results.warehouse.maintain import verify
from isoline.settings import Settings

ROW = {
    "hw": "b200",
    "infmax_model_prefix": "gptoss",
    "model": "openai/gpt-oss-120b",
    "framework": "vllm",
    "precision": "fp4",
    "isl": 1024,
    "osl": 1024,
    "tp": 8,
    "conc": 4,
    "tput_per_gpu": 1000.0,
    "median_tpot": 0.01,
}


def take(settings: Settings, *given: Path | str) -> tuple[Arrived, Kept, IngestReport]:
    """Bring these in and ingest them."""
    arrived, kept = bring(settings.store, [str(each) for each in given], Said())
    return arrived, kept, ingest(settings, sorted(arrived.runs))


def tar_of(folder: Path, archive: Path, name: str = ".", mode: str = "w:gz") -> Path:
    """A tar of a folder, its content under ``name``."""
    with tarfile.open(archive, mode) as made:  # type: ignore[call-overload]
        made.add(folder, name)
    return archive


def zip_of(folder: Path, archive: Path) -> Path:
    """A zip of a folder's content."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sorted(folder.rglob("*")):
            made.write(path, path.relative_to(folder))
    return archive


def upload(client: Any, folder: Path, prefix: str = "") -> None:
    """Put a folder's files into the bucket."""
    for path in folder.rglob("*"):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(folder).as_posix()}".lstrip("/")
            client.put_object(Bucket="results", Key=key, Body=path.read_bytes())


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != f"{ROOM}.lock"
    }


WAYS = ["folder", "run", "tar", "run.tar", "no-id.tar", "zip", "s3", "s3-run", "s3.zip"]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_store(
    way: str, settings: Settings, elsewhere: Path, run: Path, request: pytest.FixtureRequest, ask: Any
) -> None:
    """A run lands byte for byte with its rows, whichever way it came; a second time nothing changes."""
    tmp_path = elsewhere.parent
    if way.startswith("s3"):
        s3 = request.getfixturevalue("s3")
        upload(s3, elsewhere, "some/store")
        s3.upload_file(str(zip_of(elsewhere, tmp_path / "x.zip")), "results", "jobs/job.zip")
    day = run.parent.relative_to(elsewhere).as_posix()
    given = {
        "folder": lambda: elsewhere,
        "run": lambda: run,
        "tar": lambda: tar_of(elsewhere, tmp_path / "job.tar.gz", "a/b"),
        "run.tar": lambda: tar_of(run, tmp_path / "job.tar", run.name, "w"),
        "no-id.tar": lambda: tar_of(run, tmp_path / "job.tgz"),
        "zip": lambda: zip_of(elsewhere, tmp_path / "job.zip"),
        "s3": lambda: "s3://results/some",
        "s3-run": lambda: f"s3://results/some/store/{day}/{run.name}",
        "s3.zip": lambda: "s3://results/jobs/job.zip",
    }[way]()
    arrived, _, report = take(settings, given)
    assert (arrived.bundles, arrived.known, arrived.refused, arrived.unsealed) == (4, 0, [], 0)
    assert (report.ingested, report.quarantined) == (4, [])
    assert tree(settings.store) == tree(elsewhere)
    assert verify(settings) == []
    assert ask("SELECT count(*) FROM points WHERE verdict = 'valid' AND official") == [(2,)]
    arrived, _, report = take(settings, given)
    assert (arrived.bundles, arrived.known, arrived.refused) == (0, 4, [])
    assert (report.ingested, report.runs) == (0, [])
    assert not (settings.store / ROOM).exists()


def test_nothing_is_fetched_twice(
    settings: Settings, elsewhere: Path, run: Path, s3: Any, bundles: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store has is told by the listing; of a run that grew only the new bundle is fetched."""
    upload(s3, elsewhere)
    (elsewhere / "row.json").write_text(json.dumps(ROW))
    s3.upload_file(str(elsewhere / "row.json"), "results", "published/row.json")
    fetched: list[str] = []
    copy = module.S3Source.copy

    def spy(self: Any, paths: Any) -> None:
        fetched.extend(paths)
        copy(self, paths)

    monkeypatch.setattr(module.S3Source, "copy", spy)
    take(settings, "s3://results")
    assert len(fetched) == len(set(fetched)) > 10
    fetched.clear()
    arrived, kept, _ = take(settings, "s3://results/")
    assert (arrived.known, kept.known, fetched) == (4, 1, [])
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])
    launch = plan.launches[0]
    new = bundles.seal_attempt(run, launch, launch.points[0], attempt=2)
    upload(s3, new, f"{run.name}/{new.parent.name}/2")
    arrived, _, report = take(settings, "s3://results")
    assert (arrived.bundles, arrived.known, report.ingested) == (1, 4, 1)
    assert {name.split("/")[-2] for name in fetched} <= {"2", "aiperf", "accuracy"}


def spoil_hash(run: Path) -> str:
    """Another byte in a file of one bundle."""
    table = next(run.glob("*.c4.*/1/requests.parquet"))
    table.write_bytes(table.read_bytes()[:-1] + b"?")
    return "requests.parquet: sha256"


def spoil_size(run: Path) -> str:
    """One byte more."""
    lock = next(run.glob("*.c4.*/1/lock.json"))
    lock.write_bytes(lock.read_bytes() + b" ")
    return "lock.json: .* bytes, manifest says"


def spoil_missing(run: Path) -> str:
    """A file less."""
    next(run.glob("*.c4.*/1/lock.json")).unlink()
    return "lock.json: missing"


def spoil_more(run: Path) -> str:
    """A file that the manifest does not name."""
    (next(run.glob("*.c4.*/1")) / "more.json").write_text("{}")
    return "more.json: not in the manifest"


def spoil_manifest(run: Path) -> str:
    """A manifest that is cut off."""
    path = next(run.glob("*.c4.*/1/MANIFEST.json"))
    path.write_bytes(path.read_bytes()[:-20])
    return "unreadable manifest"


def spoil_upwards(run: Path) -> str:
    """A manifest that names a file outside its bundle."""
    path = next(run.glob("*.c4.*/1/MANIFEST.json"))
    path.write_text(path.read_text().replace('"lock.json"', '"../lock.json"'))
    return "leads upwards"


def spoil_place(run: Path) -> str:
    """A bundle where none can be."""
    bundle = next(run.glob("*.c4.*/1"))
    bundle.rename(bundle.with_name("first"))
    return "no place of a bundle"


SPOILS = [
    spoil_hash,
    spoil_size,
    spoil_missing,
    spoil_more,
    spoil_manifest,
    spoil_upwards,
    spoil_place,
]


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("way", ["folder", "tar", "s3"])
def test_a_bad_bundle_stays_outside_and_the_rest_lands(
    spoil: Any, way: str, settings: Settings, run: Path, request: pytest.FixtureRequest, ask: Any
) -> None:
    """A bundle that is not what its manifest says never enters the store; its run lands without it."""
    reason, elsewhere = spoil(run), run.parents[3]
    tmp_path = elsewhere.parent
    if way == "s3":
        upload(request.getfixturevalue("s3"), elsewhere)
    given = {"folder": elsewhere, "tar": tmp_path / "job.tar", "s3": "s3://results"}[way]
    if way == "tar":
        tar_of(elsewhere, tmp_path / "job.tar", mode="w")
    arrived, _, report = take(settings, given)
    assert (arrived.bundles, report.quarantined) == (3, [])
    (refused,) = arrived.refused
    assert refused.run_id == run.name and refused.kind == "point"
    assert re.search(reason, refused.reason), refused.reason
    assert ask("SELECT concurrency, got FROM points ORDER BY 1") == [(1, True), (4, False)]
    assert list(settings.store.glob("*/*/*/*/*.c4.*/1/*")) == []
    assert not (settings.store / ROOM).exists()
    assert verify(settings) == []


def test_a_sealed_bundle_is_never_changed(
    settings: Settings, elsewhere: Path, run: Path, bundles: Any, ask: Any
) -> None:
    """Another bundle at the place of one that the store has is refused, and the store stays as it was."""
    take(settings, elsewhere)
    before = tree(settings.store)
    log = next(run.glob("_launch/*/server.log"))
    log.write_text("another\n")
    bundles.reseal(log.parent)
    with bring_aside(settings, [str(elsewhere)], Said()) as (_, would, _kept):
        assert (would.bundles, would.known, len(would.refused)) == (0, 3, 1)
    arrived, _, _ = take(settings, elsewhere)
    assert (arrived.bundles, arrived.known) == (0, 3)
    assert "never changed" in arrived.refused[0].reason
    assert tree(settings.store) == before


def test_what_is_sealed_but_wrong_goes_to_quarantine(
    settings: Settings, elsewhere: Path, run: Path, bundles: Any, ask: Any
) -> None:
    """A whole bundle whose record contradicts its plan enters the store and is quarantined there."""
    folder = next(run.glob("*.c4.*/1"))
    bundles.edit(folder, "point.json", lambda content: content.update(attempt=2))
    arrived, _, report = take(settings, elsewhere)
    assert (arrived.bundles, arrived.refused, len(report.quarantined)) == (4, [], 1)
    assert ask("SELECT kind FROM quarantine") == [("point",)]


def test_unsealed_and_scratch_stay_outside(settings: Settings, elsewhere: Path, run: Path) -> None:
    """Without a manifest nothing is taken, and nobody takes a point's JSON for a file of others."""
    next(run.glob("*.c4.*/1/MANIFEST.json")).unlink()
    shutil.copytree(next(run.glob("*.c1.*/1")), run / ".work" / "x" / "1")
    arrived, kept, _ = take(settings, elsewhere)
    assert (arrived.bundles, arrived.refused, kept.files) == (3, [], 0)
    assert arrived.unsealed > 2


def test_an_archive_may_hold_both(settings: Settings, elsewhere: Path, tmp_path: Path, ask: Any) -> None:
    """Bundles and files of others come out of one archive; the archive's name is the group of its top."""
    (elsewhere / "agg.json").write_text(json.dumps([ROW, ROW | {"conc": 8, "framework": "newengine"}]))
    (elsewhere / "deep").mkdir()
    (elsewhere / "deep" / "more.jsonl").write_text(json.dumps(ROW | {"conc": 16}) + "\n{\n")
    (elsewhere / "readme.md").write_text("words")
    arrived, kept, report = take(settings, tar_of(elsewhere, tmp_path / "Night 7.tar.gz"))
    assert (arrived.bundles, kept.files, kept.skipped) == (4, 2, 1)
    assert sorted(bad.reason.split(":")[0] for bad in report.quarantined) == ["unknown_name", "unreadable"]
    assert ask("SELECT DISTINCT run_id FROM imports ORDER BY 1") == [
        ("import-inferencex-deep",),
        ("import-inferencex-night-7",),
    ]
    assert take(settings, tmp_path / "Night 7.tar.gz")[1].files == 0


def test_a_store_with_files_of_others_comes_whole(
    settings: Settings, elsewhere: Path, s3: Any, tmp_path: Path
) -> None:
    """Another store's `imports/` keep their notes; one that is not what its name says is refused."""
    (tmp_path / "row.json").write_text(json.dumps(ROW))
    (tmp_path / "bad.json").write_text(json.dumps(ROW | {"conc": 9}))
    bring(
        elsewhere, [str(tmp_path / "row.json"), str(tmp_path / "bad.json")], Said(source="lab", licence="CC")
    )
    bad = next(
        path
        for path in elsewhere.glob("imports/*")
        if path.read_bytes() == (tmp_path / "bad.json").read_bytes()
    )
    bad.write_text("{}")
    upload(s3, elsewhere)
    for given, known in (("s3://results", 0), (elsewhere, 1)):
        arrived, kept, _ = take(settings, given)
        assert (kept.files, kept.known) == (1 - known, known)
        assert [refused.kind for refused in arrived.refused] == ["file"]
    notes = [json.loads(path.read_text()) for path in settings.store.glob("imports/*.json")]
    assert [(note["source"], note["names"]) for note in notes] == [("lab", ["row.json"])]


def test_a_hostile_archive_leaves_nothing_and_stops_nobody(
    settings: Settings, elsewhere: Path, tmp_path: Path
) -> None:
    """A bad archive is one refusal with its reason; what else was named comes in."""
    (elsewhere / "link.json").symlink_to("/etc/passwd")
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("a.json", bytes(2_000_000))
    linked = tar_of(elsewhere, tmp_path / "linked.tar")
    (elsewhere / "link.json").unlink()
    (tmp_path / "cut.tar.gz").write_bytes(tar_of(elsewhere, tmp_path / "good.tar.gz").read_bytes()[:-2000])
    (tmp_path / "wrong.zip").write_text("hello")
    given = [str(path) for path in (bomb, linked, tmp_path / "cut.tar.gz", tmp_path / "wrong.zip")]
    limits = Limits(free_bytes=1 << 20)
    arrived, kept = bring(settings.store, given, Said(), limits=limits)
    assert (arrived.bundles, kept.files, len(arrived.refused)) == (0, 0, 4)
    assert tree(settings.store) == {}
    arrived, _ = bring(settings.store, [*given, str(tmp_path / "good.tar.gz")], Said(), limits=limits)
    assert (arrived.bundles, len(arrived.refused)) == (4, 4)
    assert tree(settings.store) == tree(elsewhere)


def test_links_in_a_folder_are_not_followed(
    settings: Settings, elsewhere: Path, run: Path, tmp_path: Path
) -> None:
    """A file of a bundle that is a link to elsewhere is missing, not read."""
    lock = next(run.glob("*.c4.*/1/lock.json"))
    lock.rename(tmp_path / "lock.json")
    lock.symlink_to(tmp_path / "lock.json")
    arrived, _, _ = take(settings, elsewhere)
    assert (arrived.bundles, [bad.reason for bad in arrived.refused]) == (3, ["lock.json: missing"])


def test_a_dry_run_changes_nothing(settings: Settings, elsewhere: Path, run: Path, bundles: Any) -> None:
    """What would come is told with the run's other bundles in sight, and nothing is left behind."""
    grown = next(run.glob("*.c4.*"))
    grown.rename(grown.parents[5] / "later")
    take(settings, elsewhere)
    before = tree(settings.project / "results")
    (elsewhere.parent / "later").rename(grown)
    for path in (run / "_run", *run.glob("_launch"), *run.glob("*.c1.*")):
        shutil.rmtree(path)
    with bring_aside(settings, [str(elsewhere)], Said()) as (aside, arrived, _):
        report = ingest(aside, dry_run=True)
    assert (arrived.bundles, report.quarantined) == (1, [])
    assert tree(settings.project / "results") == before


def test_what_a_killed_one_left_is_gone(settings: Settings, elsewhere: Path) -> None:
    """Scratch of a dead process is removed by the next one; a living one is named."""
    (settings.store / ROOM / "abc").mkdir(parents=True)
    (settings.store / ROOM / "abc" / "half").write_text("x")
    take(settings, elsewhere)
    assert not (settings.store / ROOM).exists()
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with room(settings.store):
            inside.set()
            done.wait(20)

    other = threading.Thread(target=hold)
    other.start()
    inside.wait(20)
    with pytest.raises(InfraError, match=rf"brings files into the store \(pid {os.getpid()} on"):
        bring(settings.store, [str(elsewhere)], Said())
    done.set()
    other.join()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("s3://", "not of the form"),
        ("s3://results/nothing-there", "there is nothing"),
        ("s3://no-such-bucket/x", "no such bucket"),
        ("gs://bucket/x", "only folders, files and s3://"),
        ("https://example.invalid/job.zip", "only folders, files and s3://"),
        ("nowhere.zip", "no such file or folder"),
    ],
)
def test_what_cannot_be_found_is_wrong_input(given: str, words: str, settings: Settings, s3: Any) -> None:
    """A misspelt place is one line, and nothing is made."""
    with pytest.raises(InputError, match=words):
        bring(settings.store, [given], Said())
    assert tree(settings.store) == {}


def test_s3_that_does_not_answer_is_the_machines_fault(
    settings: Settings, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server at the end point is exit code 4 and one line that says where to set it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(InfraError, match="AWS_ENDPOINT_URL") as caught:
        bring(settings.store, ["s3://results/x"], Said())
    assert "\n" not in caught.value.line()
