"""The panel of one point: identity, verdict, numbers, accuracy, phases, lock, and how to run it again.

Every text goes through Dash's components, which escape it; nothing here builds HTML.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from dash import dcc, html

from isoline.dashboard.choices import family_title
from isoline.dashboard.data import PointDetail
from isoline.dashboard.numbers import ABSENT, moment, number
from isoline.results.judging.reasons import REASONS
from isoline.results.metrics.registry import METRICS, PERCENTILES

_STATISTICS = (*(f"p{percentile}" for percentile in PERCENTILES), "mean")

PUBLIC_LOCK_PARTS = ("schema_version", "run_id", "sweep", "launch", "point", "created_from")
"""What a page that others can reach shows of a lock: what the plan says, with its placeholders.

``resolved`` and ``fingerprint`` describe a machine; they are shown on the loopback address only.
"""


def reproduce_command(run_id: str, point_id: str) -> str:
    """The command line that runs a point again, safe to paste into a shell."""
    return shlex.join(["isoline", "reproduce", point_id, "--run", run_id])


def shown_lock(lock: Mapping[str, Any], *, internal: bool) -> dict[str, Any]:
    """The lock as it is, or without what describes the machine."""
    return dict(lock) if internal else {key: lock[key] for key in PUBLIC_LOCK_PARTS if key in lock}


def point_panel(detail: PointDetail, siblings: Sequence[tuple[str, str]], *, internal: bool) -> html.Div:
    """The panel.

    :param siblings: (label, query string) of the other repetitions of the same point.
    :param internal: whether machine details of the lock may be shown.
    """
    point = detail.point
    return html.Div(
        [
            html.H2(_title(point)),
            html.P([_badge(point["verdict"]), " ", _official(point)], className="verdict-line"),
            *_reasons(point, detail.details),
            *[html.P(f"Decided: {text}.", className="decision") for text in detail.decisions],
            *([_reproduce(point)] if detail.imported is None else []),
            *_siblings(siblings),
            *_import(detail.imported, internal=internal),
            _section("Identity", _facts(_identity(point)), is_open=True),
            _section("Metrics", *_metrics(detail.metrics, point["window"]), is_open=True),
            _section("Accuracy", *_accuracy(point, detail.accuracy, detail.canary), is_open=True),
            *([] if detail.imported else [_section("Phases", _phases(detail.phases))]),
            *([] if detail.imported else [_section("Lock", _lock(detail.lock, internal=internal))]),
        ],
        className="panel-body",
    )


def missing_panel(point_id: str) -> html.Div:
    """What stands in the panel's place when the point has no row."""
    return html.Div(
        [
            html.H2("No such point here"),
            html.P(f"{point_id} is not among the points of this run or snapshot."),
        ],
        className="panel-body",
    )


def _section(title: str, *content: Any, is_open: bool = False) -> html.Details:
    return html.Details([html.Summary(title), *content], open=is_open, className="section")


def _badge(verdict: str | None) -> html.Span:
    name = verdict or "no attempt"
    return html.Span(name.replace("_", " "), className=f"badge badge-{(verdict or 'none').replace('_', '-')}")


def _official(point: Mapping[str, Any]) -> html.Span:
    marks = [*(point["marks"] or ())]
    text = "official" if point["official"] else "not official"
    if not point["official"] and point.get("unofficial_why"):
        text += f" ({point['unofficial_why']})"
    return html.Span(" · ".join([text, *(mark.replace("_", "-") for mark in marks)]))


def _reasons(point: Mapping[str, Any], details: Sequence[str]) -> list[Any]:
    codes: Sequence[str] = [*(point["reasons"] or ())]
    if not codes and point["verdict"] is None:
        return [
            html.P(f"Planned, but there is no attempt: {point.get('missing_cause') or 'nobody knows why'}.")
        ]
    items = []
    for code, seen in zip_longest(codes, details[: len(codes)], fillvalue=""):
        row = REASONS.get(code)
        items.append(
            html.Li(
                [
                    html.Code(code),
                    f" — {row.meaning}." if row else " — a reason code that this version does not know.",
                    html.Span(f" Seen: {seen}." if seen else ""),
                    html.Span(f" What to do: {row.remedy}." if row else "", className="remedy"),
                ]
            )
        )
    return [html.Ul(items, className="reasons")] if items else []


def _title(point: Mapping[str, Any]) -> str:
    if point["concurrency"] is None:
        return "Point without a concurrency"  # an open loop, of an import
    return f"Point at concurrency {point['concurrency']}"


def _import(imported: Mapping[str, Any] | None, *, internal: bool) -> list[Any]:
    """Where an imported point is from. File names and rows of others may hold names of machines."""
    if imported is None:
        return []
    facts = [(name, imported[name]) for name in ("source", "licence", "format", "sha256")]
    shown: list[Any] = []
    if internal:
        facts += [("file", imported["file_name"]), ("row", imported["row_index"])]
        row = imported["original"] or "too long to be shown; the file is in the store"
        shown = [html.Pre(html.Code(row), className="scroll", tabIndex="0")]
    notes = [html.Li(note) for note in imported["notes"] or ()]
    listed = [html.Ul(notes, className="reasons")] if notes else []
    return [_section("Imported, not measured here", _facts(facts), *listed, *shown, is_open=True)]


def _reproduce(point: Mapping[str, Any]) -> html.Div:
    command = reproduce_command(point["measured_in"], point["point_id"])
    return html.Div(
        [
            html.Div(
                [
                    html.Span("Run it again", className="label"),
                    dcc.Clipboard(
                        content=command, title="Copy the command", className="copy", id="copy-command"
                    ),
                ],
                className="command-head",
            ),
            html.Pre(html.Code(command), id="reproduce-command", tabIndex="0"),
        ],
        className="command",
    )


def _siblings(siblings: Sequence[tuple[str, str]]) -> list[Any]:
    if not siblings:
        return []
    links: list[Any] = ["Other repetitions: "]
    for label, query in siblings:
        links += [dcc.Link(label, href=query), " "]
    return [html.P(links, className="siblings")]


def _identity(point: Mapping[str, Any]) -> list[tuple[str, Any]]:
    engine = " ".join(str(part) for part in (point["engine"], point["engine_version"]) if part)
    return [
        ("recipe", point["recipe_id"]),
        ("model", point["model"]),
        ("model revision", point["model_revision"]),
        ("engine", engine),
        ("SKU", point["sku"]),
        ("GPUs", point["gpus"]),
        ("topology", point["topology"]),
        ("precision", f"{point['weight_precision']} (KV {point['kv_precision'] or 'unknown'})"),
        ("scenario", f"{point['scenario']} v{point['scenario_version']}"),
        ("concurrency", point["concurrency"]),
        ("repetition", point["repetition"]),
        ("kind", f"{point['kind']}, source {point['source']}"),
        ("run", point["run_id"]),
        *([("measured in", point["measured_in"])] if point["measured_in"] != point["run_id"] else []),
        ("attempt", f"{point['counting_attempt'] or ABSENT} of {point['attempts'] or ABSENT}"),
        ("started", moment(point["started_at"])),
        ("requests", _requests(point)),
        ("launch", point["launch_id"]),
        ("point", point["point_id"]),
        ("point digest", point["point_digest"]),
        ("launch digest", point["launch_digest"]),
        ("curve", point["curve_key"]),
    ]


def _requests(point: Mapping[str, Any]) -> str:
    if point["asked"] is None:
        return ABSENT
    return f"{point['completed']} of {point['asked']} completed, {point['failed']} failed"


def _facts(pairs: Iterable[tuple[str, Any]]) -> html.Dl:
    parts: list[Any] = []
    for name, value in pairs:
        parts += [html.Dt(name), html.Dd(ABSENT if value is None else str(value))]
    return html.Dl(parts, className="facts")


def _table(head: Sequence[str], body: Sequence[Sequence[Any]]) -> html.Div:
    rows = [html.Tr([html.Th(line[0], scope="row"), *(html.Td(cell) for cell in line[1:])]) for line in body]
    header = html.Thead(html.Tr([html.Th(name, scope="col") for name in head]))
    return html.Div(html.Table([header, html.Tbody(rows)]), className="scroll", tabIndex="0")


def _metrics(rows: Sequence[Mapping[str, Any]], window: str | None) -> list[Any]:
    """Latencies and speeds by percentile; the rest as a list. One window only: the headline one."""
    values = {row["name"]: row for row in rows if row["window"] == window}
    if not values:
        return [html.P("No metric was derived.")]
    families: dict[str, dict[str, Mapping[str, Any]]] = {}
    single: list[tuple[str, Any]] = []
    for name, row in values.items():
        metric = METRICS.get(name)
        if (metric and metric.statistic.startswith("p")) or (
            metric and metric.statistic and _has_percentiles(metric.family)
        ):
            families.setdefault(metric.family, {})[metric.statistic] = row
        else:
            title = family_title(metric.family) if metric else name
            statistic = f" {metric.statistic}" if metric and metric.statistic else ""
            unit = "" if row["unit"] == "share" else f" {row['unit']}"  # the title says share
            single.append((f"{title}{statistic}", f"{number(row['value'])}{unit}"))
    body = []
    for family, cells in families.items():
        unit = next(iter(cells.values()))["unit"]
        body.append(
            [
                f"{family_title(family).split(' (')[0]} ({unit})",
                *(number(cells[name]["value"]) if name in cells else ABSENT for name in _STATISTICS),
            ]
        )
    return [
        html.P(f"Window: {window}. A percentile is given only where there are enough requests for it."),
        *([_table(["", *_STATISTICS], body)] if body else []),
        _facts(single),
    ]


def _has_percentiles(family: str) -> bool:
    return any(metric.family == family and metric.statistic == "p50" for metric in METRICS.values())


def _accuracy(
    point: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], canary: Mapping[str, Any] | None
) -> list[Any]:
    parts: list[Any] = [html.P(f"State: {(point['accuracy_state'] or 'not_run').replace('_', ' ')}.")]
    if rows:
        body = [
            [
                row["task"],
                f"{row['correct']} of {row['n']}",
                number(row["reference"]),
                f"{number(row['interval_low'])} to {number(row['interval_high'])}",
                row["state"],
            ]
            for row in rows
        ]
        parts.append(_table(["task", "right", "reference", "interval", "state"], body))
    return [*parts, *_canary(canary)]


def _canary(canary: Mapping[str, Any] | None) -> list[Any]:
    """How many were right, and each answer that was not, in full."""
    if not canary:
        return [html.P("Canary: no record.")]
    facts = [
        (name.replace("_", " "), value)
        for name, value in canary.items()
        if isinstance(value, (str, int, float))
    ]
    wrong = [
        html.Li([html.Code(str(answer.get("id"))), f": {answer.get('error') or answer.get('text')!r}"])
        for answer in canary.get("answers") or ()
        if not answer.get("correct")
    ]
    listed = [html.P("Wrong answers:"), html.Ul(wrong, className="reasons")] if wrong else []
    return [html.P("Canary, at the point's own concurrency:"), _facts(facts), *listed]


def _phases(rows: Sequence[Mapping[str, Any]]) -> Any:
    if not rows:
        return html.P("No phase is recorded.")
    body = [[row["name"], f"{number(row['duration_s'])} s", row["outcome"]] for row in rows]
    return _table(["phase", "took", "outcome"], body)


def _lock(lock: Mapping[str, Any] | None, *, internal: bool) -> Any:
    if lock is None:
        return html.P("There is no lock: the attempt did not get so far.")
    text = json.dumps(shown_lock(lock, internal=internal), indent=2, sort_keys=True, ensure_ascii=False)
    note = [] if internal else [html.P("Details of the machine are shown on the loopback address only.")]
    return html.Div([*note, html.Pre(html.Code(text), className="lock", tabIndex="0")])
