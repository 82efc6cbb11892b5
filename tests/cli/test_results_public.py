"""``isoline results export, publish, thin`` and ``frontier --from``: what they print and how they end."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isoline.cli.main import run
from isoline.results.warehouse.ingest import ingest
from isoline.settings import load_settings

RULES = Path(__file__).parents[2] / "results" / "retention.yaml"
RUN = "20261201T020000Z-demo-aaaaaa"


@pytest.fixture
def project(tmp_path: Path, bundles: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one ingested run of four points, and nothing else on this machine."""
    for name in ("ISOLINE_STORE", "ISOLINE_WAREHOUSE", "ISOLINE_STATE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "project"
    for name in ("recipes", "sweeps", "results"):
        (folder / name).mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ISOLINE_PROJECT", str(folder))
    shutil.copyfile(RULES, folder / "results" / "retention.yaml")
    bundles.make_run(folder / "results" / "store", bundles.make_plan(), RUN)
    ingest(load_settings())
    return folder


@pytest.fixture
def isoline(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line: exit code, standard output, standard error."""

    def call(*argv: str) -> tuple[int, str, str]:
        code = run(argv)
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return call


def test_publish_and_read_it_elsewhere(
    project: Path, isoline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published gives the same curves to somebody without project and warehouse."""
    code, out, err = isoline("results", "publish", "--to", "public")
    assert (code, err) == (0, "")
    assert out.startswith("published 4 points of 1 curves in 3 files, 3 of them new: public\n")
    code, out, _ = isoline("results", "publish", "--to", "public", "--format", "json")
    said = json.loads(out)[0]
    assert (said["unchanged"], said["new_files"], said["sources"]) == (True, 0, {"own": 4})
    inside = json.loads(isoline("frontier", "--at", "20", "--format", "json")[1])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.delenv("ISOLINE_PROJECT")
    place = str(project / "public")
    code, out, err = isoline("frontier", "--from", place, "--at", "20", "--format", "json")
    assert (code, err) == (0, "")
    outside = json.loads(out)
    for curve in (*inside, *outside):
        for point in curve["points"]:  # intervals inside one run need its requests, which stay inside
            for name in ("x_low", "x_high", "x_interval", "y_low", "y_high", "y_interval"):
                point.pop(name, None)
    assert outside == inside
    assert "4 points" in isoline("frontier", "--from", place)[1]
    code, _, err = isoline("frontier", "--from", place, "--run", RUN)
    assert (code, err) == (1, "isoline: --run: one snapshot is there, no other run; leave it out\n")
    code, _, err = isoline("frontier", "--from", place, "--sku", "cpus")
    assert (code, err) == (1, "isoline: --sku: no sku 'cpus'; did you mean cpu?\n")
    code, _, err = isoline("frontier", "--from", "nowhere")
    assert code == 1 and err.startswith("isoline: nowhere: no published snapshot there")


def test_a_find_is_shown_and_ends_with_2(project: Path, isoline: Any) -> None:
    """What must not be public is a table, one line on standard error, and exit code 2."""
    line = {"run_id": RUN, "action": "annotate", "reviewer": "ops", "dated": "2026-12-02"}
    line["reason"] = "see /mnt/somebody/x.log"
    (project / "results" / "overrides.yaml").write_text(
        json.dumps({"schema_version": 1, "overrides": [line]})
    )
    assert isoline("results", "ingest")[0] == 0
    code, out, err = isoline("results", "publish", "--to", "public", "--dry-run")
    assert code == 2
    assert "a path of a machine  /mnt/somebody/x.log  points.decisions" in out
    assert len(err.splitlines()) == 1 and "nothing was published" in err
    assert not (project / "public").exists()
    code, out, _ = isoline("results", "publish", "--to", "public", "--allow", "/mnt/somebody/x.log")
    assert code == 0


def test_export(project: Path, isoline: Any) -> None:
    """Tables with rows and digests; a second time the folder is replaced; another one is refused."""
    code, out, _ = isoline("results", "export", "--parquet", "out", "--format", "json")
    tables = {row["table"]: row for row in json.loads(out)}
    assert (code, tables["points"]["rows"]) == (0, 4)
    assert isoline("results", "export", "--parquet", "out")[1].splitlines()[-1].startswith("replaced out: ")
    code, _, err = isoline("results", "export", "--parquet", "recipes/../sweeps")
    assert code == 0  # an empty folder may be used
    code, _, err = isoline("results", "export", "--parquet", "results")
    assert code == 1 and "this is no export of ours; nothing was changed" in err
    assert (project / "results" / "retention.yaml").exists()


def test_thin(project: Path, isoline: Any) -> None:
    """A dry run says by run and class what would go on a day; today nothing goes."""
    assert isoline("results", "thin")[1] == "removed 0 files, 0 bytes\n"
    day = f"{datetime.now(UTC) + timedelta(days=401):%Y-%m-%d}"
    code, out, _ = isoline("results", "thin", "--dry-run", "--as-of", day, "--format", "json")
    rows = json.loads(out)
    assert code == 0
    assert [(row["run"], row["class"], row["files"]) for row in rows] == [
        (RUN, "raw", 1),
        (RUN, "requests", 4),
    ]
    out = isoline("results", "thin", "--dry-run", "--as-of", day)[1]
    assert out.splitlines()[-1].startswith("would remove 5 files, ")
    out = isoline("results", "thin", "--dry-run", "--as-of", day, "--keep", RUN)[1]
    assert out.splitlines() == ["would remove 0 files, 0 bytes", f"{RUN} stays whole: --keep names it"]
    code, _, err = isoline("results", "thin", "--as-of", day)
    assert (code, err.startswith("isoline: --as-of: only with --dry-run")) == (1, True)
    code, _, err = isoline("results", "thin", "--dry-run", "--as-of", "soon")
    assert (code, err.startswith("isoline: --as-of: no date: 'soon'")) == (1, True)
    point = next(project.glob("results/store/*/*/*/*/*.c4.*/1"))
    (point / "requests.parquet").write_bytes(b"other")
    code, out, err = isoline("results", "thin", "--dry-run", "--as-of", day)
    assert code == 3
    assert "Kept though past its days" in out and len(err.splitlines()) == 1
