"""What a person asks the warehouse for: its points by filters, one curve by name, values of x."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoline.errors import InputError
from isoline.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

    from isoline.results.warehouse.asof import Moment

FIELDS = {
    "model": "model",
    "sku": "sku",
    "engine": "engine",
    "precision": "weight_precision",
    "scenario": "scenario",
    "kind": "kind",
    "source": "source",
    "recipe": "recipe_id",
}
"""The words of a selector, and their columns."""

_SHORTEST_KEY = 4
_OPTIONS = {"weight_precision": "precision", "curve_key": "curve"}
"""The options whose name is not that of their column."""


def parse_at(text: str | None) -> list[float] | None:
    """``20,40`` as numbers.

    :raises InputError: for what is no finite number.
    """
    if text is None:
        return None
    values = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(
                f"not a number: {part.strip()!r}", where="--at", remedy="write for example --at 20,40"
            )
        values.append(value)
    return values


def select(
    settings: Settings,
    filters: Mapping[str, str | None],
    *,
    sweep: str | None = None,
    run: str | None = None,
    moment: Moment | None = None,
    metrics: Iterable[str | None] = (),
) -> pd.DataFrame:
    """Points of the warehouse for :func:`isoline.analysis.curves.curve_table`.

    :param moment: as it was then; None: as it is.
    :param metrics: what must be a column beside the default axes, also where it is none of the headline.
        Other metrics are no columns.
    :raises InputError: when nothing matches; names what there is.
    """
    from isoline.results.metrics.registry import AXES, METRICS
    from isoline.results.warehouse.asof import open_at
    from isoline.results.warehouse.snapshots import NEWEST, snapshot_points, with_metrics

    names = [name for name in metrics if name in METRICS]
    axes = [name for pair in AXES.values() for name in (pair.x, pair.y)]
    con = open_at(settings.warehouse, moment)
    try:
        runs = con.execute("SELECT run_id, sweep FROM runs ORDER BY started_at DESC, run_id DESC").fetchall()
        if not runs and moment is not None:
            raise InputError(
                f"no run was finished by {moment.text}", where="--as-of", remedy="name a later day"
            )
        if not runs:
            raise InputError(
                "the warehouse holds no run",
                where=str(settings.warehouse),
                remedy="measure with `isoline sweep run demo`, then `isoline results ingest`",
            )
        if run is not None and run != NEWEST:
            known(run, [name for name, _ in runs], "run")
        if sweep is not None:
            known(sweep, [name for _, name in runs], "sweep")
            if run is None or run == NEWEST:
                run = next(name for name, of in runs if of == sweep)
        wanted = {*names, *axes, "ttft_p50_ms"}
        points = snapshot_points(con, run=run, metrics=wanted, sweep=sweep, **filters)
        if points.empty:
            everything = snapshot_points(con, run=run, sweep=sweep)
            if everything.empty and run is None:
                raise InputError(
                    "no curve has a complete run yet", remedy="see incomplete ones with --run newest"
                )
            refuse_unknown(filters, everything)
            raise InputError("no points match all of these filters", remedy="leave one of them out")
        return with_metrics(con, points, names)
    finally:
        con.close()


def select_published(
    place: str, filters: Mapping[str, str | None], others: Mapping[str, str | None]
) -> pd.DataFrame:
    """Points of a published snapshot, likewise.

    :param others: options that ask for something else than the one snapshot that lies there.
    :raises InputError: when one of those is given, or nothing matches.
    """
    from isoline.results.publishing.published import published_points
    from isoline.results.publishing.remote import place_at

    for name, value in others.items():
        if value is not None:
            raise InputError("one snapshot is there, no other run", where=f"--{name}", remedy="leave it out")
    points = published_points(place_at(place), **filters)
    if points.empty:
        refuse_unknown(filters, published_points(place_at(place)))
        raise InputError("no points match all of these filters", remedy="leave one of them out")
    return points


def refuse_unknown(filters: Mapping[str, str | None], everything: pd.DataFrame) -> None:
    """Where nothing matches: refuse the first filter whose value no point has.

    :param filters: columns of ``everything`` and their values; None is no filter.
    :raises InputError: names the nearest value that is there.
    """
    for name, value in filters.items():
        if value is not None:
            known(value, [str(item) for item in everything[name].dropna()], _OPTIONS.get(name, name))


def known(value: str, values: Sequence[str], what: str) -> None:
    """Refuse a value that is not there, with the nearest one that is.

    :raises InputError: when ``value`` is not among ``values``.
    """
    names = list(dict.fromkeys(values))
    if value in names:
        return
    near = get_close_matches(value, names, n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(names[:8]) or 'none'}"
    raise InputError(f"no {what} {value!r}", where=f"--{what}", remedy=remedy)


def requests_of(bundle: Path) -> Any:
    """The per-request table of a bundle; None where it is gone."""
    path = bundle / "requests.parquet"
    if not path.is_file():
        return None  # thinned, or another machine's store: the interval is then unknown
    import pyarrow.parquet as pq

    return pq.read_table(path)


def one_curve(points: pd.DataFrame, text: str, where: str) -> pd.DataFrame:
    """The rows of the one curve that ``text`` names.

    :param points: rows of ``points`` of any number of curves.
    :param text: the begin of a curve key, or ``sku=h200,engine=vllm``.
    :param where: for messages.
    :raises InputError: when it names none or several; says what would tell them apart.
    """
    if "=" not in text:
        keys = sorted(key for key in set(points["curve_key"].dropna()) if key.startswith(text))
        if len(text) < _SHORTEST_KEY or not keys:
            raise InputError(
                f"no curve {text!r}",
                where=where,
                remedy="give a curve key (`isoline frontier --format json`) or sku=h200,engine=vllm",
            )
        found = points[points["curve_key"].isin(keys)]
    else:
        found = points
        for part in text.split(","):
            word, _, value = (piece.strip() for piece in part.partition("="))
            known(word, list(FIELDS), "word")
            known(value, [str(item) for item in found[FIELDS[word]].dropna()], word)
            found = found[found[FIELDS[word]] == value]
    keys = sorted(set(found["curve_key"]))
    if len(keys) > 1:
        apart = [word for word, name in FIELDS.items() if found[name].nunique() > 1]
        raise InputError(
            f"{text!r} names {len(keys)} curves: {', '.join(keys[:4])}",
            where=where,
            remedy=f"add {' or '.join(apart)}, or give the key" if apart else "give the key of one",
        )
    return found


def title(shared: Mapping[str, Any]) -> str:
    """A curve in one line for people, without what is unknown."""
    names = ("model", "sku", "engine", "weight_precision", "scenario")
    parts = [str(shared[name]) for name in names if isinstance(shared.get(name), str)]
    parts.extend(
        str(shared[name])
        for name in ("speculative", "kv_offload")
        if shared.get(name) not in (None, "none", "off")
    )
    if shared.get("kind") not in (None, "measured"):
        parts.append(str(shared["kind"]))
    if shared.get("source") not in (None, "own"):
        parts.append(f"from {shared['source']}")
    return " · ".join(parts)
