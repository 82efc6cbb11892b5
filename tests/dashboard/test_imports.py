"""Imported curves on the page: their source is always said, and their panel says where they are from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isoline.dashboard.board import view_of
from isoline.dashboard.config import load_look
from isoline.dashboard.data import Source
from isoline.dashboard.figure import build_figure
from isoline.dashboard.panel import point_panel
from isoline.results.foreign.store import Said, keep
from isoline.results.warehouse.ingest import ingest
from isoline.settings import load_settings

AGG: dict[str, Any] = {"hw": "b200", "model": "openai/gpt-oss-120b", "framework": "vllm", "precision": "fp4"}
AGG |= {"isl": 1024, "osl": 1024, "tp": 8, "output_tput_per_gpu": 10.0}
# An open loop: no concurrency; six failures of a hundred.
OPEN: dict[str, Any] = {"model_id": "openai/gpt-oss-120b", "request_rate": 2.0, "num_prompts": 100}
OPEN |= {"completed": 94, "duration": 10.0, "total_input_tokens": 96256, "total_output_tokens": 96256}
OPEN |= {"median_tpot_ms": 10.0}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A warehouse with two imported curves of one model and scenario, and nothing else."""
    project: Path = tmp_path_factory.mktemp("imported")
    for name in ("recipes", "sweeps", "results"):
        (project / name).mkdir()
    rows = [
        AGG | {"conc": count, "median_tpot": 0.01 * count, "tput_per_gpu": 100.0 * count} for count in (1, 2)
    ]
    (project / "agg.json").write_text(json.dumps(rows))
    (project / "open.json").write_text(json.dumps(OPEN))
    settings = load_settings(project, store=project / "store", warehouse=project / "w.duckdb")
    keep(settings.store, [project / "agg.json"], Said(licence="Apache-2.0"))
    keep(settings.store, [project / "open.json"], Said(given={"gpus": "8", "engine": "vllm", "sku": "h100"}))
    ingest(settings, [])
    return Source(settings.warehouse, 30.0)


def texts(component: Any) -> str:
    return json.dumps(component.to_plotly_json(), default=lambda item: item.to_plotly_json())


def test_the_source_is_part_of_a_curve_s_name(imported: Source, project_root: Path) -> None:
    """Two sources are two curves that say whose they are, drawn without a concurrency too."""
    palette = load_look(project_root / "dashboard").palette
    view = view_of("model=gpt-oss-120b&scenario=1k1k", imported, palette)
    labels = {curve.label.split(" · ")[3] for curve in view.curves}
    assert labels == {"from inferencex", "from vllm-bench"}
    drawn = json.dumps(build_figure(view), default=str)
    assert "cNone" not in drawn
    assert "from inferencex" in drawn


@pytest.mark.parametrize("internal", [True, False])
def test_the_panel_says_where_a_point_is_from(imported: Source, internal: bool) -> None:
    """Source, licence and digest for all; the file's name and the row only on one's own machine."""
    frame = imported.board().points
    point = frame[frame["source"] == "inferencex"].iloc[0]
    detail = imported.detail(point["run_id"], point["point_id"])
    assert detail is not None
    shown = texts(point_panel(detail, [], internal=internal))
    assert "Apache-2.0" in shown
    assert ("agg.json" in shown) is internal
    assert "isoline reproduce" not in shown


def test_a_failed_open_loop_says_what_was_seen(imported: Source) -> None:
    """The reason carries its count; there is no concurrency to name."""
    frame = imported.board().points
    point = frame[frame["source"] == "vllm-bench"].iloc[0]
    detail = imported.detail(point["run_id"], point["point_id"])
    assert detail is not None
    shown = texts(point_panel(detail, [], internal=False))
    assert "6 of 100 requests failed" in shown
    assert "Point without a concurrency" in shown
