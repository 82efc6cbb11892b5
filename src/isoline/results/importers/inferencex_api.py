"""InferenceX's dashboard: rows of its API, tables of its public database dump, evaluations. Pure.

The metrics have the names and units of the aggregated rows, one level down. GPU counts of old rows
are tp × ep and are not believed; ids are texts, because they do not fit a JSON number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from isoline.results.importers import inferencex_agentic, inferencex_agg
from isoline.results.importers.foreign import (
    ForeignError,
    ForeignFile,
    ForeignPoint,
    Found,
    Score,
    load_json,
    moment,
    number,
    text,
    whole,
)

CONFIGS, RUNS, RESULTS, EVALS = (
    "configs.json",
    "workflow_runs.json",
    "benchmark_results.json",
    "eval_results.json",
)
"""Files of a dump. The results and evaluations are read; the others say what their ids stand for."""


def read(row: Mapping[str, Any], index: int) -> ForeignPoint:
    """One row of the API, or of a dump with its config joined in.

    :raises ForeignError: for a row that carries an error, or neither lengths nor an agentic load.
    """
    metrics = row.get("metrics")
    if row.get("error"):
        raise ForeignError("not_a_point", "the row carries an error and no numbers")
    if not isinstance(metrics, Mapping):
        raise ForeignError("not_a_point", "no metrics")
    flat = {**row, **metrics}
    kind = text(row.get("benchmark_type")) or ""
    if "agentic" in kind or (row.get("isl") is None and row.get("osl") is None):
        flat.setdefault("scenario_type", kind or "agentic")
        point = inferencex_agentic.read(flat, index)
    else:
        point = inferencex_agg.read(flat, index)
    point.raw = row
    _put_run(point, row)
    return point


def read_eval(row: Mapping[str, Any], index: int) -> ForeignPoint:
    """One evaluation row: config, task and score. A score of 0 is a score.

    :raises ForeignError: without a task or a score.
    """
    metrics = row.get("metrics")
    flat = {**row, **metrics} if isinstance(metrics, Mapping) else dict(row)
    point = ForeignPoint(index, row, "lm-eval", scenario="evaluation")
    inferencex_agg.put_names(point, flat)
    inferencex_agg.put_topology(point, flat)
    task = text(flat.get("task"))
    if task is None:
        raise ForeignError("not_a_point", "an evaluation without a task")
    n = whole(flat.get("n_eff"))
    for suffix, key, error in (
        ("", "em_strict", "em_strict_se"),
        ("", "score", "score_se"),
        (":flexible", "em_flexible", "em_flexible_se"),
    ):
        value = number(flat.get(key))
        name = f"{task}{suffix}"
        if value is not None and 0 <= value <= 1 and all(score.task != name for score in point.scores):
            point.scores.append(Score(name, value, number(flat.get(error)), n))
    if not point.scores:
        raise ForeignError("not_a_point", f"an evaluation of {task} without a score from 0 to 1")
    _put_run(point, row)
    return point


def _put_run(point: ForeignPoint, row: Mapping[str, Any]) -> None:
    point.started_at = moment(row.get("run_started_at")) or moment(row.get("date"))
    link = text(row.get("run_url")) or text(row.get("html_url")) or text(row.get("curve_run_url"))
    found = re.search(r"/runs/(\d+)", link) if link else None
    point.run = (
        text(row.get("github_run_id"))
        or (found.group(1) if found else None)
        or text(row.get("workflow_run_id"))
        or text(row.get("date"))
    )
    if row.get("id") is not None:
        point.notes.append(f"row {text(row['id'])} of the source")


# --- the dump ---------------------------------------------------------------------------------


def read_dump(file: ForeignFile) -> Iterator[Found]:
    """The rows of ``benchmark_results.json`` or ``eval_results.json``, joined with the tables beside it.

    :raises ForeignError: when ``configs.json`` is not there: without it no row says what it is of.
    """
    rows = load_json(file.content)
    configs = _by_id(file, CONFIGS)
    runs = _by_id(file, RUNS)
    if not configs:
        raise ForeignError("not_a_point", f"a table of a dump, without {CONFIGS} beside it")
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            yield ForeignError("unreadable", "no object", index)
            continue
        config = configs.get(text(row.get("config_id")) or "")
        if config is None:
            yield ForeignError("not_a_point", f"config {row.get('config_id')} is not in {CONFIGS}", index)
            continue
        run = runs.get(text(row.get("workflow_run_id")) or "", {})
        told = {name: run[name] for name in ("github_run_id", "run_started_at", "html_url") if name in run}
        joined = {**{key: value for key, value in config.items() if key != "id"}, **told, **row}
        try:
            yield read_eval(joined, index) if "task" in row else read(joined, index)
        except ForeignError as error:
            yield error.at(index)


def _by_id(file: ForeignFile, name: str) -> dict[str, Mapping[str, Any]]:
    if name not in file.parts:
        return {}
    rows = load_json(file.parts[name])
    # Ids are numbers in one table and texts in the other.
    return {key: row for row in rows if isinstance(row, Mapping) and (key := text(row.get("id"))) is not None}
