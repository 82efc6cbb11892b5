"""Every public result file beside the project, accounted for: one line a file, or a row of it.

The files are not part of the project; without them these tests skip. ``accounting.txt`` names a file
by its folder and the first digits of its SHA-256. ISOLINE_WRITE_GOLDEN=1 writes it anew.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isoline.analysis.curves import curve_groups, curve_table
from isoline.results.foreign.store import Said, keep
from isoline.results.warehouse.file import open_reader
from isoline.results.warehouse.ingest import IngestReport, ingest
from isoline.results.warehouse.snapshots import snapshot_points
from isoline.settings import Settings, load_settings

TABLE = Path(__file__).parent / "accounting.txt"


@pytest.fixture(scope="module")
def shared(project_root: Path) -> Path:
    """The folder of public files beside the project."""
    folder = project_root.parent / "shared/data"
    if not (folder / "results").is_dir():
        pytest.skip("the public files are not beside the project (../shared/data/results)")
    return folder


@dataclass
class Taken:
    settings: Settings
    files: list[Path]
    report: IngestReport

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        con = open_reader(self.settings.warehouse)
        try:
            return con.execute(sql).fetchall()
        finally:
            con.close()


@pytest.fixture(scope="module")
def taken(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """All of them in one warehouse."""
    project = tmp_path_factory.mktemp("imports")
    for name in ("recipes", "sweeps", "results"):
        (project / name).mkdir()
    settings = load_settings(project, store=project / "store", warehouse=project / "w.duckdb")
    folders = [shared / "results", shared / "made_up"]
    keep(settings.store, folders, Said())
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return Taken(settings, files, ingest(settings, []))


def accounts(taken: Taken) -> list[str]:
    """One line for each row: group, file, format, verdict, reasons."""
    landed = taken.ask(
        """SELECT i.run_id, i.sha256, i.row_index, i.format, p.verdict, p.reasons, p.marks
        FROM imports i LEFT JOIN points p USING (run_id, point_id)"""
    )
    rows_of = Counter(row[1] for row in landed)
    rows_of.update(bad.digest for bad in taken.report.quarantined)
    lines = []
    for run, sha256, index, form, verdict, reasons, marks in landed:
        place = f"{sha256[:12]}#{index}" if rows_of[sha256] > 1 else sha256[:12]
        why = ", ".join([*(reasons or ()), *(marks or ())])
        lines.append(f"{run:44} {place:16} {form:19} {verdict or 'kept':12} {why}".rstrip())
    for bad in taken.report.quarantined:
        index = bad.path.partition("#")[2]
        place = f"{bad.digest[:12]}#{index}" if index else bad.digest[:12]
        reason = bad.reason.rpartition(" (")[0]
        lines.append(f"{bad.run_id:44} {place:16} {'-':19} {'quarantined':12} {reason}")
    return sorted(lines)


def test_every_file_is_accounted_for(taken: Taken) -> None:
    """No file is lost; each row is valid, partial, invalid, or in quarantine with its reason."""
    lines = accounts(taken)
    counts = Counter(line[82:].split()[0] for line in lines)
    total = "".join(f"# {count:4} {name}\n" for name, count in sorted(counts.items()))
    text = f"# {len(taken.files)} files, {len(lines)} rows\n{total}" + "".join(f"{line}\n" for line in lines)
    if os.environ.get("ISOLINE_WRITE_GOLDEN") == "1":
        TABLE.write_text(text, encoding="utf-8")
    wanted = TABLE.read_text(encoding="utf-8")
    assert text == wanted, f"{TABLE.name} differs; if it should: ISOLINE_WRITE_GOLDEN=1, and read the diff"


def test_one_row_a_file_except_the_lists_and_guidellm(taken: Taken) -> None:
    """Four reports with five benchmarks, four lists of made-up rows; every other file is one row."""
    per_file = Counter(line.split()[1].partition("#")[0] for line in accounts(taken))
    assert len(per_file) == len(taken.files)
    more = {count for count in per_file.values() if count > 1}
    several = [sha for sha, count in per_file.items() if count > 1]
    assert more <= {2, 3, 7}
    assert len(several) == 5  # one report of guidellm, and four lists


def test_importing_again_adds_nothing(taken: Taken, shared: Path) -> None:
    """The same files once more: not one row, not one file."""
    tables = "points", "attempts", "metrics", "imports", "quarantine", "runs", "telemetry"
    before = [taken.ask(f"SELECT * FROM {name} ORDER BY ALL") for name in tables]
    kept = keep(taken.settings.store, [shared / "results", shared / "made_up"], Said())
    assert (kept.files, kept.known) == (0, len(taken.files))
    assert ingest(taken.settings, [], again=True).imported.new == 0
    assert [taken.ask(f"SELECT * FROM {name} ORDER BY ALL") for name in tables] == before


def test_no_number_of_a_foreign_file_is_of_another_size(taken: Taken) -> None:
    """A unit taken wrong shows as a time of microseconds or hours, or a speed that no machine has."""
    rows = taken.ask(
        """SELECT point_id, ttft_p50_ms, tpot_p50_ms, interactivity_p50_tps, total_tps_per_gpu
        FROM points WHERE verdict = 'valid'"""
    )
    assert len(rows) > 250
    for point_id, ttft, tpot, speed, total in rows:
        assert ttft is None or 5 < ttft < 1_000_000, point_id
        assert tpot is None or 1 < tpot < 2000, point_id
        assert speed is None or 0.5 < speed < 1000, point_id
        assert total is None or 10 < total < 50_000, point_id


def test_parts_add_up_to_the_whole(taken: Taken) -> None:
    """Input and output per GPU are of the same GPUs as the total, disaggregated or not."""
    rows = taken.ask(
        """SELECT total_tps_per_gpu, input_tps_per_gpu, output_tps_per_gpu FROM points
        WHERE verdict = 'valid' AND input_tps_per_gpu IS NOT NULL"""
    )
    assert len(rows) > 40
    for total, given, output in rows:
        assert given + output == pytest.approx(total, rel=0.01)


def test_imported_curves_have_frontiers(taken: Taken) -> None:
    """A curve of imported points is drawn like any other, of one source and one run."""
    con = open_reader(taken.settings.warehouse)
    points = snapshot_points(con)
    con.close()
    drawn = 0
    for rows in curve_groups(curve_table(points, "interactivity_p50_tps", "total_tps_per_gpu")).values():
        kept = [row for row in rows if row["frontier"]]
        assert {row["source"] for row in rows} != {"own"}
        assert not any(row["official"] for row in rows)
        xs = [row["x"] for row in sorted(kept, key=lambda row: row["y"])]
        assert xs == sorted(xs, reverse=True)
        drawn += len(kept) > 1
    assert drawn >= 5


def test_aiperf_sweep_is_derived_from_its_requests(shared: Path, tmp_path: Path) -> None:
    """Five summaries give five points; the one with requests beside it agrees with its own summary."""
    for name in ("recipes", "sweeps", "results"):
        (tmp_path / name).mkdir()
    settings = load_settings(tmp_path, store=tmp_path / "store", warehouse=tmp_path / "w.duckdb")
    keep(settings.store, [shared / "aiperf/sa_kimik27_tp4_sweep"], Said(given={"gpus": "4", "sku": "mi355x"}))
    report = ingest(settings, [])
    assert (report.imported.rows, report.quarantined) == ({"valid": 5}, [])
    con = open_reader(settings.warehouse)
    found = con.execute(
        """SELECT p.concurrency, p.completed, p.tpot_p50_ms, p.ttft_p50_ms, p.output_tps_per_gpu, i.notes
        FROM points p JOIN imports i USING (run_id, point_id) ORDER BY 1"""
    ).fetchall()
    con.close()
    assert [row[0] for row in found] == [1, 4, 8, 16, 32]
    assert "derived from 195 requests" in " ".join(found[0][5])
    assert found[0][1] == 195
    assert found[1][2:5] == pytest.approx((20.8188, 5834.378, 589666 / 3625.94 / 4), rel=1e-3)


def test_raw_and_aggregated_files_of_one_run_agree(shared: Path, land: Any) -> None:
    """Three runs are there twice, in milliseconds of the system and in seconds of a GPU: the same numbers."""
    pairs = 0
    for path in sorted((shared / "results/sa_root_kimi_mtp").glob("agg_*.json")):
        raw = shared / "results/sa_root" / path.name.removeprefix("agg_")
        (aggregated,) = land(path.read_bytes(), path.name)
        (bench,) = land(raw.read_bytes(), raw.name, given={"gpus": "8"})
        for name in ("model", "sku", "engine", "weight_precision", "scenario", "speculative"):
            assert aggregated.curve[name] == bench.curve[name], name
        common = aggregated.values.keys() & bench.values.keys()
        assert len(common) > 15
        for name in common:
            assert aggregated.values[name] == pytest.approx(bench.values[name], rel=1e-3), name
        pairs += 1
    assert pairs == 3


def test_aiperf_summaries_and_the_rows_made_of_them_agree(shared: Path, land: Any) -> None:
    """Five agentic runs are there as AIPerf wrote them and as InferenceX's nested rows: the same numbers."""
    rows = {}
    for path in (shared / "results/sa_agentic_kimik27_mi355x").glob("*_tp4_conc*.json"):
        (row,) = land(path.read_bytes(), path.name)
        rows[row.point.concurrency] = row
    assert sorted(rows) == [1, 4, 8, 16, 32]
    for concurrency, row in rows.items():
        path = shared / f"aiperf/sa_kimik27_tp4_sweep/conc{concurrency}.profile_export_aiperf.json"
        (summary,) = land(path.read_bytes(), path.name, given={"gpus": "4"})
        assert summary.point.completed == row.point.completed
        common = summary.values.keys() & row.values.keys()
        assert len(common) > 15
        for name in common:
            assert summary.values[name] == pytest.approx(row.values[name], rel=5e-3), (concurrency, name)
