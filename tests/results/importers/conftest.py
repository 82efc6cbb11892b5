"""Made-up rows in the shapes that others publish, and the steps that every test takes with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from isoline.catalog.facts import load_catalog
from isoline.results.importers.filenames import file_facts
from isoline.results.importers.foreign import ForeignError, ForeignFile, ForeignPoint
from isoline.results.importers.normalise import Landed, normalise
from isoline.results.importers.recognise import read

Row = dict[str, Any]


@pytest.fixture
def agg() -> Callable[..., Row]:
    """``agg(**changes)``: an aggregated InferenceX row of one node; None takes a key away."""

    def make(**changes: Any) -> Row:
        row: Row = {
            "hw": "b200",
            "conc": 64,
            "image": "example/vllm:1",
            "model": "openai/gpt-oss-120b",
            "infmax_model_prefix": "gptoss",
            "framework": "vllm",
            "precision": "fp4",
            "spec_decoding": "none",
            "disagg": False,
            "is_multinode": False,
            "isl": 1024,
            "osl": 1024,
            "tp": 8,
            "ep": 1,
            "dp_attention": "false",
            "tput_per_gpu": 1000.0,
            "output_tput_per_gpu": 400.0,
            "input_tput_per_gpu": 600.0,
            "median_ttft": 0.5,
            "p99_ttft": 1.5,
            "median_tpot": 0.02,
            "p90_tpot": 0.025,
            "p99_tpot": 0.04,
            "median_intvty": 50.0,
            "p90_intvty": 40.0,
            "p99_intvty": 25.0,
            "std_tpot": 0.001,
            "std_intvty": 1000.0,
            "median_e2el": 20.0,
            "mean_itl": 0.05,
        }
        row |= changes
        return {key: value for key, value in row.items() if value is not None}

    return make


@pytest.fixture
def split(agg: Callable[..., Row]) -> Callable[..., Row]:
    """``split(**changes)``: the same with prefill (16 GPUs) and decode (32 GPUs) apart, on several nodes."""

    def make(**changes: Any) -> Row:
        roles: Row = {"tp": None, "ep": None, "dp_attention": None, "disagg": True, "is_multinode": "True"}
        roles |= {"prefill_tp": 4, "prefill_ep": 4, "prefill_dp_attention": "true", "prefill_num_workers": 4}
        roles |= {"decode_tp": 32, "decode_ep": 32, "decode_dp_attention": "true", "decode_num_workers": 1}
        roles |= {"num_prefill_gpu": 16, "num_decode_gpu": 32}
        # 48 GPUs at 1000 tokens/s: half of the 48,000 on each side.
        roles |= {"tput_per_gpu": 1000.0, "output_tput_per_gpu": 750.0, "input_tput_per_gpu": 1500.0}
        return agg(**(roles | changes))

    return make


@pytest.fixture
def bench_row() -> Callable[..., Row]:
    """``bench_row(**changes)``: a file of ``bench serve``, times in milliseconds."""

    def make(**changes: Any) -> Row:
        row: Row = {
            "date": "20260503-120000",
            "backend": "vllm",
            "model_id": "openai/gpt-oss-120b",
            "num_prompts": 200,
            "completed": 200,
            "request_rate": "inf",
            "max_concurrency": 16,
            "duration": 100.0,
            "total_input_tokens": 204800,
            "total_output_tokens": 20480,
            "request_throughput": 2.0,
            "request_goodput:": 1.5,
            "median_ttft_ms": 250.0,
            "p99_ttft_ms": 900.0,
            "median_tpot_ms": 20.0,
            "p99_tpot_ms": 30.0,
            "median_itl_ms": 40.0,
        }
        row |= changes
        return {key: value for key, value in row.items() if value is not None}

    return make


@pytest.fixture
def land() -> Callable[..., list[Landed | ForeignError]]:
    """``land(document, name=…, given={}, forced=None)``: what a file gives, row by row."""

    def run(
        document: Any,
        name: str = "rows.json",
        given: dict[str, str] | None = None,
        forced: str | None = None,
        parts: dict[str, bytes] | None = None,
    ) -> list[Landed | ForeignError]:
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        _, rows = read(ForeignFile(name, content, parts or {}), forced)
        found: list[Landed | ForeignError] = []
        for row in rows:
            if isinstance(row, ForeignPoint):
                facts = file_facts(name, load_catalog())
                try:
                    found.append(normalise(row, facts, load_catalog(), given or {}, alone=len(rows) == 1))
                except ForeignError as error:
                    found.append(error)
            else:
                found.append(row)
        return found

    return run


@pytest.fixture
def one(land: Callable[..., list[Landed | ForeignError]]) -> Callable[..., Landed]:
    """``one(document, …)``: the one landed row of a file; a refusal is raised."""

    def run(document: Any, *args: Any, **more: Any) -> Landed:
        (found,) = land(document, *args, **more)
        if isinstance(found, ForeignError):
            raise found
        return found

    return run
