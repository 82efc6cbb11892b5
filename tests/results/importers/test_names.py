"""Names of other people's data: resolved by the catalog, or refused; recognising a file by its content."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isoline.results.importers.foreign import ForeignError
from isoline.results.importers.normalise import name_candidates
from isoline.results.importers.recognise import recognise, row_format


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"infmax_model_prefix": "zzz9", "model": "/mnt/models/zzz9"}, "model 'zzz9'"),
        ({"framework": "newengine"}, "engine 'newengine'"),
        ({"hw": "cluster:b999-foo"}, "sku 'cluster:b999-foo'"),
        ({"hw": "h100-nvl"}, "sku 'h100-nvl'"),
        ({"precision": "fp3"}, "precision 'fp3'"),
        ({"hw": ""}, "the row's sku is empty"),
    ],
)
def test_an_unknown_name_is_refused(land: Any, agg: Any, changes: Any, what: str) -> None:
    """Nothing is guessed: a label with an unknown word may be another product."""
    (found,) = land([agg(**changes)])
    assert (found.code, what in str(found)) == ("unknown_name", True)


def test_known_labels_and_paths_resolve(one: Any, agg: Any) -> None:
    """Labels of fleets, paths of mounts and caches, other names of engines."""
    row = agg(
        hw="cluster:gb200-nv_3", framework="trt", model="/mnt/models/dsr1-fp4", infmax_model_prefix="dsr1"
    )
    curve = one([row]).curve
    assert (curve["sku"], curve["engine"], curve["model"]) == ("gb200-nvl72", "trtllm", "deepseek-r1-0528")
    cache = "/x/models--openai--gpt-oss-120b/snapshots/0123abcd/"
    assert "openai/gpt-oss-120b" in name_candidates(cache)


def test_a_prefix_against_the_path_is_refused(land: Any, agg: Any) -> None:
    """A row that names two models is of neither."""
    (found,) = land([agg(model="moonshotai/Kimi-K2.5")])
    assert found.code == "name_against_content"


def test_a_vague_precision_becomes_the_checkpoint_s(one: Any, agg: Any) -> None:
    """fp4 of gpt-oss is MXFP4, because the model has only that."""
    assert one([agg()]).curve["weight_precision"] == "mxfp4"


@pytest.mark.parametrize("place", ["name", "hw", "image"])
def test_mock_data_is_marked_and_never_valid(one: Any, land: Any, agg: Any, place: str) -> None:
    """Whatever says "mock" makes the row invalid, also where a name is unknown besides."""
    name = "agg_b200-mock_00.json" if place == "name" else "agg.json"
    row = agg(**({} if place == "name" else {"image": "repo/mock:1"}))
    found = one(row, name)
    assert ("mock_data" in found.reasons, "mock" in found.marks) == (True, True)
    (refused,) = land(row | {"hw": "950dt-mock"}, "agg.json")
    assert (refused.code, "of mock data" in str(refused)) == ("unknown_name", True)


def test_one_bad_row_leaves_the_others(land: Any, agg: Any) -> None:
    """In a list each row stands for itself; so does each line of a file of lines."""
    good, bad = agg(), agg(framework="newengine")
    kinds = [type(item).__name__ for item in land([good, 5, bad, {"hw": "b200"}])]
    assert kinds == ["Landed", "ForeignError", "ForeignError", "ForeignError"]
    lines = f"{json.dumps(good)}\nnot json\n{json.dumps(good)}\n".encode()
    first, broken, last = land(lines, "rows.jsonl")
    assert (broken.code, broken.row) == ("unreadable", 1)
    assert first.curve == last.curve


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"[]", "no_rows"),
        (b"{", "unreadable"),
        (b"\xff\xfe", "unreadable"),
        (b'{"a": 1}', "unknown_format"),
        (b"5", "unknown_format"),
    ],
)
def test_files_of_no_use_are_refused(land: Any, content: bytes, code: str) -> None:
    """Empty lists, damaged files and strangers."""
    with pytest.raises(ForeignError) as found:
        land(content)
    assert found.value.code == code


def test_a_forced_format_is_tried(land: Any, agg: Any) -> None:
    """``--as`` takes a file for what the person says; where it is not, it is refused."""
    (found,) = land([agg()], forced="vllm-bench")
    assert isinstance(found, ForeignError)
    with pytest.raises(ForeignError, match="no benchmark in the report"):
        land(agg(), forced="guidellm")


def test_forms_are_told_apart_by_content(agg: Any, bench_row: Any) -> None:
    """The shape decides, not the name."""
    assert row_format(agg()) == "inferencex-agg"
    assert row_format(agg(scenario_type="agentic-coding")) == "inferencex-agentic"
    assert row_format(bench_row()) == "vllm-bench"
    assert row_format({"hardware": "b200", "metrics": {}}) == "inferencex-api"
    assert row_format({"hw": "b200", "metrics": {}}) == "together"
    assert recognise("x.json", [{"config_id": 1, "metrics": {}}]) == "inferencex-dump"
    assert recognise("x.csv", None, b"timestamp, index, power.draw [W]\n") == "power-log"
    assert recognise("x.json", {"results": {}, "n-samples": {}}) == "lm-eval"
