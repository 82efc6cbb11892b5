"""The warehouse as it was at an earlier moment: the same tables, under the same names (DESIGN 5.6).

Nothing is kept twice. A run was there from the moment that its last bundle was done, a decision from its
date; so the past is a view on the tables, and every query works on it unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

from isoline.catalog.documents import nearest
from isoline.errors import InputError
from isoline.results.warehouse.file import Connection, open_reader
from isoline.results.warehouse.schema import RUN_TABLES

_DAY = re.compile(r"^\d{4}-\d{2}-\d{2}\Z")
_TIME = re.compile(r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")

OPTION = "--as-of"


@dataclass(frozen=True)
class Moment:
    """One moment of the past.

    :param text: as a person wrote it: a day, a time or a run.
    :param until: UTC without a zone; what was finished then or before counts.
    """

    text: str
    until: datetime

    @property
    def day(self) -> date:
        """The day on which it lies: decisions and price lists count up to it."""
        return self.until.date()


def moment_of(con: Connection, text: str) -> Moment:
    """A day (its end, UTC), a time (UTC where it names no zone), or a run (when it was finished).

    :param con: from :func:`isoline.results.warehouse.file.open_reader`.
    :raises InputError: for none of these, and for a run that is not finished.
    """
    if _DAY.match(text) or _TIME.match(text):
        try:
            if _DAY.match(text):
                return Moment(text, datetime.combine(date.fromisoformat(text), time.max))
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise InputError(f"no such day or time: {text!r} ({error})", where=OPTION) from None
        return Moment(text, moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None))
    row = con.execute("SELECT finished_at FROM runs WHERE run_id = ?", [text]).fetchone()
    if row is None:
        runs = [name for (name,) in con.execute("SELECT run_id FROM runs ORDER BY run_id").fetchall()]
        near = nearest(text, runs)
        raise InputError(
            f"no day, time or run: {text!r}", where=OPTION, remedy=f"write 2026-12-01, or a run; {near}"
        )
    if row[0] is None:
        raise InputError(
            f"nobody knows when {text} was finished", where=OPTION, remedy="name a day, or another run"
        )
    return Moment(text, row[0])


def moment_at(warehouse: Path, text: str | None) -> Moment | None:
    """:func:`moment_of` for the warehouse at a path; None for None.

    :raises InputError: as there, and where there is no warehouse yet.
    """
    if text is None:
        return None
    con = open_reader(warehouse)
    try:
        return moment_of(con, text)
    finally:
        con.close()


def open_at(warehouse: Path, moment: Moment | None, **how: Any) -> Connection:
    """A reader as :func:`isoline.results.warehouse.file.open_reader`, at a moment; None: as it is now.

    The tables as they are now stay there under ``warehouse.<table>``.
    """
    con = open_reader(warehouse, **how)
    if moment is not None:
        travel(con, moment)
    return con


def travel(con: Connection, moment: Moment) -> None:
    """Put views over the tables of a reader that show what was there at a moment.

    Of runs: those that were finished. Of decisions: those that were dated by then; a point that was
    withdrawn later is what it was before. Of prices: the lists of then. A run that was continued later
    comes in with its end. A decision that somebody took out of the file was never there.
    """
    until = f"TIMESTAMP '{moment.until.isoformat(sep=' ')}'"
    day = f"'{moment.day.isoformat()}'"
    runs = f"(SELECT run_id FROM warehouse.main.runs WHERE finished_at <= {until})"
    later = f"FROM warehouse.main.overrides WHERE action = 'withdraw' AND dated > {day} LIMIT 1"
    is_withdrawn_later = con.execute(later).fetchone() is not None
    for table in RUN_TABLES:
        what, where = "*", f"run_id IN {runs}"
        if table.name == "overrides":
            where += f" AND dated <= {day}"
        elif table.name == "quarantine":
            # A run without a usable plan is in no other table: its id says when it began.
            began = "try_strptime(left(run_id, 16), '%Y%m%dT%H%M%SZ')"
            where = f"coalesce({began} <= {until}, {where})"
        elif table.name == "points" and is_withdrawn_later:
            what = _POINTS.format(day=day)
        con.execute(
            f'CREATE TEMP VIEW "{table.name}" AS SELECT {what} FROM warehouse.main."{table.name}" t '
            f"WHERE {where}"
        )
    con.execute(f"CREATE TEMP VIEW prices AS SELECT * FROM warehouse.main.prices WHERE dated <= {day}")


_LATER = """(list_contains(t.marks, 'withdrawn') AND NOT EXISTS (
    FROM warehouse.main.overrides o WHERE o.action = 'withdraw' AND o.dated <= {day}
    AND o.run_id IN (t.run_id, t.measured_in) AND coalesce(o.point_id, t.point_id) = t.point_id))"""
"""Whether a point was withdrawn after a day, and not before."""

_OTHER_MARKS = "list_filter(t.marks, lambda mark: mark <> 'withdrawn')"

_POINTS = f"""* REPLACE (
    CASE WHEN {_LATER} THEN t.unofficial_otherwise IS NULL ELSE t.official END AS official,
    CASE WHEN {_LATER} THEN t.unofficial_otherwise ELSE t.unofficial_why END AS unofficial_why,
    CASE WHEN {_LATER} THEN {_OTHER_MARKS} ELSE t.marks END AS marks)"""
