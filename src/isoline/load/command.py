"""From what a point asks for to AIPerf's command line. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from isoline.errors import InputError
from isoline.load.profile import ClientProfile

ScenarioKind = Literal["fixed_length", "trace"]


@dataclass(frozen=True)
class LoadSpec:
    """The load of one point.

    :param url: base URL of the server, without path.
    :param model: model name that the server knows.
    :param tokenizer: name of a hub-cache entry (AIPerf runs offline).
    :param kind: ``fixed_length`` (synthetic prompts of ``isl`` and ``osl`` tokens as the server
        counts them) or ``trace`` (a multi-turn file, each conversation once).
    :param concurrency: requests in flight, or lanes.
    :param requests: measured requests; for traces the turns of all conversations (for progress).
    :param conversations: conversations of the trace that are replayed.
    :param warmup_requests: requests of the client's own warm-up, with prompts of their own.
    :param seed: one for each point and repetition: the same prompts again would hit a cache.
    :param extra_inputs: top-level fields of each request body (``ignore_eos``, ``cache_prompt``,
        ``temperature``, ...).
    :param request_timeout_s: AIPerf's default is six hours; there is always one here.
    :param tick_hz: from :meth:`ClientProfile.tick_hz`; None = native closed loop.
    :param artifact_dir: where AIPerf writes; must be new or empty.
    """

    url: str
    model: str
    tokenizer: str
    kind: ScenarioKind
    concurrency: int
    requests: int
    seed: int
    profile: ClientProfile
    artifact_dir: Path
    request_timeout_s: float
    isl: int | None = None
    osl: int | None = None
    input_file: Path | None = None
    conversations: int | None = None
    warmup_requests: int = 0
    tick_hz: float | None = None
    extra_inputs: Mapping[str, Any] = field(default_factory=dict)
    endpoint: Literal["chat", "completions"] = "chat"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _check(spec: LoadSpec) -> None:
    if spec.concurrency < 1 or spec.requests < 1:
        raise InputError(
            f"concurrency ({spec.concurrency}) and requests ({spec.requests}) must be at least 1"
        )
    if spec.kind == "fixed_length" and not (spec.isl and spec.osl):
        raise InputError("a fixed-length load needs isl and osl")
    if spec.kind == "trace" and not (spec.input_file and spec.conversations):
        raise InputError("a trace load needs its file and the number of conversations")
    if spec.profile.is_ticked != (spec.tick_hz is not None):
        raise InputError(f"client profile {spec.profile.name!r} and tick rate {spec.tick_hz} do not fit")
    if spec.request_timeout_s <= 0:
        raise InputError("a request time-out must be above 0")


def build_flags(spec: LoadSpec) -> dict[str, str | None]:
    """The flags of ``aiperf profile`` and their values (None = a switch); no flag can be there twice.

    :raises InputError: when fields of the spec are missing or do not fit.
    """
    _check(spec)
    flags: dict[str, str | None] = {
        "--model": spec.model,
        "--url": spec.url,
        "--endpoint-type": spec.endpoint,
        "--streaming": None,
        "--tokenizer": spec.tokenizer,
        "--use-server-token-count": None,
        "--concurrency": str(spec.concurrency),
        "--random-seed": str(spec.seed),
        "--connection-reuse-strategy": spec.profile.connection_reuse,
        "--request-timeout-seconds": _number(spec.request_timeout_s),
        "--export-level": "raw",
        "--output-artifact-dir": str(spec.artifact_dir),
        "--ui": "none",
        "--log-level": "warning",
        "--no-gpu-telemetry": None,
        "--no-server-metrics": None,
        "--dataset-sampling-strategy": "sequential",
    }
    if spec.tick_hz is not None:
        # Keeps the closed loop: the rate is only how often AIPerf looks for a free lane.
        flags["--request-rate"] = _number(spec.tick_hz)
        flags["--arrival-pattern"] = "constant"
    if spec.extra_inputs:
        flags["--extra-inputs"] = json.dumps(dict(spec.extra_inputs), sort_keys=True)
    if spec.warmup_requests:
        flags["--warmup-request-count"] = str(spec.warmup_requests)
    if spec.kind == "fixed_length":
        flags |= {
            "--isl": str(spec.isl),
            "--isl-stddev": "0",
            "--osl": str(spec.osl),
            "--osl-stddev": "0",
            "--request-count": str(spec.requests),
            # A prompt for each request, warm-up included: none is sent twice.
            "--num-dataset-entries": str(spec.requests + spec.warmup_requests),
        }
        if spec.endpoint == "chat":
            # The server sees exactly isl tokens; without it the template comes on top.
            flags["--apply-chat-template"] = None
    else:
        flags |= {
            "--input-file": str(spec.input_file),
            "--custom-dataset-type": "multi_turn",
            "--num-conversations": str(spec.conversations),
            "--no-fixed-schedule": None,
        }
    return flags


def build_command(spec: LoadSpec, aiperf_bin: str | Path = "aiperf") -> list[str]:
    """The argument vector of AIPerf for one point."""
    argv = [str(aiperf_bin), "profile"]
    for flag, value in build_flags(spec).items():
        argv.append(flag)
        if value is not None:
            argv.append(value)
    return argv
