"""From values at recorded points to one value, an expression, or conditions. Pure.

Nothing is interpolated: an expression is used only where it gives every recorded value exactly, and a
condition is made of recorded concurrencies only.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from isoline.recipes.expressions import ExpressionError, evaluate

MISSING = object()


@dataclass(frozen=True)
class Point:
    """One recorded command: its topology's label, concurrency and the numbers of expressions."""

    label: str
    concurrency: int
    values: tuple[tuple[str, float | int | None], ...]

    @property
    def numbers(self) -> dict[str, float | int | None]:
        return dict(self.values)


Rule = tuple[tuple[tuple[str, ...] | None, tuple[int, int] | None], Any]
"""((topologies or None, (from, to) or None), value)"""


def key(value: Any) -> str:
    """A value as text, to compare: 1 is not True and 0.8 is 0.80."""
    return "missing" if value is MISSING else json.dumps(value, sort_keys=True)


def gives(text: str, rows: Iterable[tuple[Point, Any]]) -> bool:
    """Whether an expression gives every value exactly."""
    try:
        return all(evaluate(text, point.numbers) == value for point, value in rows)
    except ExpressionError:
        return False


def _numeric(rows: list[tuple[Point, Any]]) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for _, v in rows)


def expression(rows: list[tuple[Point, Any]]) -> str | None:
    """The simplest expression over concurrency (and dp, tp) that gives every value, or None."""
    if not _numeric(rows) or len({point.concurrency for point, _ in rows}) < 2:
        return None
    values = sorted({v for _, v in rows})
    bases = ["concurrency"]
    if any(point.numbers["dp"] != 1 for point, _ in rows):
        bases += ["concurrency / dp", "concurrency * dp"]
    scaled = []
    for base in bases:
        for factor in (1, 2, 4, 8, 3, 5, 6, 7, 9, 16):
            scaled.append(base if factor == 1 else f"{factor} * {base}")
        scaled += [f"{base} / {part}" for part in (2, 4)]
    for text in scaled:
        if gives(text, rows):
            return text
    low, high = values[0], values[-1]
    for text in scaled:
        # A clamp has one free number: at least two points must lie on the slope.
        slope = [row for row in rows if gives(text, [row])]
        if len({point.concurrency for point, _ in slope}) < 2:
            continue
        for clamped in (f"min({text}, {high})", f"max({text}, {low})", f"max(min({text}, {high}), {low})"):
            if gives(clamped, rows):
                return clamped
    return _affine(rows)


def _affine(rows: list[tuple[Point, Any]]) -> str | None:
    points = sorted({(p.concurrency, v) for p, v in rows})
    if len(points) < 3 or len({c for c, _ in points}) != len(points):
        return None
    (c1, v1), (c2, v2) = points[0], points[1]
    slope = (v2 - v1) / (c2 - c1)
    if not float(slope).is_integer() or not slope:
        return None
    offset = v1 - int(slope) * c1
    if not isinstance(offset, int):
        return None
    base = "concurrency" if slope == 1 else f"{int(slope)} * concurrency"
    text = f"{base} + {offset}" if offset > 0 else f"{base} - {-offset}"
    return text if gives(text, rows) else None


def fit(rows: list[tuple[Point, Any]], *, follows_concurrency: bool = True) -> tuple[Any, list[Rule]]:
    """(value everywhere or MISSING, rules).

    :param follows_concurrency: False where every value was written for one topology: no expressions,
        and topologies before concurrencies.
    """
    if len({key(v) for _, v in rows}) == 1:
        return rows[0][1], []
    if follows_concurrency and all(v is not MISSING for _, v in rows) and (text := expression(rows)):
        return {"expr": text}, []
    by_label: dict[str, list[tuple[Point, Any]]] = {}
    for row in rows:
        by_label.setdefault(row[0].label, []).append(row)
    base, rules = _by_topology(by_label, follows_concurrency)
    if follows_concurrency:
        steps = _by_concurrency(rows)
        if steps is not None and len(steps) < len(rules) + (base is not MISSING):
            return MISSING, steps
    return base, rules


def _by_topology(
    by_label: dict[str, list[tuple[Point, Any]]], follows_concurrency: bool
) -> tuple[Any, list[Rule]]:
    """What most topologies have counts everywhere; the others say what they have, null for nothing."""
    whole: dict[str, tuple[Any, list[str]]] = {}
    runs: list[Rule] = []
    several = len(by_label) > 1
    for label, rows in by_label.items():
        kinds = {key(v) for _, v in rows}
        value: Any = MISSING
        if len(kinds) == 1:
            value = rows[0][1]
        elif follows_concurrency and all(v is not MISSING for _, v in rows) and (text := expression(rows)):
            value = {"expr": text}
        else:
            names = (label,) if several else None
            runs += [((names, span), v) for span, v in _runs(rows)]
            continue
        whole.setdefault(key(value), (value, []))[1].append(label)
    base: Any = MISSING
    most = max(whole.values(), key=lambda item: len(item[1]), default=(MISSING, []))
    if len(most[1]) * 2 > len(by_label) and most[0] is not MISSING:
        base = most[0]
    rules: list[Rule] = []
    for value, labels in whole.values():
        if base is not MISSING and key(value) == key(base):
            continue
        rules.append(((tuple(labels) if several else None, None), value))
    rules += runs
    if base is MISSING:
        return base, [rule for rule in rules if rule[1] is not MISSING]
    return base, [(where, None if v is MISSING else v) for where, v in rules]


def _by_concurrency(rows: list[tuple[Point, Any]]) -> list[Rule] | None:
    seen: dict[int, str] = {}
    for point, value in rows:
        if seen.setdefault(point.concurrency, key(value)) != key(value):
            return None
    return [((None, span), v) for span, v in _runs(rows) if v is not MISSING]


def _runs(rows: list[tuple[Point, Any]]) -> list[tuple[tuple[int, int], Any]]:
    """Neighbouring recorded concurrencies with one value, as (from, to)."""
    ordered = sorted({(p.concurrency, key(v)): v for p, v in rows}.items(), key=lambda item: item[0][0])
    runs: list[tuple[tuple[int, int], Any]] = []
    for _, group in itertools.groupby(ordered, key=lambda item: item[0][1]):
        items = list(group)
        runs.append(((items[0][0][0], items[-1][0][0]), items[0][1]))
    return runs


def fit_tree(
    rows: list[tuple[Point, dict[tuple[str, ...], Any]]], *, follows_concurrency: bool = True
) -> tuple[dict[tuple[str, ...], Any], list[Rule]]:
    """Every path fitted: (path -> value everywhere, rules whose value is path -> value)."""
    base: dict[tuple[str, ...], Any] = {}
    rules: dict[Any, dict[tuple[str, ...], Any]] = {}
    paths = dict.fromkeys(path for _, tree in rows for path in tree)
    for path in paths:
        value, conditions = fit(
            [(point, tree.get(path, MISSING)) for point, tree in rows],
            follows_concurrency=follows_concurrency,
        )
        if value is not MISSING:
            base[path] = value
        for condition, item in conditions:
            rules.setdefault(condition, {})[path] = item
    ordered: list[Rule] = []
    for condition, found in rules.items():
        nulls = _collapsed({path: None for path, item in found.items() if item is None}, base)
        if nulls:
            ordered.append((condition, nulls))
    for condition, found in rules.items():
        values = {path: item for path, item in found.items() if item is not None}
        if values:
            same = next((index for index, (other, _) in enumerate(ordered) if other == condition), None)
            if same is None:
                ordered.append((condition, values))
            elif all(not values or path[: len(null)] != null for path in values for null in ordered[same][1]):
                ordered[same] = (condition, {**ordered[same][1], **values})
            else:
                ordered.append((condition, values))
    return base, ordered


def _collapsed(
    nulls: dict[tuple[str, ...], Any], base: dict[tuple[str, ...], Any]
) -> dict[tuple[str, ...], Any]:
    """Removals of every part of a mapping as the removal of the mapping; else an empty one would stay."""
    made: dict[tuple[str, ...], Any] = {}
    for path in nulls:
        depth = next(index for index, part in enumerate(path) if part in ("args", "env", "config_files")) + 2
        depth += path[depth - 2] == "config_files"
        for length in range(depth, len(path) + 1):
            below = [other for other in base if other[:length] == path[:length]]
            if all(other in nulls for other in below):
                made[path[:length]] = None
                break
    return made


def nested(paths: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    """path -> value as a nested mapping."""
    tree: dict[str, Any] = {}
    for path, value in paths.items():
        node = tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = value
    return tree
