"""Results of lm-evaluation-harness (``results*.json``). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

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

_METRIC = re.compile(r"^(?P<name>[a-z_0-9]+),(?P<filter>[\w-]+)\Z")
_WANTED = ("exact_match", "acc", "acc_norm", "pass@1", "resolved_rate")


def read(file: ForeignFile) -> Iterator[Found]:
    """One row for each task, with a score for each of its filters."""
    document = load_json(file.content)
    results = document.get("results")
    if not isinstance(results, Mapping) or not results:
        raise ForeignError("no_rows", "no results")
    samples = document.get("n-samples")
    for index, (task, block) in enumerate(results.items()):
        point = ForeignPoint(index, {"task": task, "results": block}, "lm-eval", scenario="evaluation")
        point.model = _model(document)
        point.started_at = moment(document.get("date"))
        point.identity["lm_eval_version"] = document.get("lm_eval_version")
        count = samples.get(task) if isinstance(samples, Mapping) else None
        n = whole(count.get("effective")) if isinstance(count, Mapping) else None
        point.scores = list(_scores(str(task), block, n)) if isinstance(block, Mapping) else []
        if point.scores:
            yield point
        else:
            yield ForeignError("not_a_point", f"{task} has no score from 0 to 1", index)


def _scores(task: str, block: Mapping[str, Any], n: int | None) -> Iterator[Score]:
    for key, value in block.items():
        match = _METRIC.match(str(key))
        share = number(value)
        if match is None or match["name"] not in _WANTED or share is None or not 0 <= share <= 1:
            continue
        name = task if match["filter"] in ("none", "strict-match") else f"{task}:{match['filter']}"
        error = number(block.get(f"{match['name']}_stderr,{match['filter']}"))
        yield Score(
            name if match["name"] in ("exact_match", "acc") else f"{name}:{match['name']}", share, error, n
        )


def _model(document: Mapping[str, Any]) -> str | None:
    """The model: its name, else ``model=`` or ``pretrained=`` among the arguments."""
    config = document.get("config")
    arguments = config.get("model_args") if isinstance(config, Mapping) else None
    if isinstance(arguments, Mapping):
        found = text(arguments.get("model")) or text(arguments.get("pretrained"))
        if found:
            return found
    if isinstance(arguments, str):
        match = re.search(r"(?:^|,)(?:model|pretrained)=([^,]+)", arguments)
        if match:
            return match[1]
    return text(document.get("model_name"))
