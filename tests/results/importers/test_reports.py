"""guidellm, inference-perf, AIPerf, lm-eval and power logs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isoline.results.importers.foreign import ForeignError

MODEL = {"model": "openai/gpt-oss-120b"}


def block(median: float, total: float | None = None) -> dict[str, Any]:
    """A distribution as guidellm writes it, for successful requests."""
    found: dict[str, Any] = {
        "mean": median,
        "median": median,
        "percentiles": {"p90": median * 2, "p95": median * 3},
    }
    return {"successful": found | ({} if total is None else {"total_sum": total})}


@pytest.fixture
def guidellm() -> Any:
    """``guidellm(totals, v2=False)``: a report of one benchmark."""

    def make(totals: dict[str, int], *, v2: bool = False) -> dict[str, Any]:
        metrics = {
            "time_to_first_token_ms": block(20.0),
            "inter_token_latency_ms": block(5.0),
            "time_per_output_token_ms": block(999.0),
            "request_latency": block(0.7),
            "prompt_token_count": block(256.0, 5120.0),
            "output_token_count": block(128.0, 2560.0),
        }
        strategy = {"type_": "constant", "rate": 2.0} if v2 else {"type_": "synchronous"}
        benchmark: dict[str, Any] = {"metrics": metrics, "duration": 10.0, "start_time": 1786678148.25}
        if v2:
            metrics["request_totals"] = totals  # type: ignore[assignment]
            benchmark["config"] = {"strategy": strategy, "backend": {"model": "openai/gpt-oss-120b"}}
        else:
            benchmark["request_totals"] = totals
            benchmark |= {"args": {"strategy": strategy}, "worker": {"backend_model": "openai/gpt-oss-120b"}}
        return {"benchmarks": [benchmark]}

    return make


def test_guidellm_old_form(one: Any, guidellm: Any) -> None:
    """Its ITL is our TPOT, its TPOT means two things in two versions; incomplete is no failure."""
    found = one(guidellm({"successful": 46, "errored": 2, "incomplete": 1, "total": 49}))
    assert found.values["tpot_p50_ms"] == 5
    assert 999.0 not in found.values.values()
    assert found.values["e2el_p90_ms"] == pytest.approx(1400)
    assert (found.point.concurrency, found.point.asked, found.reasons) == (1, 48, ["failed_requests"])
    given = one(guidellm({"successful": 46, "errored": 0, "incomplete": 1}), given={"gpus": "2"})
    assert given.values["output_tps_per_gpu"] == pytest.approx(2560 / 10 / 2)


def test_guidellm_v2(one: Any, guidellm: Any) -> None:
    """An open loop has a rate and no concurrency."""
    found = one(guidellm({"successful": 20, "errored": 0, "incomplete": 0}, v2=True))
    assert (found.point.concurrency, found.point.rate) == (None, 2.0)


def test_inference_perf_stage(one: Any, land: Any) -> None:
    """Seconds; the model has to be given; a summary over several rates is no point."""
    numbers = {"mean": 0.5, "median": 0.5, "p90": 0.8}
    stage: dict[str, Any] = {
        "load_summary": {"count": 100, "requested_rate": 2.0},
        "successes": {
            "count": 96,
            "latency": {
                "time_to_first_token": numbers,
                "time_per_output_token": {"median": 0.02},
                "normalized_time_per_output_token": {"median": 0.025},
            },
            "throughput": {"total_tokens_per_sec": 50.0, "output_tokens_per_sec": 20.0},
        },
        "failures": {"count": 4},
    }
    (refused,) = land(stage, "a_results_stage_1_lifecycle_metrics.json")
    assert refused.code == "no_model"
    found = one(stage, "vllm_results_stage_1_lifecycle_metrics.json", given=MODEL | {"gpus": "2"})
    assert found.values["ttft_p50_ms"] == pytest.approx(500)
    assert found.values["e2e_interactivity_p50_tps"] == pytest.approx(40)
    assert found.values["total_tps_per_gpu"] == 25
    assert (found.point.rate, found.curve["engine"], found.reasons) == (2.0, "vllm", ["failed_requests"])
    del stage["load_summary"]["requested_rate"]
    with pytest.raises(ForeignError, match="several rates"):
        land(stage, "a_results_summary_lifecycle_metrics.json")


SUMMARY: dict[str, Any] = {
    "schema_version": "1.2",
    "aiperf_version": "0.13.0",
    "input_config": {
        "endpoint": {"model_names": ["openai/gpt-oss-120b"]},
        "loadgen": {"concurrency": 4},
        "input": {"prompt": {"input_tokens": {"mean": 1024}, "output_tokens": {"mean": 1024}}},
    },
    "request_count": {"unit": "requests", "avg": 40.0},
    "benchmark_duration": {"unit": "sec", "avg": 10.0},
    "total_isl": {"unit": "tokens", "avg": 1000.0},
    "total_osl": {"unit": "tokens", "avg": 500.0},
    "time_to_first_token": {"unit": "ms", "avg": 30.0, "p50": 25.0, "p99": 90.0},
    "inter_token_latency": {"unit": "ms", "avg": 10.0, "p50": 10.0},
    "error_summary": [{"error_details": {"type": "x"}, "count": 2}],
}


def aiperf_row(number: int, *, warm: bool = False) -> dict[str, Any]:
    """One line of the per-request export: 11 tokens, the first after 20 ms, the others 10 ms apart."""
    start = 1_700_000_000_000_000_000 + number * 200_000_000
    metadata = {
        "x_request_id": f"r{number}",
        "request_start_ns": start,
        "request_end_ns": start + 120_000_000,
    }
    metadata |= {"benchmark_phase": "warmup" if warm else "profiling"}
    values = {"time_to_first_token": 20.0, "request_latency": 120.0, "usage_completion_tokens": 11}
    values |= {"usage_prompt_tokens": 100, "inter_chunk_latency": [10.0] * 10}
    return {"metadata": metadata, "metrics": {name: {"value": value} for name, value in values.items()}}


def test_aiperf_summary(one: Any) -> None:
    """Its inter-token latency is our TPOT; tokens over the run's length; failed requests are counted."""
    found = one(SUMMARY, "profile_export_aiperf.json", given={"gpus": "1"})
    assert found.values["interactivity_p50_tps"] == 100
    assert found.values["output_tps_per_gpu"] == 50
    assert "ttft_p99_ms" not in found.values  # of 40 requests
    assert (found.curve["scenario"], found.reasons) == ("1k1k", ["failed_requests"])


def test_aiperf_requests_are_derived_as_our_own(one: Any) -> None:
    """With the per-request export the numbers come from it, warm-up left out, by our own reader."""
    lines = [json.dumps(aiperf_row(number, warm=number == 0)) for number in range(41)]
    parts = {"profile_export.jsonl": "\n".join(lines).encode()}
    found = one(SUMMARY, "profile_export_aiperf.json", given={"gpus": "2"}, parts=parts)
    assert (found.point.completed, found.reasons) == (40, [])
    assert found.values["ttft_p50_ms"] == pytest.approx(20)
    assert found.values["interactivity_p90_tps"] == pytest.approx(100)
    window = 39 * 0.2 + 0.12
    assert found.values["output_tps_per_gpu"] == pytest.approx(40 * 11 / window / 2)
    with pytest.raises(ForeignError, match=r"profile_export\.jsonl"):
        one(SUMMARY, "profile_export_aiperf.json", parts={"profile_export.jsonl": b"{}\n"})


def test_lm_eval_results(land: Any) -> None:
    """One row a task, strict and flexible apart, with n and standard error."""
    document = {
        "results": {
            "gsm8k": {
                "alias": "gsm8k",
                "exact_match,strict-match": 0.91,
                "exact_match_stderr,strict-match": 0.008,
                "exact_match,flexible-extract": 0.93,
            },
            "broken": {"alias": "broken"},
        },
        "n-samples": {"gsm8k": {"original": 1319, "effective": 200}},
        "config": {
            "model": "local-chat-completions",
            "model_args": "model=openai/gpt-oss-120b,num_concurrent=8",
        },
        "date": 1786678148.0,
    }
    good, bad = land(document, "results_2026.json")
    assert good.curve["model"] == "gpt-oss-120b"
    assert [(score.task, score.value, score.n) for score in good.point.scores] == [
        ("gsm8k", 0.91, 200),
        ("gsm8k:flexible-extract", 0.93, 200),
    ]
    assert good.point.scores[0].error == 0.008
    assert (bad.code, bad.row) == ("not_a_point", 1)


LOG = """timestamp, index, power.draw [W], utilization.gpu [%], memory.used [MiB]
2026/05/03 12:00:00.000, 0, 600.00 W, 97 %, 120000 MiB
2026/05/03 12:00:00.001, 1,   90.00 W, 0 %, 4 MiB
2026/05/03 12:00:01.000, 0, 700.00 W, 0 %, 120000 MiB
2026/05/03 12:00:01.001, 1, [N/A], 0 %, 4 MiB
cut off
"""


def test_power_log_with_units_and_idle_gpus(one: Any) -> None:
    """Values lose their units, [N/A] is no 0, and a GPU that never worked is not in the mean."""
    found = one(LOG.encode(), "power.csv")
    assert found.values == {"power_w_per_gpu": 650}
    assert sorted({sample.device for sample in found.point.samples}) == ["0", "1"]
    watts = [sample.value for sample in found.point.samples if sample.name == "power_w"]
    assert watts == [600, 90, 700]
    assert "1 GPUs worked, 1 were idle" in found.notes[0]
