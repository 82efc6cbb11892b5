"""The command line of AIPerf: everything is there, nothing twice, nothing left to a bad default."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from isoline.errors import InputError
from isoline.load.command import LoadSpec, build_command, build_flags
from isoline.load.profile import PROFILES, profile

FIXED = LoadSpec(
    url="http://127.0.0.1:1",
    model="m",
    tokenizer="local/m",
    kind="fixed_length",
    concurrency=4,
    requests=20,
    seed=7,
    profile=profile("shared-cpu"),
    artifact_dir=Path("/a"),
    request_timeout_s=60,
    isl=128,
    osl=64,
    warmup_requests=2,
    tick_hz=50,
    extra_inputs={"ignore_eos": True, "cache_prompt": False},
)
TRACE = replace(
    FIXED, kind="trace", isl=None, osl=None, input_file=Path("/t.jsonl"), conversations=6, warmup_requests=0
)


def test_fixed_length_asks_for_exact_server_side_lengths() -> None:
    """The template is counted in, lengths do not vary, and each request has a prompt of its own."""
    flags = build_flags(FIXED)
    assert "--apply-chat-template" in flags
    assert flags["--isl"] == "128" and flags["--isl-stddev"] == "0"
    assert flags["--osl"] == "64" and flags["--osl-stddev"] == "0"
    assert flags["--request-count"] == "20"
    assert flags["--num-dataset-entries"] == "22"
    assert json.loads(flags["--extra-inputs"] or "") == {"ignore_eos": True, "cache_prompt": False}


def test_trace_replays_each_conversation_once_in_a_closed_loop() -> None:
    """Recorded times do not turn it into an open loop, and the file is not cycled."""
    flags = build_flags(TRACE)
    assert flags["--input-file"] == "/t.jsonl" and flags["--custom-dataset-type"] == "multi_turn"
    assert flags["--num-conversations"] == "6" and "--no-fixed-schedule" in flags
    assert "--isl" not in flags and "--request-count" not in flags


@pytest.mark.parametrize("spec", [FIXED, TRACE])
def test_dangerous_defaults_are_always_overridden(spec: LoadSpec) -> None:
    """A time-out (AIPerf's is six hours), server-side tokens, the raw export and a seed are always set."""
    flags = build_flags(spec)
    assert flags["--request-timeout-seconds"] == "60"
    assert flags["--export-level"] == "raw" and flags["--random-seed"] == "7"
    assert "--use-server-token-count" in flags and "--streaming" in flags
    argv = build_command(spec, "/bin/aiperf")
    assert argv[:2] == ["/bin/aiperf", "profile"]
    names = [word for word in argv if word.startswith("--")]
    assert len(names) == len(set(names))


def test_the_profile_decides_loop_and_connections() -> None:
    """shared-cpu polls at a tick with new connections; gpu-host takes the native closed loop and a pool."""
    flags = build_flags(FIXED)
    assert flags["--request-rate"] == "50" and flags["--arrival-pattern"] == "constant"
    assert flags["--connection-reuse-strategy"] == "never"
    native = build_flags(replace(FIXED, profile=profile("gpu-host"), tick_hz=None))
    assert "--request-rate" not in native and native["--connection-reuse-strategy"] == "pooled"


@pytest.mark.parametrize(
    "change",
    [
        {"isl": None},
        {"osl": 0},
        {"concurrency": 0},
        {"requests": 0},
        {"tick_hz": None},
        {"request_timeout_s": 0},
        {"kind": "trace"},
        {"profile": PROFILES["gpu-host"]},
    ],
)
def test_a_spec_that_does_not_fit_is_refused(change: dict[str, object]) -> None:
    """Missing and contradicting fields are errors before anything starts."""
    with pytest.raises(InputError):
        build_flags(replace(FIXED, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("concurrency", "expected_per_s", "tick"), [(1, None, 50), (8, 2.0, 50), (8, 30.0, 150), (512, 1.0, 256)]
)
def test_tick_follows_the_rule(concurrency: int, expected_per_s: float | None, tick: float) -> None:
    """At least 50, five times the expected completions, and half the concurrency."""
    assert profile("shared-cpu").tick_hz(concurrency, expected_per_s) == tick
    assert profile("gpu-host").tick_hz(concurrency, expected_per_s) is None


def test_identity_tells_profiles_apart_and_not_tick_rates() -> None:
    """The rule is in the identity, the rate of one point is not: a faster re-run is the same point."""
    first, second = (PROFILES[name].identity() for name in ("shared-cpu", "gpu-host"))
    assert first != second
    assert first["tick"] == {"min_hz": 50.0, "completions_factor": 5.0}


def test_unknown_profile_names_the_known_ones() -> None:
    """One line with what there is."""
    with pytest.raises(InputError, match="gpu-host, shared-cpu"):
        profile("laptop")
