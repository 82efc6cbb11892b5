"""Foreign files in the store and the warehouse: kept as they are, once, and mended by replaying."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from isoline.errors import InputError
from isoline.results.foreign import imports
from isoline.results.foreign.store import Said, keep
from isoline.results.warehouse.file import open_reader, open_writer
from isoline.results.warehouse.ingest import IngestReport, ingest
from isoline.results.warehouse.maintain import rebuild, verify
from isoline.results.warehouse.schema import TABLES
from isoline.results.warehouse.snapshots import snapshot_points
from isoline.settings import Settings

ROW: dict[str, Any] = {
    "hw": "b200",
    "model": "openai/gpt-oss-120b",
    "infmax_model_prefix": "gptoss",
    "framework": "vllm",
    "precision": "fp4",
    "spec_decoding": "none",
    "isl": 1024,
    "osl": 1024,
    "tp": 8,
    "tput_per_gpu": 1000.0,
    "output_tput_per_gpu": 400.0,
    "input_tput_per_gpu": 600.0,
}


def rows(*concurrencies: int, **changes: Any) -> list[dict[str, Any]]:
    """Rows of one curve: more requests at once, more tokens, less speed for each."""
    return [
        ROW | {"conc": count, "median_tpot": 0.01 * count, "tput_per_gpu": 100.0 * count, **changes}
        for count in concurrencies
    ]


def take(settings: Settings, *files: Path, **said: Any) -> IngestReport:
    keep(settings.store, files, Said(**said))
    return ingest(settings, [])


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A folder of foreign files: two good rows, one of an unknown engine, a damaged file, an empty list."""
    folder = tmp_path / "public"
    folder.mkdir()
    (folder / "agg.json").write_text(json.dumps([*rows(1, 2), *rows(4, framework="newengine")]))
    (folder / "bad.json").write_text("{")
    (folder / "empty.json").write_text("[]")
    (folder / "README.md").write_text("not a result")
    return folder


def test_the_rest_lands_and_a_second_time_adds_nothing(settings: Settings, public: Path, ask: Any) -> None:
    """Good rows of a file with a bad one land; refusals say why; the same again changes nothing."""
    first = take(settings, public)
    assert (first.imported.new, first.imported.rows) == (2, {"valid": 2})
    reasons = {(bad.path.partition("#")[2], bad.reason.partition(":")[0]) for bad in first.quarantined}
    assert reasons == {("2", "unknown_name"), ("", "no_rows"), ("", "unreadable")}
    tables = "points", "attempts", "metrics", "imports", "runs", "quarantine"
    before = [ask(f"SELECT * FROM {name} ORDER BY ALL") for name in tables]
    again = take(settings, public)
    assert (again.imported.new, again.imported.changed, len(again.quarantined)) == (0, [], 3)
    assert [ask(f"SELECT * FROM {name} ORDER BY ALL") for name in tables] == before
    assert ask("SELECT count(*) FROM points") == [(2,)]


def test_files_are_kept_byte_for_byte(settings: Settings, public: Path) -> None:
    """Each file is there under its digest, the refused ones too; what is no result is left out."""
    kept = keep(settings.store, [public], Said())
    assert (kept.files, kept.known, kept.skipped) == (3, 0, 1)
    for path in public.glob("*.json"):
        content = path.read_bytes()
        assert (settings.store / "imports" / hashlib.sha256(content).hexdigest()).read_bytes() == content
    assert [problem for problem in verify(settings) if "imports" in problem.path] == []
    target = settings.store / "imports" / hashlib.sha256(b"[]").hexdigest()
    target.write_bytes(b"[1]")
    assert "not what was imported" in verify(settings)[0].problem


def test_the_same_content_under_two_names_counts_once(settings: Settings, tmp_path: Path, ask: Any) -> None:
    """The second name is noted and adds no row."""
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(rows(1)))
    report = take(settings, tmp_path / "a.json", tmp_path / "b.json")
    assert (report.imported.new, ask("SELECT count(*) FROM points")) == (1, [(1,)])
    (note,) = (settings.store / "imports").glob("*.json")
    assert json.loads(note.read_bytes())["names"] == ["a.json", "b.json"]


def test_equal_rows_are_one_point_and_other_numbers_a_repetition(
    settings: Settings, tmp_path: Path, ask: Any
) -> None:
    """A row that is there twice word for word counts once; another number is another repetition."""
    path = tmp_path / "twice.json"
    path.write_text(json.dumps([*rows(1), *rows(1), *rows(1, tput_per_gpu=90.0)]))
    report = take(settings, path)
    assert report.imported.repeated == 1
    found = ask("SELECT repetition, total_tps_per_gpu FROM points ORDER BY 1")
    assert sorted(value for _, value in found) == [90, 100]
    assert [number for number, _ in found] == [1, 2]


def test_other_role_sizes_are_never_one_series(settings: Settings, tmp_path: Path, ask: Any) -> None:
    """Rows that differ only in the size of the decode role share a curve, but no point and no series."""
    roles = {"disagg": "true", "prefill_tp": 4, "prefill_num_workers": 1, "decode_num_workers": 1}
    path = tmp_path / "split.json"
    path.write_text(json.dumps([*rows(1, **roles, decode_tp=32), *rows(1, **roles, decode_tp=48)]))
    take(settings, path)
    counts = (
        "count(DISTINCT curve_key), count(DISTINCT series_key), count(DISTINCT point_digest), max(repetition)"
    )
    assert ask(f"SELECT {counts} FROM points") == [(1, 2, 2, 1)]
    assert ask("SELECT gpus FROM points ORDER BY 1") == [(36,), (52,)]


def test_a_note_of_an_older_form_makes_all_anew(settings: Settings, public: Path, ask: Any) -> None:
    """What another Isoline wrote about the last reading is no reason to stop."""
    take(settings, public)
    with open_writer(settings.warehouse) as con:
        con.execute("UPDATE meta SET value = 'abc' WHERE name = 'imports'")
        con.execute("DELETE FROM points")
    ingest(settings, [])
    assert ask("SELECT count(*) FROM points") == [(2,)]


def test_files_that_left_the_store_leave_the_warehouse(settings: Settings, public: Path, ask: Any) -> None:
    """The warehouse is a function of the store: what is gone there is gone here with the next ingest."""
    take(settings, public)
    shutil.rmtree(settings.store / "imports")
    ingest(settings, [])
    for name in ("points", "attempts", "metrics", "imports", "quarantine", "runs"):
        assert ask(f"SELECT count(*) FROM {name}") == [(0,)]


def test_an_alias_and_a_replay_recover_what_was_refused(settings: Settings, public: Path, ask: Any) -> None:
    """One line in the project's catalog, nothing imported again."""
    take(settings, public)
    shutil.rmtree(public)
    own = settings.project / "recipes" / "_catalog"
    own.mkdir()
    alias = "schema_version: 1\nsource: a test of imports\ndated: '2026-12-01'\nengines: {newengine: vllm}\n"
    (own / "aliases.yaml").write_text(alias)
    report = ingest(settings, again=True)
    assert (report.imported.new, len(report.quarantined)) == (1, 2)
    assert ask("SELECT count(*), count(DISTINCT curve_key) FROM points") == [(3, 1)]


def test_an_imported_curve_is_complete_never_official_and_apart(
    settings: Settings, public: Path, tmp_path: Path
) -> None:
    """It stands in the snapshot with its source; the same rows of another source are another curve."""
    take(settings, public)
    other = tmp_path / "other"
    other.mkdir()
    (other / "agg.json").write_text(json.dumps(rows(1, 2, tput_per_gpu=5.0)))
    take(settings, other, source="somebody", licence="CC-BY-4.0")
    con = open_reader(settings.warehouse)
    points = snapshot_points(con)
    con.close()
    assert set(points["source"]) == {"inferencex", "somebody"}
    assert points.groupby("source")["curve_key"].nunique().tolist() == [1, 1]
    assert points["curve_key"].nunique() == 2
    assert not points["official"].any()
    assert set(points["unofficial_why"]) == {"imported: not measured here"}


def test_every_row_says_where_it_is_from(settings: Settings, public: Path, ask: Any) -> None:
    """Digest, name and place in the file, format, licence, and the row as it was."""
    take(settings, public, licence="Apache-2.0")
    sha256 = hashlib.sha256((public / "agg.json").read_bytes()).hexdigest()
    found = ask("SELECT sha256, row_index, file_name, format, source, licence, original FROM imports")
    assert {row[:2] for row in found} == {(sha256, 0), (sha256, 1)}
    assert {row[2:6] for row in found} == {("agg.json", "inferencex-agg", "inferencex", "Apache-2.0")}
    assert json.loads(found[0][6])["model"] == "openai/gpt-oss-120b"


def test_a_rebuild_from_the_store_is_the_same(settings: Settings, public: Path, tmp_path: Path) -> None:
    """Also where the files came one by one and under other circumstances than the rebuild."""
    for path in sorted(public.glob("*.json"), reverse=True):
        take(settings, path)
    same_as_rebuilt(settings, tmp_path)


def same_as_rebuilt(settings: Settings, tmp_path: Path) -> None:
    """Every table of the warehouse is what a rebuild from the store gives."""
    target = tmp_path / "rebuilt.duckdb"
    rebuild(settings, target)
    dumps = []
    for warehouse in (settings.warehouse, target):
        con = open_reader(warehouse)
        names = [table.name for table in TABLES]
        dumps.append({name: con.execute(f"SELECT * FROM {name} ORDER BY ALL").fetchall() for name in names})
        con.close()
    assert dumps[0] == dumps[1]


def test_one_more_file_makes_only_its_run_anew(
    settings: Settings, public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What did not change is not read again; a file of the same run is, and the tables are a rebuild's."""
    take(settings, public)
    other = tmp_path / "other"
    other.mkdir()
    (other / "agg.json").write_text(json.dumps(rows(8, 16)))
    take(settings, other)
    read: list[str] = []
    real = imports.read_one
    monkeypatch.setattr(
        imports, "read_one", lambda s, target, *more: read.append(target.name) or real(s, target, *more)
    )
    (other / "more.json").write_text(json.dumps([*rows(32), *rows(8)]))
    report = take(settings, other)
    assert (report.imported.new, report.imported.repeated) == (2, 1)
    assert report.imported.changed == ["import-inferencex-other"]
    assert sorted(read) == sorted(
        hashlib.sha256(path.read_bytes()).hexdigest() for path in other.glob("*.json")
    )
    same_as_rebuilt(settings, tmp_path)


def test_a_mended_row_leaves_quarantine(settings: Settings, public: Path, tmp_path: Path, ask: Any) -> None:
    """A file that was taken for nothing lands when a person says its format; its old line is gone."""
    path = public / "rows.json"
    path.write_text(json.dumps([{"task": "gsm8k", "em_strict": 0.5, "model": "zzz", "hw": "b200"}]))
    take(settings, path)
    take(settings, path, source="somebody")
    assert ask("SELECT run_id FROM quarantine") == [("import-somebody-public",)]
    take(settings, path, given={"model": "gpt-oss-120b"})
    assert ask("SELECT count(*) FROM quarantine") == [(1,)]
    same_as_rebuilt(settings, tmp_path)


def test_what_a_person_says_counts_where_files_are_silent(
    settings: Settings, tmp_path: Path, ask: Any
) -> None:
    """Facts that are given later are added to the file's note, and its rows are made anew."""
    bench = {"model_id": "openai/gpt-oss-120b", "num_prompts": 100, "completed": 100, "max_concurrency": 4}
    bench |= {
        "duration": 10.0,
        "total_input_tokens": 1000,
        "total_output_tokens": 1000,
        "median_tpot_ms": 10.0,
    }
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(bench))
    take(settings, path)
    assert ask("SELECT sku, gpus, total_tps_per_gpu FROM points") == [(None, None, None)]
    take(settings, path, given={"sku": "h100", "gpus": "2", "engine": "vllm"})
    assert ask("SELECT sku, gpus, total_tps_per_gpu, engine FROM points") == [("h100", 2, 100.0, "vllm")]
    with pytest.raises(InputError, match="no count"):
        take(settings, path, given={"gpus": "many"})
    with pytest.raises(InputError, match="no format"):
        take(settings, path, forced="nonsense")
    with pytest.raises(InputError, match="no such file"):
        take(settings, tmp_path / "nowhere")


def test_parts_come_with_their_file(settings: Settings, tmp_path: Path, ask: Any) -> None:
    """A dump's configs are kept beside its results, read with them and not by themselves."""
    config = {"id": 7, "hardware": "b200", "framework": "vllm", "model": "gptoss", "precision": "fp4"}
    config |= {"disagg": False, "decode_tp": 8, "prefill_tp": 8}
    result = {"id": 1, "config_id": 7, "isl": 1024, "osl": 1024, "conc": 1, "metrics": {"tput_per_gpu": 1.0}}
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "configs.json").write_text(json.dumps([config]))
    (dump / "benchmark_results.json").write_text(json.dumps([result]))
    report = take(settings, dump)
    assert (report.imported.rows, report.quarantined) == ({"valid": 1}, [])
    assert ask("SELECT gpus FROM points") == [(8,)]


def test_power_logs_and_scores_have_their_tables(settings: Settings, tmp_path: Path, ask: Any) -> None:
    """Samples go to telemetry, scores to accuracy; neither makes a point of a curve."""
    log = (
        "timestamp, index, power.draw [W], utilization.gpu [%]\n2026/05/03 12:00:00.000, 0, 600.00 W, 97 %\n"
    )
    (tmp_path / "power.csv").write_text(log)
    (tmp_path / "eval.json").write_text(json.dumps([ROW | {"task": "gsm8k", "em_strict": 0.0, "n_eff": 100}]))
    report = take(settings, tmp_path / "power.csv", tmp_path / "eval.json")
    assert report.imported.rows == {"samples": 1, "scores": 1}
    assert ask("SELECT name, value FROM telemetry ORDER BY 1") == [
        ("power_w", 600.0),
        ("utilisation_percent", 97.0),
    ]
    assert ask("SELECT task, n, correct, state FROM accuracy") == [("gsm8k", 100, 0, "failed")]
    assert ask("SELECT count(*) FROM points") == [(0,)]


def test_no_link_leads_out_of_a_folder(settings: Settings, tmp_path: Path) -> None:
    """Links inside a folder of results are not followed."""
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps(rows(1)))
    folder = tmp_path / "public"
    folder.mkdir()
    (folder / "link.json").symlink_to(secret)
    assert keep(settings.store, [folder], Said()).files == 0


def test_our_own_bundles_are_no_files_of_others(settings: Settings, tmp_path: Path) -> None:
    """A store that is named by mistake is not taken apart into files."""
    folder = tmp_path / "a-store" / "bundle"
    folder.mkdir(parents=True)
    (folder / "MANIFEST.json").write_text("{}")
    with pytest.raises(InputError, match="bundles of ours"):
        keep(settings.store, [tmp_path / "a-store"], Said())
    assert not (settings.store / "imports").exists()
