"""InferenceX's rows: units, roles, GPU counts, booleans, percentiles of either direction, agentic forms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isoline.results.importers.foreign import ForeignError


def test_seconds_become_milliseconds(one: Any, agg: Any) -> None:
    """Aggregated rows are in seconds; what they call ITL are gaps between chunks."""
    found = one(agg())
    assert found.values["ttft_p50_ms"] == pytest.approx(500)
    assert found.values["e2el_p50_ms"] == pytest.approx(20_000)
    assert found.values["icl_mean_ms"] == pytest.approx(50)
    assert "itl_mean_ms" not in found.values


def test_the_deviation_of_interactivity_is_dropped(one: Any, agg: Any) -> None:
    """std_intvty is 1 / std of TPOT: no number of it lands anywhere."""
    values = one(agg()).values
    assert 1000.0 not in [value for name, value in values.items() if "interactivity" in name]
    assert {name for name in values if name.startswith("interactivity")} == {
        "interactivity_p50_tps",
        "interactivity_p90_tps",
        "interactivity_p99_tps",
    }


@pytest.mark.parametrize("tpot", [True, False])
def test_slow_tail_of_interactivity_is_ours(one: Any, agg: Any, tpot: bool) -> None:
    """Percentiles that fall are of the slow tail, with TPOT in the row or without."""
    gone = {} if tpot else {"median_tpot": None, "p90_tpot": None, "p99_tpot": None}
    assert one(agg(**gone)).values["interactivity_p90_tps"] == pytest.approx(40)


@pytest.mark.parametrize("tpot", [True, False])
def test_fast_tail_of_interactivity_never_lands(one: Any, agg: Any, tpot: bool) -> None:
    """Percentiles that rise are of the fast tail: the median counts, others come from TPOT or not at all."""
    gone = {} if tpot else {"median_tpot": None, "p90_tpot": None, "p99_tpot": None}
    found = one(agg(p90_intvty=62.0, p99_intvty=80.0, **gone))
    assert found.values["interactivity_p50_tps"] == pytest.approx(50)
    assert found.values.get("interactivity_p90_tps") == (pytest.approx(40) if tpot else None)
    assert any("fast tail" in note for note in found.notes)


@pytest.mark.parametrize("said", ["true", "True", True])
def test_booleans_as_texts(one: Any, agg: Any, said: Any) -> None:
    """ "true" is true and "false" is false, however they are written."""
    assert one(agg(dp_attention=said)).topology == "tp8-dpa8"
    assert one(agg(dp_attention="False")).topology == "tp8"
    assert one(agg(disagg="false", tp=4)).gpus == 4


def test_ep_does_not_multiply(one: Any, agg: Any) -> None:
    """tp 8 with ep 8 is eight GPUs; pp and pcp are further devices."""
    assert one(agg(ep=8)).gpus == 8
    assert one(agg(ep=8, pp=2, pcp_size=2)).gpus == 32


def test_role_numbers_become_numbers_of_all_gpus(one: Any, split: Any) -> None:
    """Output per decode GPU and input per prefill GPU: over all GPUs they add up to the total."""
    found = one(split())
    assert (found.gpus, found.topology) == (48, "p4xtp4-ep4-dpa4_dtp32-ep32-dpa32")
    assert found.values["output_tps_per_gpu"] == pytest.approx(750 * 32 / 48)
    assert found.values["input_tps_per_gpu"] == pytest.approx(1500 * 16 / 48)
    assert found.curve["deployment_class"] == "disaggregated"


def test_role_numbers_without_sizes_stay_null(one: Any, split: Any) -> None:
    """One pool written into both roles, without workers: no GPU count, no input or output per GPU."""
    found = one(split(prefill_num_workers=0, decode_num_workers=0, num_prefill_gpu=36, num_decode_gpu=36))
    assert found.gpus is None
    assert not {"output_tps_per_gpu", "input_tps_per_gpu"} & set(found.values)
    assert found.marks == ["counts_unknown", "role_sizes_unknown"]


def test_role_numbers_that_do_not_add_up_stay_null(one: Any, split: Any) -> None:
    """Sizes that are known but do not explain the numbers convert nothing."""
    found = one(split(output_tput_per_gpu=990.0))
    assert found.gpus == 48
    assert "output_tps_per_gpu" not in found.values


def test_a_mirrored_pool_counts_once(one: Any, agg: Any) -> None:
    """The API writes an aggregated pool into both roles, with tp × ep as its size."""
    row = agg(hw=None, tp=None, ep=None, dp_attention=None)
    metrics = {name: row.pop(name) for name in list(row) if name.endswith(("_per_gpu", "_ttft", "_tpot"))}
    roles = {f"{role}_{name}": 8 for role in ("prefill", "decode") for name in ("tp", "ep")}
    sizes = {"num_prefill_gpu": 64, "num_decode_gpu": 64, "prefill_num_workers": 1, "decode_num_workers": 1}
    api = {**row, **roles, **sizes, "hardware": "b200", "metrics": metrics, "id": "90071992547409931"}
    found = one([api | {"run_url": "https://example.invalid/runs/12", "date": "2026-05-03"}])
    assert (found.gpus, found.topology) == (8, "tp8-ep8")
    assert any("tp × ep" in note for note in found.notes)
    assert found.values["output_tps_per_gpu"] == pytest.approx(400)
    assert (found.point.run, str(found.point.started_at)) == ("12", "2026-05-03 00:00:00")


def test_rows_of_other_role_sizes_are_other_points(one: Any, split: Any) -> None:
    """Two rows that differ only in the decode role have one curve, but never one series."""
    first = one(split())
    second = one(split(decode_tp=48, num_decode_gpu=48, tput_per_gpu=800.0))
    assert first.curve == second.curve
    assert first.topology != second.topology


def test_power_lands_only_where_it_is_of_the_window(one: Any, agg: Any) -> None:
    """Power of the whole job, or that its source calls invalid, is left out; schema 2 counts."""
    power = {"avg_power_w": 850.0, "joules_per_output_token": 2.0}
    assert "power_w_per_gpu" not in one(agg(**power)).values
    assert "power_w_per_gpu" not in one(agg(**power, power_metric_schema_version=2, power_valid=0)).values
    valid = one(agg(**power, power_metric_schema_version=2, power_valid=1)).values
    assert (valid["power_w_per_gpu"], valid["j_per_output_token"]) == (850, 2)


# --- agentic ----------------------------------------------------------------------------------


@pytest.fixture
def agentic(agg: Any) -> Any:
    """``agentic(**changes)``: the first flat form, with ``users`` and ``ttlt``."""

    def make(**changes: Any) -> Any:
        row = {"conc": None, "users": 16, "isl": None, "osl": None, "scenario_type": "agentic-coding"}
        row |= {"offload_mode": "on", "num_requests_total": 200, "num_requests_successful": 200}
        row |= {
            "median_tpot": None,
            "p90_tpot": None,
            "p99_tpot": None,
            "mean_itl": None,
            "median_itl": 0.025,
        }
        row |= {"median_e2el": None, "median_ttlt": 30.0, "median_intvty": None, "p90_intvty": None}
        return agg(**(row | {"p99_intvty": None} | changes))

    return make


def test_users_are_lanes(one: Any, agentic: Any) -> None:
    """``users`` stands for the concurrency; ``ttlt`` is the whole latency, ``itl`` of a request is TPOT."""
    found = one(agentic())
    assert found.point.concurrency == 16
    assert found.values["e2el_p50_ms"] == pytest.approx(30_000)
    assert found.values["interactivity_p50_tps"] == pytest.approx(40)
    assert (found.point.scenario_kind, found.curve["scenario"]) == ("trace", "agentic-coding")


@pytest.mark.parametrize(
    ("said", "offload"),
    [
        ({"offload_mode": "off"}, "none"),
        ({"offload_mode": None, "offloading": "none"}, "none"),
        ({"offload_mode": None, "kv_offloading": "dram", "kv_offload_backend": "lmcache"}, "dram-lmcache"),
        (
            {"offload_mode": None, "kv_offloading": "dram", "kv_offload_backend": {"name": "LMCache"}},
            "dram-lmcache",
        ),
    ],
)
def test_offload_is_said_in_three_ways(one: Any, agentic: Any, said: Any, offload: str) -> None:
    """Off and none are one thing; the backend is part of what is on."""
    assert one(agentic(**said)).curve["kv_offload"] == offload


@pytest.mark.parametrize(
    ("good", "reasons"),
    [(200, []), (190, ["failed_requests"]), (189, ["too_many_failed"]), (0, ["zero_output_tokens"])],
)
def test_up_to_five_percent_failed_is_partial(one: Any, agentic: Any, good: int, reasons: list[str]) -> None:
    """Of 200 requests 10 may fail; 11 are too many; none that completed is no measurement."""
    assert one(agentic(num_requests_successful=good)).reasons == reasons


def test_nested_form(one: Any, agentic: Any) -> None:
    """Latencies in seconds, per GPU of all GPUs, warm-up drops that are no failures."""
    latency = {name: {"p50": 0.02, "p90": 0.04} for name in ("ttft", "tpot", "itl")}
    latency["e2e_norm_intvty"] = {"p50": 30.0, "p90": 20.0}
    metrics = {
        "latency": latency,
        "throughput": {
            "per_gpu": {"total_tput_tps": 100.0, "output_tput_tps": 1.0},
            "duration_seconds": 60.0,
        },
        "tokens": {"input": {"mean": 5000.0}, "output_actual": {"mean": 50.0}},
    }
    account = {"records_dropped_total": 30, "records_warmup_dropped": 28, "records_error_dropped": 3}
    found = one(
        agentic(
            request_metrics=metrics,
            request_accounting=account,
            num_requests_total=230,
            server_metrics={"cache": {"overall_cache_hit_rate": 0.9, "gpu_cache_hit_rate": 0.5}},
        )
    )
    assert found.values["ttft_p50_ms"] == pytest.approx(20)
    assert found.values["e2e_interactivity_p90_tps"] == pytest.approx(20)
    assert found.values["output_tps_per_gpu"] == 1
    assert found.values["cache_hit_share"] == pytest.approx(0.9)
    assert (found.point.asked, found.point.failed, found.reasons) == (202, 2, ["failed_requests"])


# --- dump and evaluations ---------------------------------------------------------------------


def test_dump_rows_get_their_config(land: Any) -> None:
    """Tables of the dump are joined by ids, which are numbers in one and texts in the other."""
    config = {"id": 7, "hardware": "b200", "framework": "vllm", "model": "gptoss120b", "precision": "fp4"}
    config |= {"disagg": False, "is_multinode": False, "spec_method": "none"}
    for role in ("prefill", "decode"):
        config |= {f"{role}_tp": 4, f"{role}_ep": 1, f"{role}_dp_attention": False, f"{role}_num_workers": 1}
    result = {
        "id": "1",
        "workflow_run_id": "3",
        "config_id": "7",
        "benchmark_type": "single_turn",
        "error": None,
    }
    result |= {"isl": 1024, "osl": 1024, "conc": 32, "metrics": {"tput_per_gpu": 10.0, "median_tpot": 0.01}}
    rows = [result, result | {"config_id": "8"}, result | {"error": "timeout"}]
    runs = [{"id": 3, "github_run_id": "25", "run_started_at": "2026-05-03T10:00:00Z"}]
    parts = {"configs.json": json.dumps([config]).encode(), "workflow_runs.json": json.dumps(runs).encode()}
    good, unknown, failed = land(rows, "benchmark_results.json", parts=parts)
    assert (good.gpus, good.point.run, good.curve["model"]) == (4, "25", "gpt-oss-120b")
    assert str(good.point.started_at) == "2026-05-03 10:00:00"
    assert (unknown.code, unknown.row) == ("not_a_point", 1)
    assert (failed.code, failed.row) == ("not_a_point", 2)


def test_dump_without_its_configs_is_refused(land: Any) -> None:
    """A table of results alone does not say what its rows are of."""
    with pytest.raises(ForeignError, match=r"without configs\.json"):
        land([{"config_id": 1, "metrics": {}}], "benchmark_results.json")


def test_evaluation_rows_become_scores(one: Any, agg: Any) -> None:
    """Strict and flexible scores are kept apart, and a score of 0 is a score."""
    row = agg(task="gsm8k", em_strict=0.0, em_strict_se=0.0, em_flexible=0.93, n_eff=1319)
    found = one([row])
    assert [(score.task, score.value, score.n) for score in found.point.scores] == [
        ("gsm8k", 0.0, 1319),
        ("gsm8k:flexible", 0.93, 1319),
    ]
    assert found.reasons == []
