"""``bench serve`` files: units with and without a suffix, keys with a colon, what only the name says."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from isoline.results.importers.foreign import ForeignError

NAME = "gpt-oss-120b_fp4_vllm_tp8_isl1024_osl128_conc16_H100.json"


def test_milliseconds_stay(one: Any, bench_row: Any) -> None:
    """Times with ``_ms`` are milliseconds; ITL of the client are gaps between chunks."""
    values = one(bench_row()).values
    assert values["ttft_p50_ms"] == 250
    assert values["interactivity_p50_tps"] == pytest.approx(50)
    assert values["icl_p50_ms"] == 40


def test_times_without_a_suffix_are_seconds(one: Any, bench_row: Any) -> None:
    """A fork writes the same statistics in seconds."""
    row = {key.removesuffix("_ms"): value for key, value in bench_row().items()}
    row |= {"median_ttft": 0.25, "p99_ttft": 0.9, "median_tpot": 0.02, "p99_tpot": 0.03, "median_itl": 0.04}
    assert one(row).values == pytest.approx(one(bench_row()).values)


def test_of_two_units_none_is_taken(land: Any, bench_row: Any) -> None:
    """A row with both spellings, or with a median longer than its run, is refused."""
    (found,) = land(bench_row(median_ttft=0.25))
    assert (found.code, found.row) == ("unreadable", 0)
    seconds = {key.removesuffix("_ms"): value for key, value in bench_row().items()}
    (found,) = land(seconds)  # 250 "seconds" in a run of 100 s
    assert "not seconds" in str(found)


def test_a_key_with_a_colon_behind(one: Any, bench_row: Any) -> None:
    """``request_goodput:`` is goodput."""
    assert one(bench_row()).values["goodput_rps"] == 1.5


def test_nothing_per_gpu_without_a_gpu_count(one: Any, bench_row: Any) -> None:
    """The name gives a label of the topology and never a GPU count; a person may give one."""
    found = one(bench_row(), NAME)
    assert (found.topology, found.gpus) == ("tp8", None)
    assert not [name for name in found.values if name.endswith("_per_gpu")]
    given = one(bench_row(), NAME, given={"gpus": "8"})
    assert given.values["output_tps_per_gpu"] == pytest.approx(20480 / 100 / 8)
    assert given.values["total_tps_per_gpu"] == pytest.approx((20480 + 204800) / 100 / 8)


def test_what_only_the_name_says_is_kept_and_marked(one: Any, bench_row: Any) -> None:
    """Hardware, engine and lengths from the file's name; the model too, where the content has none."""
    found = one(bench_row(), NAME)
    assert (found.curve["sku"], found.curve["engine"], found.curve["scenario"]) == (
        "h100",
        "vllm",
        "1024-128",
    )
    assert found.curve["weight_precision"] == "mxfp4"
    assert found.marks == ["from_file_name"]
    assert (
        one(bench_row(model_id=None, completed=200) | {"model_id": ""}, NAME).curve["model"] == "gpt-oss-120b"
    )


def test_what_nobody_says_is_null_and_marked(one: Any, bench_row: Any) -> None:
    """``backend`` is the client's dialect and no engine."""
    found = one(bench_row())
    assert (found.curve["sku"], found.curve["engine"], found.topology) == (None, None, "unknown")
    assert found.marks == ["engine_unknown", "sku_unknown"]
    assert found.curve["scenario"] == "about-1024-100"  # the means are 1,024 and 102.4


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("kimik2.5_fp4_vllm_tp8_conc16.json", "model"),
        ("gpt-oss-120b_vllm_tp8_conc32.json", "concurrency"),
    ],
)
def test_a_name_against_its_content_is_refused(land: Any, bench_row: Any, name: str, what: str) -> None:
    """Nobody can tell which of the two is right."""
    (found,) = land(bench_row(), name)
    assert (found.code, what in str(found)) == ("name_against_content", True)


def test_a_sku_or_engine_against_the_name_is_refused(land: Any, agg: Any) -> None:
    """The same for rows that name their hardware and engine; a list's name speaks of no row."""
    for name in ("agg_gptoss_tp8_h200.json", "agg_gptoss_tp8_sglang.json"):
        (found,) = land(agg(), name)
        assert found.code == "name_against_content"
        assert not [item for item in land([agg(), agg(conc=8)], name) if isinstance(item, ForeignError)]


def test_a_rerun_is_a_repetition_and_another_flag_is_not(one: Any, bench_row: Any) -> None:
    """Words of the run leave the configuration as it is, any other word makes another one."""
    first = one(bench_row(), "mtp-a_gpt-oss-120b_conc16.json").point.identity
    again = one(bench_row(), "mtp-a_gpt-oss-120b_conc16_rerun2.json").point.identity
    other = one(bench_row(), "mtp-a_gpt-oss-120b_conc16_gmu090.json").point.identity
    assert first == again
    assert first != other


def test_few_requests_have_no_far_percentiles(one: Any, bench_row: Any) -> None:
    """p99 of 64 requests says nothing; where the count is not known it stays."""
    assert "ttft_p99_ms" not in one(bench_row(num_prompts=64, completed=64)).values
    assert "ttft_p99_ms" in one(bench_row()).values


def test_nothing_completed_is_invalid(one: Any, bench_row: Any) -> None:
    """0 of 640: invalid, whatever the other numbers are."""
    row = bench_row(num_prompts=640, completed=0, total_input_tokens=0, total_output_tokens=0)
    assert one(row).reasons == ["zero_output_tokens"]


def test_zero_is_no_time(one: Any, bench_row: Any) -> None:
    """A latency of 0 was not measured: it is null, never 0."""
    assert "ttft_p50_ms" not in one(bench_row(median_ttft_ms=0.0)).values


def test_together_rows_count_the_gpus_that_worked(one: Any) -> None:
    """System throughput over tp GPUs; power of a log with idle GPUs in it is left out."""
    row: dict[str, Any] = {
        "hw": "b200",
        "model": "openai/gpt-oss-120b",
        "framework": "vllm",
        "precision": "fp4",
    }
    row |= {"isl": 1024, "osl": 1024, "tp": 4, "ep": 0, "conc": 8, "ts": "2026-06-12T00:32:29+00:00"}
    row["metrics"] = {
        "successful_requests": 80,
        "total_token_throughput": 800.0,
        "output_token_throughput": 400.0,
    }
    row["metrics"] |= {"median_tpot_ms": 10.0}
    row["gpu"] = {"n_gpus": 8, "mean_power_per_gpu_w": 300.0}
    found = one(row)
    assert found.values["total_tps_per_gpu"] == 200
    assert "power_w_per_gpu" not in found.values
    alike = copy.deepcopy(row)
    alike["gpu"]["n_gpus"] = 4
    assert one(alike).values["power_w_per_gpu"] == 300


def test_given_gpus_against_the_name_are_refused(land: Any, bench_row: Any) -> None:
    """Whoever gives 4 GPUs for files of tp 8 is told, and gets no number of it; 16 may be two workers."""
    (found,) = land(bench_row(), NAME, given={"gpus": "4"})
    assert "4 GPUs were given, its name says tp8" in str(found)
    assert land(bench_row(), NAME, given={"gpus": "16"})[0].gpus == 16


def test_points_of_one_load_share_a_scenario(one: Any, bench_row: Any) -> None:
    """Without nominal lengths the means name the load, to one digit: they wander from point to point."""
    names = set()
    for total in (62.2, 62.7, 57.0):
        row = bench_row(total_input_tokens=204 * 200, total_output_tokens=int(total * 200))
        names.add(one(row, "x.json").curve["scenario"])
    assert names == {"about-200-60"}


def test_of_unknown_engine_or_precision_nothing_is_joined(one: Any, bench_row: Any) -> None:
    """Where only the names tell configurations apart, files of other names are on other curves."""
    plain, other = (one(bench_row(), f"{name}_gpt-oss-120b_conc16.json").curve for name in ("a", "quantised"))
    assert plain["engine"] is None
    assert plain != other
    known = [one(bench_row(), f"{name}_gpt-oss-120b_vllm_conc16.json").curve for name in ("a", "b")]
    assert known[0] == known[1]
