"""Who is who: digests, ids and keys (DESIGN 5.1). Pure."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> bytes:
    """Canonical bytes of a JSON value: sorted keys, UTF-8, no blanks, no NaN or infinity.

    :raises ValueError: for NaN or infinity, which have no JSON form.
    """
    return _ENCODER.encode(value).encode("utf-8")


def digest(value: Any) -> str:
    """SHA-256 (64 hex digits) over the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def digest_of_parts(parts: Mapping[str, bytes]) -> str:
    """The :func:`digest` of a mapping whose values are given as their canonical bytes.

    What thousands of mappings have in common is so written once, not once for each.
    """
    rows = (_name(name) + parts[name] for name in sorted(parts))
    return hashlib.sha256(b"{" + b",".join(rows) + b"}").hexdigest()


@lru_cache(maxsize=1 << 10)
def _name(name: str) -> bytes:
    return canonical_json(name) + b":"


def slug(recipe_id: str) -> str:
    """A recipe id as one path component: ``/`` becomes ``.``."""
    return recipe_id.replace("/", ".")


def point_id(
    recipe_id: str, topology: str, scenario: str, concurrency: int, repetition: int, point_digest: str
) -> str:
    """The id of a point, the same in every run."""
    return f"{slug(recipe_id)}.{topology}.{scenario}.c{concurrency}.r{repetition}.{point_digest[:10]}"


def launch_id(launch_digest: str, n: int) -> str:
    """The id of the ``n``-th start (from 1) of a launch in a run."""
    return f"{launch_digest[:10]}-{n}"


RUN_ID = re.compile(r"^(\d{8})T(\d{6})Z-([a-z0-9][a-z0-9_-]*)-([0-9a-f]{6})$")


def new_run_id(sweep: str, now: datetime | None = None) -> str:
    """A new run id: ``<yyyymmddThhmmssZ>-<sweep>-<6 random hex>``."""
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    return f"{moment:%Y%m%dT%H%M%SZ}-{sweep}-{secrets.token_hex(3)}"


def run_start(run_id: str) -> datetime:
    """The start of a run, UTC without a zone, from its id."""
    return datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ")


def run_day(run_id: str) -> tuple[str, str, str]:
    """(yyyy, mm, dd) of a run's start, from its id.

    :raises ValueError: when it is not a run id.
    """
    match = RUN_ID.fullmatch(run_id)
    if not match:
        raise ValueError(f"not a run id: {run_id!r}")
    day = match.group(1)
    return day[:4], day[4:6], day[6:8]


CURVE_FIELDS: tuple[str, ...] = (
    "model",
    "model_revision",
    "sku",
    "engine",
    "weight_precision",
    "kv_precision",
    "scenario",
    "scenario_version",
    "dataset_digest",
    "speculative",
    "kv_offload",
    "deployment_class",
    "client_class",
    "kind",
    "source",
)
"""The fields of a curve key, in order. Points are on one curve when all of these are equal."""


def curve_key(fields: Mapping[str, Any]) -> str:
    """The key of a curve: 16 hex digits over the fields in :data:`CURVE_FIELDS`.

    :raises KeyError: when a field is missing: a curve without one would merge what differs.
    """
    return digest({name: fields[name] for name in CURVE_FIELDS})[:16]


def series_key(curve: str, topology: str, concurrency: int) -> str:
    """The key of the time line of one point."""
    return f"{curve}.{topology}.c{concurrency}"
