"""What of the warehouse is public: tables and columns by name, rows by whose they are. Pure.

A column that is not named here is not published: a new one stays inside until somebody decides.
"""

from __future__ import annotations

import re

from isoline.results.metrics.registry import HEADLINE
from isoline.results.warehouse.schema import BY_NAME, Table

_POINTS = """
    run_id point_id point_digest launch_digest counting_attempt measured_in attempts got missing_cause sweep
    recipe_id recipe_digest model model_revision engine engine_version sku weight_precision kv_precision
    scenario scenario_version scenario_kind dataset dataset_digest topology gpus concurrency repetition seed
    speculative kv_offload deployment_class client_class kind source curve_key series_key verdict reasons
    accuracy_state official unofficial_why marks started_at ended_at asked completed failed window
    bundle_digest"""
_ABOUT_CURVES = (
    ("curve_complete", "BOOLEAN"),
    ("curve_is_part", "BOOLEAN"),
    ("run_started_at", "TIMESTAMP"),
    ("newer_incomplete", "BOOLEAN"),
    ("newer_incomplete_run", "VARCHAR"),
    ("newer_is_part", "BOOLEAN"),
    ("decisions", "VARCHAR[]"),
)
_ORIGIN = (
    ("licence", "VARCHAR"),
    ("import_format", "VARCHAR"),
    ("import_sha256", "VARCHAR"),
    ("import_row", "INTEGER"),
)
_RUNS = """
    run_id sweep plan_digest started_at rev dirty expected got valid partial invalid infra_error cancelled
    skipped missing complete bundle_digest"""
_ACCURACY = """
    run_id point_id attempt task dataset_digest n correct unparsed reference interval_low interval_high state
    concurrency"""


def _some_of(name: str, columns: str, *more: tuple[str, str]) -> Table:
    kinds = dict(BY_NAME[name].columns)
    return Table(name, (*((column, kinds[column]) for column in columns.split()), *more))


PUBLIC: dict[str, Table] = {
    "points": _some_of("points", f"{_POINTS} {' '.join(HEADLINE)}", *_ABOUT_CURVES, *_ORIGIN),
    "runs": _some_of("runs", _RUNS),
    "accuracy": _some_of("accuracy", _ACCURACY),
}
"""The published tables. ``points`` is partitioned by model and scenario, the others are one file."""

MEASURED_HERE = frozenset({"own", "endpoint"})
"""Sources whose points were measured by us."""

_SPDX = (
    r"(apache-2\.0|mit|isc|bsd-[23]-clause|cc0-1\.0|cc-by(-sa)?-[34]\.0|odbl-1\.0|odc-by-1\.0|pddl-1\.0|"
    r"cdla-permissive-[12]\.0|cdla-sharing-1\.0)"
)
_OPEN = re.compile(_SPDX.replace("-", "[ -]") + r"(?![\w.-])", re.IGNORECASE)


def may_pass_on(licence: str | None) -> bool:
    """Whether a licence note begins with the SPDX name of a licence under which anybody may pass data on."""
    return bool(licence and _OPEN.match(licence.strip()))
