from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from plotly.utils import PlotlyJSONEncoder

from isoline.dashboard.data import PointDetail, Source
from isoline.dashboard.panel import missing_panel, point_panel, reproduce_command


def _text(component: Any) -> str:
    return json.dumps(component.to_plotly_json(), cls=PlotlyJSONEncoder, ensure_ascii=False)


def _detail(source: Source, topology: str, concurrency: int) -> PointDetail:
    points = source.board().points
    found = points[
        (points["topology"] == topology)
        & (points["concurrency"] == concurrency)
        & (points["sku"] == "cpu")
        & (points["scenario"] == "demo-short")
    ].iloc[0]
    detail = source.detail(found["run_id"], found["point_id"])
    assert detail is not None
    return detail


def test_the_panel_holds_what_a_reader_needs(source: Source) -> None:
    """Identity, verdict, metrics with p99 absent, accuracy, phases, lock and the command are there."""
    text = _text(point_panel(_detail(source, "tp1", 4), [], internal=True))
    for wanted in ("smollm2-135m/llamacpp-cpu-q4_1", "valid", "official", "word-problems", "warmup", "–"):
        assert wanted in text
    assert "isoline reproduce smollm2-135m.llamacpp-cpu-q4_1.tp1.demo-short.c4.r1." in text


def test_a_reason_comes_with_meaning_and_remedy(source: Source) -> None:
    """server_died is explained, with what was seen and what to do."""
    text = _text(point_panel(_detail(source, "tp1-bad", 8), [], internal=True))
    for wanted in (
        "server_died",
        "the server ended by itself",
        "seen by the test",
        "read the end of the server log",
    ):
        assert wanted in text


def test_the_command_survives_a_shell() -> None:
    """Whatever the id, the shell reads the same words back and runs nothing else."""
    evil = "a; rm -rf ~ $(id) 'x'"
    assert shlex.split(reproduce_command("run", evil)) == ["isoline", "reproduce", evil, "--run", "run"]


@pytest.mark.parametrize("internal", [True, False])
def test_details_of_the_machine_stay_on_the_machine(source: Source, internal: bool) -> None:
    """The fingerprint is shown on loopback only; the plan's part of the lock always."""
    text = _text(point_panel(_detail(source, "tp1", 4), [], internal=internal))
    assert ("node-of-the-test" in text) is internal
    assert "{port}" in text


def test_a_point_without_an_attempt_says_why(
    warehouse_path: Any, make_point: Any, make_warehouse: Any
) -> None:
    """A planned point that nobody measured shows its cause and no numbers."""
    rows = [make_point(1, verdict=None, missing_cause="breaker")]
    make_warehouse(warehouse_path, rows)
    detail = Source(warehouse_path, 10.0).detail(rows[0]["run_id"], rows[0]["point_id"])
    assert detail is not None
    text = _text(point_panel(detail, [], internal=True))
    assert "breaker" in text
    assert "No metric was derived" in text


def test_a_point_of_the_base_is_shown_with_its_own_run(
    warehouse_path: Any, make_point: Any, make_warehouse: Any
) -> None:
    """On a curve that was added to, a point says where it was measured, and is run again from there."""
    base, later = make_point(1), make_point(2, run_id="20261202T020000Z-demo-bbbbbb", marks=["added"])
    here = later["run_id"]
    make_warehouse(warehouse_path, [base, base | {"run_id": here}, later])
    source = Source(warehouse_path, 10.0)
    old, new = (source.detail(here, row["point_id"]) for row in (base, later))
    assert old is not None and new is not None and old.metrics and new.metrics
    text = _text(point_panel(old, [], internal=True))
    assert f"--run {base['run_id']}" in text and "measured in" in text
    text = _text(point_panel(new, [], internal=True))
    assert f"--run {here}" in text and "measured in" not in text and " added" in text


def test_wrong_canary_answers_are_shown(source: Source) -> None:
    """An answer that was wrong is there with its text; one that was right is not."""
    detail = _detail(source, "tp1", 4)
    answers = [
        {"id": "q1", "text": "fine", "correct": True, "error": None},
        {"id": "q2", "text": "garbage", "correct": False, "error": None},
    ]
    broken = PointDetail(**{**vars(detail), "canary": {"asked": 2, "correct": 1, "answers": answers}})
    text = _text(point_panel(broken, [], internal=True))
    assert "garbage" in text
    assert "'fine'" not in text


def test_an_unknown_point_is_named() -> None:
    """The panel of a point that is not here says so."""
    assert "no-such-point" in _text(missing_panel("no-such-point"))
