"""The load adapter with the real AIPerf against a server that wrote down what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isoline.load.collect import client_facts, collect
from isoline.load.command import LoadSpec
from isoline.load.profile import profile
from isoline.load.supervise import LoadOutcome, run_load
from isoline.results.bundles.records import ReasonNote
from isoline.results.importers.aiperf import AiperfExport
from isoline.results.judging.judge import Evidence, Rules, judge
from isoline.results.judging.reasons import Verdict
from isoline.results.metrics.derive import Derived, derive

pytestmark = pytest.mark.engine

ISL = 48


@dataclass
class Ran:
    """One load and what both sides say about it."""

    outcome: LoadOutcome
    export: AiperfExport
    derived: Derived
    verdict: Verdict
    notes: list[ReasonNote]
    seen: list[dict[str, Any]]  # the measured requests as the server lived them

    def codes(self) -> list[str]:
        return [note.code for note in self.notes]


@pytest.fixture
def load(
    aiperf_bin: Path, hf_home: Path, tokenizer_file: Path, fake_openai: Callable[..., Any], tmp_path: Path
) -> Callable[..., Ran]:
    """Run one load: ``load(concurrency, requests, osl, warmup=0, **server)``."""

    def run(concurrency: int, requests: int, osl: int, warmup: int = 0, **config: Any) -> Ran:
        server = fake_openai(prompt_tokens=ISL, **config)
        client = profile("shared-cpu")
        duration = config["ttft_s"] + config["itl_s"] * (osl - 1)
        spec = LoadSpec(
            url=server.url,
            model="fake",
            tokenizer="local/tiny",
            kind="fixed_length",
            concurrency=concurrency,
            requests=requests,
            seed=concurrency,
            profile=client,
            artifact_dir=tmp_path / "aiperf",
            request_timeout_s=20,
            isl=ISL,
            osl=osl,
            warmup_requests=warmup,
            tick_hz=client.tick_hz(concurrency, concurrency / duration),
            extra_inputs={"ignore_eos": True},
        )
        outcome = run_load(
            spec, aiperf_bin=aiperf_bin, hf_home=hf_home, env={}, log=tmp_path / "log", deadline_s=120
        )
        # The server's text is not of this tokenizer: no second count.
        export, facts = collect(spec, outcome, None)
        assert export is not None, facts.error
        derived = derive(export.requests, gpus=1, concurrency=concurrency, asked=requests)
        verdict, notes = judge(
            Evidence(
                rules=Rules(concurrency, requests, ignore_eos=True, isl=ISL, osl=osl),
                table=export.requests,
                export=facts,
                client=client_facts(spec, outcome),
                attempt_started_ns=outcome.started_ns,
            )
        )
        seen = sorted(server.seen(), key=lambda one: one["number"])
        prompts = [one["prompt"] for one in seen]
        assert len(prompts) == len(set(prompts)) == requests + warmup, "a prompt was sent twice"
        return Ran(outcome, export, derived, verdict, notes, seen[warmup:])

    return run


def _truth(seen: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Milliseconds as the server lived them, by its own monotonic clock."""
    first = np.array([one["writes"][0][0] for one in seen])
    last = np.array([one["writes"][-1][0] for one in seen])
    received = np.array([one["received_mono_ns"] for one in seen])
    rest = np.array([sum(write[2] for write in one["writes"]) - one["writes"][0][2] for one in seen])
    return {
        "ttft": (first - received) / 1e6,
        "e2el": (last - received) / 1e6,
        "tpot": (last - first) / rest / 1e6,
    }


def _differences(ran: Ran) -> list[str]:
    """Every number that is farther from the truth than the issue allows."""
    wrong = []

    def check(name: str, found: float | None, true: float, share: float, slack: float) -> None:
        if found is None or abs(found - true) > max(share * true, slack):
            wrong.append(f"{name}: {found} measured, {true:.2f} true")

    for family, values in _truth(ran.seen).items():
        check(f"{family} median", ran.derived.value(f"{family}_p50_ms"), float(np.median(values)), 0.02, 2)
        check(f"{family} mean", ran.derived.value(f"{family}_mean_ms"), float(values.mean()), 0.02, 2)
        p90 = float(np.percentile(values, 90))
        check(f"{family} p90", ran.derived.value(f"{family}_p90_ms"), p90, 0.05, 5)
    tokens = sum(write[2] for one in ran.seen for write in one["writes"])
    start = min(one["received_mono_ns"] for one in ran.seen)
    end = max(one["writes"][-1][0] for one in ran.seen)
    check("tokens/s", ran.derived.value("output_tps_per_gpu"), tokens / (end - start) * 1e9, 0.02, 0)
    return wrong


def test_measured_is_what_the_server_did(load: Callable[..., Ran]) -> None:
    """At 1, 8 and 32 in flight the numbers are the server's own; a point that is off says so, alone."""
    outside = 0
    for concurrency, requests in ((1, 10), (8, 40), (32, 96)):
        ran = load(concurrency, requests, 32, warmup=2, ttft_s=0.4, itl_s=0.02)
        assert ran.outcome.exit_code == 0 and ran.derived.counts.completed == requests
        if wrong := _differences(ran):
            outside += 1
            assert "client_saturated" in ran.codes(), "; ".join(wrong)
        else:
            assert set(ran.codes()) <= {"client_saturated"}, ran.notes
    assert outside <= 1


FAULTS = {
    "2": ("http_500", "error", "http_500"),
    "3": ("empty_stream", "error", "empty_stream"),
    "4": ("no_body", "error", "empty_stream"),
    "5": ("early_end", "error", "early_end"),
    "6": ("cut", "error", "early_end"),
    "7": ("error_in_stream", "error", "stream_error"),
    "8": ("http_200_error", "error", "stream_error"),
    "9": ("wrong_usage", "ok", None),
    "10": ("no_usage", "ok", None),
    "11": ("one_token", "ok", None),
    "12": ("reasoning", "ok", None),
}


def test_each_fault_gets_its_reason_and_no_number(load: Callable[..., Ran]) -> None:
    """One run with every fault once: each has the right status, type and tokens, and the point is invalid."""
    ran = load(
        4, 18, 8, warmup=2, ttft_s=0.1, itl_s=0.01, faults={key: fault[0] for key, fault in FAULTS.items()}
    )
    # The server's order of arrival and the client's order of sending agree; a tick lies between two.
    rows = ran.export.requests.to_pylist()
    for number, (fault, status, error_type) in FAULTS.items():
        row = rows[int(number)]
        assert (row["status"], row["error_type"]) == (status, error_type), fault
    by_fault = {fault: rows[int(number)] for number, (fault, _, _) in FAULTS.items()}
    assert by_fault["wrong_usage"]["output_tokens"] == 16
    assert by_fault["wrong_usage"]["chunk_tokens"] is None
    assert by_fault["no_usage"]["output_tokens"] is None
    assert by_fault["one_token"]["output_tokens"] == 1
    thinking = by_fault["reasoning"]
    assert thinking["first_output_token_ns"] - thinking["first_token_ns"] == pytest.approx(40e6, abs=8e6)
    assert ran.outcome.exit_code == 0, "AIPerf itself sees nothing wrong"
    assert ran.derived.counts.model_dump() == {"asked": 18, "completed": 11, "failed": 7}
    assert ran.verdict == Verdict.INVALID
    assert ran.codes() == ["empty_stream", "too_many_failed"]
    counts = Counter(row["status"] for row in rows if row["phase"] == "measured")
    assert counts == {"ok": 11, "error": 7}


def test_one_token_outputs(load: Callable[..., Ran]) -> None:
    """One-token answers are measured, without a time per output token."""
    ran = load(2, 12, 1, ttft_s=0.2, itl_s=0.01)
    assert ran.derived.value("tpot_p50_ms") is None
    assert ran.derived.value("interactivity_p50_tps") is None
    assert ran.derived.value("output_tokens_mean") == 1
    assert ran.derived.value("ttft_p50_ms") == pytest.approx(200, abs=20)
    assert ran.derived.value("e2el_p50_ms") == ran.derived.value("ttft_p50_ms")


def test_chunks_of_several_tokens(load: Callable[..., Ran]) -> None:
    """With running usage, chunks of four tokens give the time of each token, not of each chunk."""
    ran = load(
        2, 12, 22, ttft_s=0.2, itl_s=0.01, tokens_per_chunk=4, first_chunk_tokens=2, continuous_usage=True
    )
    row = ran.export.requests.to_pylist()[0]
    assert row["chunk_tokens"] == [2, 4, 4, 4, 4, 4] and row["output_tokens"] == 22
    # A chunk is written when its first token is due: gaps of 20, 40, 40, 40, 40 ms for 20 tokens.
    assert ran.derived.value("tpot_p50_ms") == pytest.approx(9, abs=0.5)
    assert ran.derived.value("itl_p50_ms") == pytest.approx(10, abs=0.5)
    assert ran.derived.value("icl_p50_ms") == pytest.approx(40, abs=2)


def test_wrong_lengths_are_found(load: Callable[..., Ran]) -> None:
    """A server whose usage is twice the truth for each answer fails on its output length."""
    faults = {str(number): "wrong_usage" for number in range(6)}
    ran = load(2, 6, 8, ttft_s=0.1, itl_s=0.01, faults=faults)
    assert ran.verdict == Verdict.INVALID and "osl_mismatch" in ran.codes()
