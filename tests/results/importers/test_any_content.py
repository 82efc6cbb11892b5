"""Whatever a foreign file holds, its rows land or are refused: nothing is raised, none is lost."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from isoline.catalog.facts import load_catalog
from isoline.results.foreign.flat import Imported
from isoline.results.foreign.imports import flat_of, read_one
from isoline.results.foreign.rows import tables_of
from isoline.results.foreign.store import Note
from isoline.results.metrics.registry import METRICS

AGG: dict[str, Any] = {
    "hw": "b200",
    "conc": 4,
    "image": "x",
    "model": "openai/gpt-oss-120b",
    "framework": "vllm",
}
AGG |= {"precision": "fp4", "spec_decoding": "none", "disagg": False, "is_multinode": False, "isl": 1024}
AGG |= {"osl": 1024, "tp": 8, "ep": 1, "dp_attention": "false", "tput_per_gpu": 10.0, "median_tpot": 0.01}
AGG |= {"p90_intvty": 80.0, "output_tput_per_gpu": 4.0, "input_tput_per_gpu": 6.0, "users": None}
SPLIT = AGG | {"disagg": True, "prefill_tp": 4, "decode_tp": 8, "prefill_num_workers": 1, "num_decode_gpu": 8}
AGENTIC = AGG | {"scenario_type": "agentic", "num_requests_total": 9, "num_requests_successful": 9}
AGENTIC |= {"request_metrics": {"latency": {"tpot": {"p50": 0.1}}, "throughput": {}}, "dataset": {}}
API = {"hardware": "b200", "metrics": AGG, "isl": 1024, "osl": 1024, "id": "1", "date": "2026-05-03"} | AGG
EVAL = AGG | {"task": "gsm8k", "score": 0.5, "n_eff": 100}
BENCH: dict[str, Any] = {"model_id": "openai/gpt-oss-120b", "completed": 9, "num_prompts": 9, "duration": 1.0}
BENCH |= {"total_input_tokens": 10, "total_output_tokens": 10, "median_ttft_ms": 1.0, "max_concurrency": 1}
TOGETHER = AGG | {"metrics": {"total_token_throughput": 1.0}, "gpu": {"n_gpus": 8}}
LEVELS: dict[str, Any] = {"successful": {"median": 1.0, "total_sum": 5.0}}
GUIDELLM: dict[str, Any] = {
    "metrics": {"request_latency": LEVELS, "output_token_count": LEVELS},
    "duration": 1.0,
}
GUIDELLM |= {
    "worker": {"backend_model": "openai/gpt-oss-120b"},
    "request_totals": {"successful": 2, "errored": 0},
}
AIPERF: dict[str, Any] = {
    "input_config": {"endpoint": {"model_names": ["openai/gpt-oss-120b"]}, "loadgen": {}}
}
AIPERF |= {"request_count": {"avg": 3.0}, "total_isl": {"avg": 3.0}, "benchmark_duration": {"avg": 1.0}}
STAGE: dict[str, Any] = {"load_summary": {"requested_rate": 1.0}, "successes": {"count": 1, "latency": {}}}
EVALS: dict[str, Any] = {
    "results": {"gsm8k": {"exact_match,none": 0.5}},
    "n-samples": {"gsm8k": {}},
    "config": {},
}

WHOLE = (GUIDELLM, AIPERF, STAGE, EVALS)
BASES = (AGG, SPLIT, AGENTIC, API, EVAL, BENCH, TOGETHER, *WHOLE)

odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**31, 2**63, -(2**70), 10**400, 0, -1]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["\ud800", "true", "nan", "inf", "1e999", "", "2026-13-45", "9" * 400]),
)
values = st.recursive(
    odd,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """A known form with some of its values, at any depth, replaced by anything."""
    base = json.loads(json.dumps(draw(st.sampled_from(BASES))))
    for _ in range(draw(st.integers(1, 3))):
        place = base
        while True:
            key = draw(st.sampled_from(sorted(place)))
            if isinstance(place[key], dict) and place[key] and draw(st.booleans()):
                place = place[key]
                continue
            place[key] = draw(values)
            break
    return {"benchmarks": [base]} if "request_totals" in base and "metrics" in base else base


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    (folder / "imports").mkdir()
    return folder


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    document=documents(), name=st.sampled_from(["x.json", "agg_conc4_b200.json", "gpt-oss-120b_mock.json"])
)
@example(document=AGG | {"conc": 2**40}, name="x.json")
@example(document=AGG | {"image": "\ud800"}, name="x.json")
@example(document=AGG | {"tp": 10**400}, name="x.json")
@example(document=BENCH | {"duration": 5e-324}, name="x.json")
def test_any_value_lands_or_is_refused(document: Any, name: str, store: Path) -> None:
    """Every number that lands is finite and of the registry; every refusal has a reason."""
    content = json.dumps(document).encode()
    target = store / "imports" / hashlib.sha256(content).hexdigest()
    target.write_bytes(content)
    note = Note(sha256=target.name, bytes=len(content), names=[name], group="any", given={"gpus": "8"})
    found = list(read_one(store, target, note, load_catalog()))
    assert found
    points = [item for item in found if isinstance(item, Imported)]
    refused = [item for item in found if not isinstance(item, Imported)]
    made = tables_of(flat_of(points, refused), refused)
    assert all(item.reason.partition(":")[0].replace("_", "").isalpha() for item in refused)
    landed = made.tables["imports"].num_rows if "imports" in made.tables else 0
    assert landed + len(refused) == len(found)
    for item in points:
        for metric, value in item.landed.values.items():
            assert metric in METRICS
            assert 0 <= value < math.inf, metric


@given(content=st.binary(max_size=200))
@example(content=b"[" * 100_000)
@settings(max_examples=50)
def test_any_bytes_are_refused(content: bytes, store: Path) -> None:
    """Bytes that are no result make one line in quarantine."""
    target = store / "imports" / hashlib.sha256(content).hexdigest()
    target.write_bytes(content)
    for name in ("x.json", "x.jsonl", "x.csv"):
        note = Note(sha256=target.name, bytes=len(content), names=[name], group="any")
        found = list(read_one(store, target, note, load_catalog()))
        assert found
        assert not any(isinstance(item, Imported) for item in found)
