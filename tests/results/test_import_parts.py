"""Files of others read in parts by several processes: the same rows as read whole, and no process left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from isoline.catalog.facts import load_catalog
from isoline.errors import InfraError
from isoline.results.foreign import imports
from isoline.results.foreign import parts as import_parts
from isoline.results.foreign.rows import tables_of
from isoline.results.foreign.store import Said, keep
from isoline.results.importers.foreign import ForeignError, ForeignPoint
from isoline.results.importers.recognise import read_lines
from isoline.results.warehouse import helpers
from isoline.settings import Settings

ROW: dict[str, Any] = {"hw": "b200", "infmax_model_prefix": "gptoss", "framework": "vllm", "precision": "fp4"}
ROW |= {"isl": 1024, "osl": 1024, "tp": 8, "tput_per_gpu": 1000.0, "median_tpot": 0.01}


def lines(count: int) -> bytes:
    """Rows of which some are bad in one of several ways, some are alike, and some lines are blank."""
    found = [b"{ not JSON", b"", b"[]", b"  "]
    for number in range(count):
        row = ROW | {"conc": number % (count // 2) + 1}
        if number % 10 == 3:
            row |= {"framework": "newengine"}
        if number % 10 == 4:
            row |= {"median_ttft": 0.1 * number}
        text = json.dumps(row, ensure_ascii=number % 2 == 0)
        if number % 10 == 5:
            text = text.replace('"tp": 8', '"tp": 8, "image": "\\ud800"')
        if number % 10 == 6:
            text = text.replace('"tp": 8', '"tp": 8, "power": NaN')
        found.append(text.encode() + (b"\r" if number % 3 == 0 else b""))
    return b"\n".join(found)


@pytest.fixture
def kept(settings: Settings, tmp_path: Path) -> Settings:
    """A store with a file of lines, a list, and a file that is forced to one format."""
    (tmp_path / "rows.jsonl").write_bytes(lines(200))
    (tmp_path / "list.json").write_text(json.dumps([ROW | {"conc": 500 + n} for n in range(20)]))
    (tmp_path / "forced.ndjson").write_bytes(lines(40))
    (tmp_path / "bad.jsonl").write_bytes(b"{\n" * 3000)
    keep(settings.store, [tmp_path / "rows.jsonl", tmp_path / "list.json", tmp_path / "bad.jsonl"], Said())
    keep(settings.store, [tmp_path / "forced.ndjson"], Said(forced="inferencex-agg", group="other"))
    return settings


def everything(settings: Settings) -> tuple[dict[str, list[Any]], list[Any]]:
    """All rows that the kept files give, and all refusals, in order."""
    flat, refused = imports.read_all(settings.store, load_catalog(settings.project))
    made = tables_of(flat, refused)
    rows = {name: sorted(map(str, table.to_pylist())) for name, table in made.tables.items()}
    return rows, sorted(refused, key=str)


def test_however_it_is_cut_the_rows_are_the_same(kept: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row numbers, runs, repetitions and refusals do not depend on parts, nor on who reads them."""
    whole = everything(kept)
    assert (len(whole[0]["imports"]), len(whole[1])) == (212, 53)
    assert {bad.run_id for bad in whole[1]} == {
        "import-inferencex-other",
        f"import-inferencex-{kept.project.name}",
        f"import-unknown-{kept.project.name}",
    }
    for size, cores in ((700, 1), (5_000, 2), (1, 3)):
        monkeypatch.setattr(import_parts, "PART_BYTES", size)
        monkeypatch.setattr(imports, "WORTH_PARTS", 1)
        monkeypatch.setattr(helpers, "cores", lambda cores=cores: cores)
        assert everything(kept) == whole, size


def test_a_line_is_its_own_original() -> None:
    """What stands in the file is kept word for word, unless it is no strict JSON."""
    plain, loose = b' {"hw": "b200",  "isl": 1, "osl": 1} ', b'{"hw": "b200", "isl": 1, "osl": 1, "x": NaN}'
    found = read_lines([plain, loose, b"{"], 7, "inferencex-agg")
    assert [item.row for item in found] == [7, 8, 9]
    assert isinstance(found[0], ForeignPoint) and found[0].line == plain.decode().strip()
    assert isinstance(found[1], ForeignPoint) and found[1].line is None
    assert isinstance(found[2], ForeignError)


def test_a_helper_that_dies_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was killed, as for memory, is an error of the machine; nothing lands half."""
    monkeypatch.setattr(helpers, "cores", lambda: 2)
    with helpers.Helpers("operator:floordiv", 6, worth=True) as two:
        assert list(two.map([1, 2, 3])) == [6, 3, 2]
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            list(two.map([0]))
        pids = [child.pid for child in psutil.Process().children() if "serve" in str(child.cmdline())]
        assert len(pids) == 2
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(InfraError, match="died"):
            list(two.map([1, 2, 3]))
    assert not [child for child in psutil.Process().children() if "serve" in str(child.cmdline())]


HANG = """
import time
from isoline.results.warehouse import helpers
helper = helpers._Helper("builtins:print", "")
print(helper._process.pid, flush=True)
time.sleep(60)
"""


def test_helpers_end_with_the_one_that_started_them() -> None:
    """After SIGKILL of an ingest no process of it is left."""
    with subprocess.Popen([sys.executable, "-c", HANG], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        helper = psutil.Process(int(owner.stdout.readline()))
        owner.kill()
        deadline = time.monotonic() + 30
        while helper.is_running() and helper.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.05)
