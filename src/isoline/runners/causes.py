"""Why a server failed, by its log: signatures as data (``catalog/data/causes.yaml``) and a matcher.

:func:`explain` is pure. A log may be huge, binary or one endless line: :func:`read_ends` takes bounded
pieces of its begin and end, fixed words are looked for first, and an expression only ever sees one line,
cut to :data:`LINE_CHARS`.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from isoline.catalog.documents import Document
from isoline.catalog.facts import DATA
from isoline.catalog.trees import parse_yaml, read_text, to_plain
from isoline.results.bundles.records import CauseLine, CauseRecord
from isoline.results.judging.reasons import REASONS, Verdict

LINE_CHARS = 2000
"""Of a longer line only so much around the words that were looked for is read."""

SHOWN_CHARS = 300
SHOWN_LINES = 3
HEAD_BYTES = 2 << 20
TAIL_BYTES = 6 << 20
COUNTED_BYTES = 64 << 20
"""Beyond it lines before an offset are not counted."""

MAX_HITS = 20
"""Lines that are looked at for one pattern: a fault that repeats a million times is proven by the first."""

ONLY_THAT = frozenset(("launch_failed", "launch_timeout", "server_died", "not_generating"))
"""Reason codes that say that something ended, not why: a cause that is proven is given beside them."""

Rank = Literal["root", "maybe", "follower"]
RANKS: tuple[Rank, ...] = ("root", "maybe", "follower")


class Pattern(Document):
    """A line proves the cause where it contains ``has``, ``re`` matches and ``but`` does not."""

    has: str = Field(min_length=4)
    re: str | None = None
    but: str | None = None
    engines: list[str] = []

    @field_validator("re", "but")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            re.compile(value)
        return value


class Signature(Document):
    """One cause: how it is known, what it means for the attempt, and what to do.

    ``by_stage``: its name says whether the server was up already (``_load``, ``_run``).
    """

    name: str = Field(pattern=r"^[a-z][a-z_]*$")
    code: str
    rank: Rank
    by_stage: bool = False
    remedy: str
    remedy_running: str | None = None
    patterns: list[Pattern] = Field(min_length=1)

    @field_validator("code")
    @classmethod
    def _code_is_known(cls, value: str) -> str:
        if value not in REASONS:
            raise ValueError(f"{value!r} is no reason code")
        return value


class Signatures(Document):
    """The file."""

    schema_version: Literal[1]
    ignore: list[str]
    ready: list[str]
    causes: list[Signature]


@dataclass(frozen=True)
class Cause:
    """What a log proves. ``lines`` are (line number from 1, text); ``retry``: whether it makes sense.

    Line numbers are those of the text that was given; None after a gap of :func:`read_ends`. ``log`` is
    the name of the file, where it was one.
    """

    name: str
    code: str
    lines: tuple[tuple[int | None, str], ...]
    retry: bool
    remedy: str
    rank: Rank = "root"
    log: str = ""

    def record(self) -> CauseRecord:
        """For launch.json and point.json."""
        return CauseRecord(
            name=self.name,
            code=self.code,
            lines=[CauseLine(log=self.log, number=number, text=text) for number, text in self.lines],
            retry=self.retry,
            remedy=self.remedy,
        )

    def is_proof_against(self, code: str) -> bool:
        """Whether it says more than a code that only says that, or when, a server ended."""
        return self.rank == "root" and self.code != code and code in ONLY_THAT

    def text(self) -> str:
        """One line for people: name, proof and whether a retry makes sense."""
        number, line = self.lines[0]
        place = " ".join(word for word in (self.log, f"line {number}" if number else "") if word)
        place = f" ({place})" if place else ""
        again = "worth a retry" if self.retry else "a retry will not help"
        return f"{self.name}: {line}{place}; {again}; {self.remedy}"


@dataclass(frozen=True)
class LogEnds:
    """Begin and end of a log; the number of the first line of each, None where it is not known."""

    head: str
    tail: str = ""
    head_line: int | None = 1
    tail_line: int | None = None


@lru_cache(maxsize=1)
def signatures() -> Signatures:
    """The table, checked."""
    where = "data/causes.yaml"
    return Signatures.model_validate(to_plain(parse_yaml(read_text(DATA / "causes.yaml", where), where)))


def read_ends(path: Path, offset: int = 0, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> LogEnds:
    """Begin and end of a log from byte ``offset`` on, at most ``head + tail`` bytes; empty without a log."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            offset = min(offset, size)
            file.seek(0)
            before = 1 + file.read(offset).count(b"\n") if offset <= COUNTED_BYTES else None
            file.seek(offset)
            if size - offset <= head + tail:
                return LogEnds(file.read(head + tail).decode(errors="replace"), head_line=before)
            first = file.read(head)
            file.seek(size - tail)
            last = file.read(tail)
    except OSError:
        return LogEnds("")
    # The tail begins inside a line, whose rest proves nothing.
    rest = last.decode(errors="replace").partition("\n")[2]
    return LogEnds(first.decode(errors="replace"), rest, before)


def explain_file(
    path: Path, engine: str | None = None, offset: int = 0, *, is_up: bool = False
) -> Cause | None:
    """:func:`explain` of a log file from byte ``offset`` on; None where it proves nothing or is not there."""
    found = explain(read_ends(path, offset), engine, is_up=is_up)
    return replace(found, log=path.name) if found else None


def explain_logs(
    paths: Iterable[Path], engine: str | None = None, offsets: Mapping[Path, int] | None = None
) -> Cause | None:
    """The first cause in causal order of a deployment that writes several logs; the first log's where equal.

    :param offsets: where to begin in each, bytes (see :func:`log_sizes`): the server was up there already.
        Default: at its begin.
    """
    begins, is_up = offsets or {}, offsets is not None
    causes = (explain_file(path, engine, begins.get(path, 0), is_up=is_up) for path in paths)
    return min((item for item in causes if item), key=lambda item: RANKS.index(item.rank), default=None)


def server_logs(folder: Path) -> list[Path]:
    """The logs of a launch's programs, the main one's first."""
    return sorted(folder.glob("server*.log"), key=lambda path: (path.name != "server.log", path.name))


def log_sizes(folder: Path) -> dict[Path, int]:
    """How long the logs of a launch are now, bytes."""
    return {path: path.stat().st_size for path in server_logs(folder)}


def explain(log: str | LogEnds, engine: str | None = None, *, is_up: bool = False) -> Cause | None:
    """The first cause in causal order that a log proves, else None.

    :param engine: leaves out signatures that are of other engines only.
    :param is_up: the server was up where the log begins.
    """
    ends = LogEnds(log) if isinstance(log, str) else log
    table = signatures()
    parts = [
        part for part in (_Part(ends.head, ends.head_line), _Part(ends.tail, ends.tail_line)) if part.text
    ]
    found = []
    for order, signature in enumerate(table.causes):
        hits = _hits(parts, signature, table.ignore, engine)
        if (first := next(hits, None)) is not None:
            found.append((RANKS.index(signature.rank), *first[:2], order))
    if not found:
        return None
    _, index, position, order = min(found)
    best = table.causes[order]
    name, remedy = best.name, best.remedy
    if best.by_stage:
        is_up = is_up or (index, position) > _first_ready(parts, table)
        name += "_run" if is_up else "_load"
        remedy = best.remedy_running or remedy if is_up else remedy
    proof = _proof(parts, _hits(parts, best, table.ignore, engine))
    return Cause(name, best.code, proof, is_worth_a_retry(best.code), remedy, best.rank)


def is_worth_a_retry(code: str) -> bool:
    """Whether trying again may help: where the machine, not the engine, is to blame."""
    return REASONS[code].verdict is Verdict.INFRA_ERROR


class _Part:
    """One piece of a log, with the begins of its lines."""

    def __init__(self, text: str, first_line: int | None) -> None:
        self.text = text
        self._first = first_line
        self._starts: list[int] | None = None

    def number(self, position: int) -> int | None:
        if self._first is None:
            return None
        if self._starts is None:
            self._starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        return self._first + bisect_right(self._starts, position) - 1

    def line(self, position: int, length: int) -> str:
        """The line of a place, cut around it where it is too long."""
        room = LINE_CHARS // 2
        begin = self.text.rfind("\n", max(0, position - room), position) + 1 or max(0, position - room)
        end = self.text.find("\n", position, position + length + room)
        return self.text[begin : end if end >= 0 else position + length + room]


def _first_ready(parts: Sequence[_Part], table: Signatures) -> tuple[int, int]:
    places = [
        (index, place)
        for index, part in enumerate(parts)
        for words in table.ready
        if (place := part.text.find(words)) >= 0
    ]
    return min(places, default=(len(parts), 0))


def _hits(
    parts: Sequence[_Part], signature: Signature, ignore: Sequence[str], engine: str | None
) -> Iterator[tuple[int, int, str]]:
    """(part, position, line) of each line that proves a signature, in order within each part."""
    for index, part in enumerate(parts):
        hits = [
            hit
            for pattern in signature.patterns
            if not pattern.engines or engine is None or engine in pattern.engines
            for hit in _pattern_hits(part, pattern, ignore)
        ]
        for position, line in sorted(set(hits)):
            yield index, position, line


def _pattern_hits(part: _Part, pattern: Pattern, ignore: Sequence[str]) -> Iterator[tuple[int, str]]:
    position, looked = part.text.find(pattern.has), 0
    while position >= 0 and looked < MAX_HITS:
        looked += 1
        line = part.line(position, len(pattern.has))
        is_proof = (
            not any(words in line for words in ignore)
            and (pattern.re is None or re.search(pattern.re, line) is not None)
            and (pattern.but is None or re.search(pattern.but, line) is None)
        )
        if is_proof:
            yield position, line
        end = part.text.find("\n", position)
        position = part.text.find(pattern.has, end) if end >= 0 else -1


def _proof(
    parts: Sequence[_Part], hits: Iterator[tuple[int, int, str]]
) -> tuple[tuple[int | None, str], ...]:
    lines: dict[str, int | None] = {}
    for index, position, line in hits:
        lines.setdefault(shown(line), parts[index].number(position))
        if len(lines) == SHOWN_LINES:
            break
    return tuple((number, text) for text, number in lines.items())


_CONTROL = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f\ufffd]")


def shown(line: str) -> str:
    """A log line for people: no colours or control characters, blanks once, cut to a readable length."""
    return " ".join(_CONTROL.sub(" ", line).split())[:SHOWN_CHARS]
