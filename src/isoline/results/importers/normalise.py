"""One foreign point with the catalog's names, its verdict, and numbers for all of its GPUs. Pure.

A name that the catalog does not know is never guessed: the row goes to quarantine as
``unknown_name`` and is recovered by adding one alias (``recipes/_catalog/aliases.yaml``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from isoline.catalog.aliases import Kind
from isoline.catalog.facts import Catalog
from isoline.catalog.models import FAMILIES
from isoline.results.identity import CURVE_FIELDS
from isoline.results.importers.filenames import FileFacts, is_mock
from isoline.results.importers.foreign import ForeignError, ForeignPoint, failed_verdict, scenario_of
from isoline.results.importers.statistics import drop_thin_percentiles
from isoline.results.metrics.registry import METRICS

GIVEN = ("model", "sku", "engine", "precision", "gpus", "topology")
"""What a person may say about files that do not say it themselves."""


@dataclass
class Landed:
    """A point as it goes into the tables. ``curve`` holds the fields of a curve but the source."""

    point: ForeignPoint
    curve: dict[str, Any]
    topology: str
    gpus: int | None
    values: dict[str, float]
    reasons: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def normalise(
    point: ForeignPoint, facts: FileFacts, catalog: Catalog, given: Mapping[str, str], *, alone: bool
) -> Landed:
    """Resolve names, judge, and convert to all GPUs.

    :param facts: of the file's name.
    :param given: what a person said, by :data:`GIVEN`; it counts where the row is silent.
    :param alone: whether the file holds this row only, so that its name speaks of it.
    :raises ForeignError: ``unknown_name``, ``no_model`` or ``name_against_content``.
    """
    if point.samples:  # a log is of machines, and of no model
        return Landed(
            point, dict.fromkeys(CURVE_FIELDS), "unknown", None, dict(point.values), notes=point.notes
        )
    said = facts if alone else FileFacts(is_mock=facts.is_mock)
    try:
        return _normalise(point, said, catalog, given, facts.variant)
    except ForeignError as error:
        if _is_mock(point, said):
            raise ForeignError(error.code, f"{error.text}, of mock data") from None
        raise


def _normalise(
    point: ForeignPoint, said: FileFacts, catalog: Catalog, given: Mapping[str, str], variant: str
) -> Landed:
    _check_load(point)
    from_name: list[str] = []
    model = _model(point, said, catalog, given, from_name)
    sku = _one("sku", point.sku, said.sku or said.product, catalog, given, from_name)
    engine = _one("engine", point.engine, said.engine, catalog, given, from_name)
    precision = _precision(point, model, said, catalog, given, from_name)
    _compare(point, said, model, sku, engine)
    marks, notes = set(point.marks), point.notes
    if sku is None:
        marks.add("sku_unknown")
    if engine is None:
        marks.add("engine_unknown")
    if point.speculative is None and said.speculative:
        point.speculative = said.speculative
        from_name.append("speculative")
    topology, gpus = _topology(point, said, given, from_name)
    scenario = _scenario(point, said, from_name)
    if point.rate is not None and point.concurrency is None:
        notes.append(f"open loop at {point.rate:g} requests/s")
    if from_name:
        marks.add("from_file_name")
        notes.append(f"only the file's name says: {', '.join(from_name)}")
    values = _per_gpu(point, gpus, notes)
    reasons = _reasons(point, said, values)
    if point.failed is None and not point.only_scores:
        marks.add("counts_unknown")  # requests may have failed, and nobody says so
    if "mock_data" in reasons:
        marks.add("mock")
    curve = {
        "model": model,
        "model_revision": None,
        "sku": sku,
        "engine": engine,
        "weight_precision": precision,
        "kv_precision": point.kv_precision,
        "scenario": scenario,
        "scenario_version": 1,
        "dataset_digest": None,
        "speculative": point.speculative,
        "kv_offload": point.kv_offload,
        "deployment_class": _deployment(point, engine, precision, variant),
        "client_class": point.client,
        "kind": "measured",
    }
    if point.topology is None:
        # Where the content names no configuration, files of other names are other configurations.
        point.identity["variant"] = variant
    return Landed(point, curve, topology, gpus, values, reasons, sorted(marks), notes)


def _check_load(point: ForeignPoint) -> None:
    """:raises ForeignError: for a load that nobody can have asked for."""
    for name in ("concurrency", "isl", "osl"):
        value = getattr(point, name)
        if value is not None and value < 1:
            raise ForeignError("not_a_point", f"{name} is {value}")


# --- names ------------------------------------------------------------------------------------


# Rows by the thousand name the same few things.
@lru_cache(maxsize=1 << 12)
def _resolve(catalog: Catalog, kind: Kind, name: str) -> str | None:
    return catalog.resolve(kind, name)


@lru_cache(maxsize=1 << 12)
def _checkpoint(catalog: Catalog, name: str) -> tuple[str, str] | None:
    """(model, precision) of the checkpoint that a name or path is of."""
    for item in name_candidates(name):
        found = catalog.resolve_checkpoint(item)
        if found is not None:
            return found[0], catalog.models[found[0]].checkpoints[found[1]].precision
    return None


@lru_cache(maxsize=1 << 12)
def _exact(catalog: Catalog, model: str, vague: str) -> str | None:
    return catalog.models[model].precision_of(vague)


@lru_cache(maxsize=1 << 12)
def _resolve_model(catalog: Catalog, name: str) -> str | None:
    return next((key for item in name_candidates(name) if (key := catalog.resolve("model", item))), None)


def name_candidates(name: str) -> list[str]:
    """What a model's name or path may be looked up by: itself, a hub id in a cache path, its last part."""
    found = [name]
    cached = re.search(r"models--([^/]+?)--([^/]+)", name)
    if cached:
        found.append(f"{cached[1]}/{cached[2]}")
    last = name.rstrip("/").rpartition("/")[2]
    found += [last, re.sub(r"-(?:nvfp4|mxfp4|fp4|fp8)$", "", last, flags=re.IGNORECASE)]
    return [item for item in dict.fromkeys(found) if item]


def _model(
    point: ForeignPoint, said: FileFacts, catalog: Catalog, given: Mapping[str, str], from_name: list[str]
) -> str:
    path = point.identity.get("model_path")
    short, long = (_resolve_model(catalog, name) if name else None for name in (point.model, path))
    if short and long and short != long:
        raise ForeignError("name_against_content", f"the row is of {point.model!r} and of {path!r}")
    if short or long:
        return str(short or long)
    named = [name for name in (point.model, path) if name]
    if named:
        raise ForeignError("unknown_name", f"model {' = '.join(map(repr, dict.fromkeys(named)))}")
    if "model" in given:
        found = _resolve_model(catalog, given["model"])
        if found is None:
            raise ForeignError("unknown_name", f"model {given['model']!r}")
        return found
    if said.model is None:
        raise ForeignError("no_model", "neither the content nor the file's name says a model")
    from_name.append("model")
    return said.model


def _one(
    kind: Kind,
    stated: str | None,
    named: str | None,
    catalog: Catalog,
    given: Mapping[str, str],
    from_name: list[str],
) -> str | None:
    """A SKU or engine: the row's word, else a person's, else the file name's; None where nobody says."""
    if stated:
        found = _resolve(catalog, kind, stated)
        if found is None:
            raise ForeignError("unknown_name", f"{kind} {stated!r}")
        return found
    for word, is_name in ((given.get(kind), False), (named, True)):
        if word is None:
            continue
        found = _resolve(catalog, kind, word)
        if found is None:
            raise ForeignError("unknown_name", f"{kind} {word!r}{' (of the file name)' if is_name else ''}")
        if is_name:
            from_name.append(kind)
        return found
    if stated is not None:
        raise ForeignError("unknown_name", f"the row's {kind} is empty")
    return None


def _precision(
    point: ForeignPoint,
    model: str,
    said: FileFacts,
    catalog: Catalog,
    given: Mapping[str, str],
    from_name: list[str],
) -> str | None:
    """The exact format where it can be told, else the vague word (``fp4``) as it stands there."""
    exact = None
    for name in (point.identity.get("model_path"), point.model):
        checkpoint = _checkpoint(catalog, name) if name else None
        if checkpoint and checkpoint[0] == model:
            exact = checkpoint[1]
            break
    word = point.precision or given.get("precision")
    if not word:
        if exact is None and said.precision:
            from_name.append("precision")
            word = said.precision
        else:
            return exact
    word = word.lower()
    if exact is not None and (exact == word or exact in FAMILIES.get(word, ())):
        return exact
    found = _exact(catalog, model, word) or _resolve(catalog, "precision", word)
    if found is None and word not in FAMILIES:
        raise ForeignError("unknown_name", f"precision {word!r}")
    return found or word


def _compare(point: ForeignPoint, said: FileFacts, model: str, sku: str | None, engine: str | None) -> None:
    """The file's name against its content."""
    pairs: tuple[tuple[str, object, object], ...] = (
        ("model", said.model, model),
        ("sku", said.sku, sku),
        ("engine", said.engine, engine),
        ("concurrency", said.concurrency, point.concurrency),
    )
    for what, name, content in pairs:
        if name is not None and content is not None and name != content:
            raise ForeignError(
                "name_against_content", f"{what}: the file's name says {name}, its content {content}"
            )


# --- the rest ---------------------------------------------------------------------------------


def _topology(
    point: ForeignPoint, said: FileFacts, given: Mapping[str, str], from_name: list[str]
) -> tuple[str, int | None]:
    gpus = int(given["gpus"]) if "gpus" in given else None
    if point.topology is not None:
        return point.topology.label, point.topology.gpus or gpus
    if "topology" in given:
        return given["topology"], gpus
    if said.topology is not None:
        from_name.append("topology")
        width = re.search(r"(?:^|-)(?:tp|tep|dep)(\d+)(?:-|$)", said.topology)
        if gpus and width and gpus % int(width[1]):
            raise ForeignError(
                "name_against_content", f"{gpus} GPUs were given, its name says {said.topology}"
            )
        return said.topology, gpus
    return (f"{gpus}gpu" if gpus else "unknown"), gpus


def _scenario(point: ForeignPoint, said: FileFacts, from_name: list[str]) -> str:
    if point.scenario is not None:
        return point.scenario
    isl, osl = point.isl, point.osl
    if (isl is None or osl is None) and said.isl and said.osl:
        isl, osl = said.isl, said.osl
        from_name.append("lengths")
    if isl is None or osl is None:
        means = [point.values.get(f"{kind}_tokens_mean") for kind in ("input", "output")]
        if None in means:
            return "unknown"
        isl, osl = (_rounded(mean or 0) for mean in means)
        point.notes.append("no nominal lengths: the scenario is named by the measured means")
        if isl % 128 or osl % 128:
            return f"about-{isl}-{osl}"
    return scenario_of(isl, osl)


def _rounded(mean: float) -> int:
    """A mean length to one digit, so that points of one load share a name; multiples of 128 as they are."""
    if mean == int(mean) and int(mean) % 128 == 0:
        return int(mean)
    scale = int(10 ** (len(str(int(mean))) - 1))
    return round(mean / scale) * scale


def _per_gpu(point: ForeignPoint, gpus: int | None, notes: list[str]) -> dict[str, float]:
    if point.system_tps and gpus:
        for kind, value in point.system_tps.items():
            point.values[f"{kind}_tps_per_gpu"] = value / gpus
        if "goodput_rps" in point.values:
            point.values["goodput_rps_per_gpu"] = point.values["goodput_rps"] / gpus
    elif point.system_tps:
        total = point.system_tps.get("total")
        notes.append(f"the GPU count is not known, so nothing is per GPU (in all {total or 0:.6g} tokens/s)")
    drop_thin_percentiles(point)
    if point.completed is not None and point.failed is not None and point.completed + point.failed:
        point.values["failed_share"] = point.failed / (point.completed + point.failed)
    if point.window_s is not None:
        point.values["window_s"] = point.window_s
    for name in [name for name, value in point.values.items() if not 0 <= value < math.inf]:
        del point.values[name]  # nothing that we store can be below 0
        notes.append(f"{name}: no possible number; left out")
    return {name: value for name, value in point.values.items() if name in METRICS}


def _reasons(point: ForeignPoint, said: FileFacts, values: Mapping[str, float]) -> list[str]:
    reasons = []
    if _is_mock(point, said):
        reasons.append("mock_data")
    if point.only_scores:
        return reasons
    if point.completed == 0 or not any(values[name] > 0 for name in values.keys() & _SPEEDS):
        reasons.append("zero_output_tokens")
    elif point.completed is not None and point.failed is not None:
        code = failed_verdict(point.completed, point.failed)
        reasons += [code] if code else []
    return reasons


_SPEEDS = frozenset(name for name in METRICS if "_tps" in name)


def _is_mock(point: ForeignPoint, said: FileFacts) -> bool:
    names = (point.model, point.engine, point.sku, *point.identity.values())
    return said.is_mock or any(is_mock(name) for name in names)


def _deployment(point: ForeignPoint, engine: str | None, precision: str | None, variant: str) -> str | None:
    if point.topology is None:
        # With no engine or precision either, only the name keeps what may differ off one curve.
        return f"unstated-{variant}" if engine is None or precision is None else None
    if point.topology.is_split:
        return "disaggregated"
    return "multi_node" if point.multi_node else "single_node"
