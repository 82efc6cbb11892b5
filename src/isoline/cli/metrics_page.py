"""The generated part of ``docs/metrics.md``: what the registry and the constants say, as tables."""

from __future__ import annotations

from pathlib import Path

from isoline.errors import GateFailedError, InputError

PAGE = "docs/metrics.md"
BEGIN = "<!-- begin: written by `make docs` -->"
END = "<!-- end: written by `make docs` -->"

_DIRECTION = {"max": "more", "min": "less", None: ""}


def generated() -> str:
    """The tables between the markers, as Markdown; the same bytes on every machine."""
    from isoline.analysis import intervals
    from isoline.results.metrics import derive, windows
    from isoline.results.metrics.registry import AXES, FROM_READINGS, METRICS, PERCENTILES

    lines = ["| metric | unit | better | column | definition |", "|---|---|---|---|---|"]
    for metric in METRICS.values():
        lines.append(
            f"| `{metric.name}` | {metric.unit} | {_DIRECTION[metric.better]} | "
            f"{'yes' if metric.headline else ''} | {metric.definition} |"
        )
    lines += ["", "Made of a reading, never stored, never interpolated on their own:", ""]
    lines += ["| metric | unit | better | definition |", "|---|---|---|---|"]
    for item in FROM_READINGS.values():
        made = item.metric
        lines.append(f"| `{made.name}` | {made.unit} | {_DIRECTION[made.better]} | {made.definition} |")
    lines += ["", "Default axes:", "", "| kind of scenario | x | y |", "|---|---|---|"]
    lines += [f"| {kind} | `{axes.x}` | `{axes.y}` |" for kind, axes in AXES.items()]
    needs = ", ".join(f"p{percentile}: {derive.percentile_n(percentile)}" for percentile in PERCENTILES)
    lines += ["", "Constants:", "", "| what | value |", "|---|---|"]
    lines += [
        f"| {what} | {value} |"
        for what, value in (
            ("smallest number of values for which a percentile is stored", needs),
            ("share of the asked concurrency in flight in a steady window", f"{windows.STEADY_SHARE:.0%}"),
            (
                "longest drop below it that a steady window may bridge",
                f"{windows.MIN_BRIDGE_S:g} s, or {windows.BRIDGE_SHARE:.0%} of the median duration if longer",
            ),
            (
                "completions that a steady window needs",
                f"{derive.MIN_STEADY_COMPLETIONS}, and 3 × concurrency",
            ),
            ("resamplings of a bootstrap over repetitions", str(intervals.DRAWS)),
            ("resamplings of a bootstrap within a run", str(intervals.WITHIN_DRAWS)),
            ("confidence of both", f"{intervals.CONFIDENCE:.0%}"),
        )
    ]
    return "\n".join(lines)


def with_generated(page: str) -> str:
    """The page with its generated part brought up to date.

    :raises InputError: when the markers are missing.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise InputError("the markers of the generated part are missing", where=PAGE)
    return f"{head}{BEGIN}\n{generated()}\n{END}{tail}"


def write_page(project: Path, *, check: bool = False) -> bool:
    """Bring ``docs/metrics.md`` up to date. Returns whether it was changed.

    :param check: write nothing.
    :raises GateFailedError: with ``check``, when the page is old.
    """
    path = project / PAGE
    if not path.is_file():
        return False  # a project of somebody's own need not carry this page
    old = path.read_text(encoding="utf-8")
    new = with_generated(old)
    if new == old:
        return False
    if check:
        raise GateFailedError("differs from the program", where=PAGE, remedy="run `make docs`")
    path.write_text(new, encoding="utf-8")
    return True
