"""The load of one point as the load generator gets it. Pure: the same for a run and for a dry run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.datasets.schema import Dataset
from isoline.load.command import LoadSpec
from isoline.load.profile import profile
from isoline.results.bundles.records import PlanPoint
from isoline.sweeps.planning.schema import Scenario

CLIENT_WARMUP = 1
"""Requests that AIPerf sends before it measures: its own first request is slow, the server's is not."""


def load_spec(
    point: PlanPoint,
    scenario: Scenario,
    dataset: Dataset,
    *,
    engine: str,
    client_profile: str,
    url: str,
    model: str,
    tokenizer: str,
    artifacts: Path,
    input_file: Path | None,
    tick_factor: float = 1.0,
) -> LoadSpec:
    """What AIPerf is started with for one point.

    :param url: base URL of the server; ``model`` is the name that it knows.
    :param input_file: the dataset's file; read for a trace only.
    :param tick_factor: above 1 where an earlier try came too near to the client's tick rate.
    """
    rules = profile(client_profile)
    extra: dict[str, Any] = {"ignore_eos": True} if scenario.ignore_eos else {}
    if scenario.cache == "forbid":
        extra |= load_catalog().engines[engine].no_cache_body
    common: dict[str, Any] = {
        "url": url,
        "model": model,
        "tokenizer": tokenizer,
        "concurrency": point.concurrency,
        "seed": point.seed,
        "profile": rules,
        "artifact_dir": artifacts,
        "request_timeout_s": scenario.deadlines.request_s,
        "extra_inputs": extra,
    }
    if scenario.kind == "fixed_length" and scenario.requests:
        spec = LoadSpec(
            kind="fixed_length",
            requests=scenario.requests.at(point.concurrency),
            isl=scenario.isl,
            osl=scenario.osl,
            warmup_requests=CLIENT_WARMUP,
            **common,
        )
    else:
        spec = LoadSpec(
            kind="trace",
            requests=dataset.turns or 1,
            conversations=dataset.sessions,
            input_file=input_file,
            **common,
        )
    tick = rules.tick_hz(point.concurrency)
    return replace(spec, tick_hz=None if tick is None else tick * tick_factor)
