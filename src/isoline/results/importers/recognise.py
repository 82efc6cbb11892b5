"""Which foreign format a file has, by its content; the name decides only what content cannot. Pure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isoline.results.importers import (
    aiperf_summary,
    bench,
    guidellm,
    inference_perf,
    inferencex_agentic,
    inferencex_agg,
    inferencex_api,
    lm_eval,
    power_log,
)
from isoline.results.importers.foreign import ForeignError, ForeignFile, ForeignPoint, Found, load_json

RowReader = Callable[[Mapping[str, Any], int], ForeignPoint]
FileReader = Callable[[ForeignFile], Iterator[Found]]


@dataclass(frozen=True)
class Format:
    """One foreign format.

    :param name: for ``--as``, and in the tables.
    :param source: whose data it usually is; the default of ``source`` in the curve's key.
    :param what: one line for people.
    :param row: reads one row, where a file is one row or a list of rows.
    :param file: reads a whole file, where it is not.
    """

    name: str
    source: str
    what: str
    row: RowReader | None = None
    file: FileReader | None = None


FORMATS: dict[str, Format] = {
    item.name: item
    for item in (
        Format(
            "inferencex-agg", "inferencex", "InferenceX, fixed length, aggregated", row=inferencex_agg.read
        ),
        Format("inferencex-agentic", "inferencex", "InferenceX, agentic", row=inferencex_agentic.read),
        Format(
            "inferencex-api", "inferencex", "InferenceX, rows of the dashboard's API", row=inferencex_api.read
        ),
        Format("inferencex-eval", "inferencex", "InferenceX, evaluations", row=inferencex_api.read_eval),
        Format("inferencex-dump", "inferencex", "InferenceX, database dump", file=inferencex_api.read_dump),
        Format("vllm-bench", "vllm-bench", "vLLM bench serve and its forks", row=bench.read),
        Format("together", "together", "rows with blocks metrics and gpu", row=bench.read_together),
        Format("guidellm", "guidellm", "guidellm reports", file=guidellm.read),
        Format(
            "inference-perf", "inference-perf", "inference-perf lifecycle metrics", file=inference_perf.read
        ),
        Format("aiperf", "aiperf", "AIPerf exports", file=aiperf_summary.read),
        Format("lm-eval", "lm-eval", "lm-evaluation-harness results", file=lm_eval.read),
        Format("power-log", "power-log", "power logs of nvidia-smi", file=power_log.read),
    )
}
"""Every format by name."""

ROWS = "rows"
"""A list whose rows each have their own format."""

PARTS: dict[str, tuple[str, ...]] = {
    "inferencex-dump": (inferencex_api.CONFIGS, inferencex_api.RUNS),
    "aiperf": ("profile_export.jsonl",),
}
"""Files that are taken in together with one of a format when they lie beside it."""


def row_format(row: Any) -> str | None:
    """The format of one row; None where it has none of these shapes."""
    if not isinstance(row, Mapping):
        return None
    keys = row.keys()
    if "task" in keys and ({"score", "em_strict"} & keys or isinstance(row.get("metrics"), Mapping)):
        return "inferencex-eval"
    if "model_id" in keys and "completed" in keys:
        return "vllm-bench"
    if "hardware" in keys and isinstance(row.get("metrics"), Mapping):
        return "inferencex-api"
    if "hw" not in keys:
        return None
    if isinstance(row.get("metrics"), Mapping):
        return "together"
    if "scenario_type" in keys or "request_metrics" in keys or "num_requests_total" in keys:
        return "inferencex-agentic"
    return "inferencex-agg" if "tput_per_gpu" in keys or "isl" in keys else None


def recognise(name: str, document: Any, head: bytes = b"") -> str | None:
    """The format of a file: a key of :data:`FORMATS`, :data:`ROWS`, or None.

    :param name: the file's name, without folders.
    :param document: its parsed JSON; None where it is none.
    :param head: its first bytes, for files that are not JSON.
    """
    if document is None:
        line = head.split(b"\n", 1)[0].lower()
        return "power-log" if b"power.draw" in line and b"timestamp" in line else None
    if isinstance(document, list):
        first = next((row for row in document if isinstance(row, Mapping)), {})
        if "config_id" in first and ("metrics" in first or "task" in first):
            return "inferencex-dump"
        return ROWS if not document or row_format(first) or _any_row(document) else None
    if not isinstance(document, Mapping):
        return None
    return _whole(document) or (ROWS if row_format(document) else None)


def _any_row(document: list[Any]) -> bool:
    return any(row_format(row) for row in document)


def _whole(document: Mapping[str, Any]) -> str | None:
    keys = document.keys()
    if isinstance(document.get("benchmarks"), list):
        return "guidellm"
    if {"load_summary", "successes"} <= keys:
        return "inference-perf"
    if isinstance(document.get("results"), Mapping) and {"n-samples", "configs", "lm_eval_version"} & keys:
        return "lm-eval"
    if "input_config" in keys and ({"records", "request_latency", "request_count", "error_summary"} & keys):
        return "aiperf"
    return None


def parse(content: bytes, name: str) -> Any:
    """The JSON of a file; None where it is a table of text.

    :raises ForeignError: ``unreadable``.
    """
    if name.lower().endswith(".csv"):
        return None
    if is_lines(name):
        return [_line(line) for line in lines_of(content)]
    return load_json(content)


def is_lines(name: str) -> bool:
    """Whether a file of this name holds a JSON value in each line."""
    return name.lower().endswith((".jsonl", ".ndjson"))


def lines_of(content: bytes) -> list[bytes]:
    """Its lines that are not blank: each is a row."""
    return [line for line in content.splitlines() if line.strip()]


def _line(line: bytes) -> Any:
    try:
        return load_json(line)
    except ForeignError:
        return line  # a bad line is a bad row, no more


def read(file: ForeignFile, forced: str | None = None) -> tuple[str, list[Found]]:
    """(format, rows and refusals) of one file.

    :param forced: a key of :data:`FORMATS`.
    :raises ForeignError: when nothing of it can be taken in.
    """
    document = parse(file.content, file.name)
    kind = forced or recognise(file.name, document, file.content[:512])
    if kind is None:
        raise ForeignError("unknown_format", f"none of the known forms; known: {', '.join(FORMATS)}")
    known = FORMATS.get(kind)
    try:
        if known is not None and known.file is not None:
            return kind, list(known.file(file))
        rows = document if isinstance(document, list) else [document]
        if not rows:
            raise ForeignError("no_rows", "an empty list")
        found = [_row(row, index, known) for index, row in enumerate(rows)]
        if is_lines(file.name):
            _keep_lines(found, lines_of(file.content))
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        if isinstance(error, ForeignError):
            raise
        raise ForeignError("unreadable", f"not of the form {kind}: {type(error).__name__}: {error}") from None
    return kind, found


def row_kind_of(lines: Iterable[bytes], forced: str | None) -> str | None:
    """What :func:`read` would take a file of these lines for, where each is a row by itself.

    None where only the whole file can tell, or is no list of rows.
    """
    if forced is not None:
        return forced if FORMATS[forced].row is not None else None
    first = next((row for line in lines if isinstance(row := _line(line), Mapping)), {})
    return ROWS if row_format(first) and recognise("", [first]) == ROWS else None


def read_lines(lines: Sequence[bytes], first: int, forced: str | None) -> list[Found]:
    """The rows of a part of a file for which :func:`row_kind_of` has an answer.

    :param first: the place of the first line in the file.
    """
    known = FORMATS[forced] if forced is not None else None
    found = [_row(_line(line), index, known) for index, line in enumerate(lines, start=first)]
    _keep_lines(found, lines)
    return found


def _keep_lines(found: Sequence[Found], lines: Sequence[bytes]) -> None:
    """Note the line of each point, where it is a text of strict JSON as it stands."""
    for item, line in zip(found, lines, strict=True):
        if isinstance(item, ForeignPoint) and not _is_loose(line):
            with contextlib.suppress(UnicodeDecodeError):
                item.line = line.decode("utf-8").strip()


def _is_loose(line: bytes) -> bool:
    """Whether it may hold what Python's reader takes and JSON does not know, or half a character."""
    if b"NaN" in line or b"Infinity" in line or b"\xef\xbb\xbf" in line:
        return True
    return b"\\u" in line and re.search(rb"\\u[dD]", line) is not None


def _row(row: Any, index: int, forced: Format | None) -> Found:
    name = forced.name if forced is not None else row_format(row)
    reader = FORMATS[name].row if name is not None else None
    if reader is None or not isinstance(row, Mapping):
        bad = isinstance(row, bytes)
        return ForeignError("unreadable" if bad else "unknown_format", "a row of no known form", index)
    try:
        return reader(row, index)
    except ForeignError as error:
        return error.at(index)
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        return ForeignError("unreadable", f"{type(error).__name__}: {error}", index)
