"""Foreign files in parts, which several processes read (DESIGN 5.6).

A part is some whole files, or some lines of a large file of lines. What comes of a part does not depend
on how the rest was cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from isoline.results.foreign.store import Note
from isoline.results.importers.foreign import Found
from isoline.results.importers.recognise import is_lines, lines_of, read_lines, row_kind_of

PART_BYTES = 4 * 1024**2
"""About what a part is of. Fewer bytes in all are read by this process: a helper costs half a second."""

Files = Sequence[tuple[Path, Note | None]]
UsualOf = Callable[[str, Iterable[Found]], str | None]


@dataclass(frozen=True)
class Part:
    """Some of the work.

    :ivar files: kept files with their notes; the one file that ``lines`` are of.
    :ivar lines: bytes of whole lines; None for whole files.
    :ivar first: how many rows of the file are before them.
    :ivar usual: whose data the file is, for rows that do not tell.
    """

    files: Files
    lines: bytes | None = None
    first: int = 0
    usual: str = "unknown"


def cut(targets: Files, usual_of: UsualOf) -> Iterator[Part]:
    """All files in parts, in their order.

    :param usual_of: whose data the rows of a format are; None where no row says it.
    """
    small: list[tuple[Path, Note | None]] = []
    size = 0
    for target, note in targets:
        try:
            bytes_ = target.stat().st_size
        except OSError:
            bytes_ = 0  # it is read, and refused, where all are
        lines = list(_cut_lines(target, note, usual_of)) if note and bytes_ > PART_BYTES else []
        if lines:
            if small:
                yield Part(small)
            yield from lines
            small, size = [], 0
            continue
        small.append((target, note))
        size += bytes_
        if size > PART_BYTES:
            yield Part(small)
            small, size = [], 0
    if small:
        yield Part(small)


def _cut_lines(target: Path, note: Note, usual_of: UsualOf) -> Iterator[Part]:
    """A large file of lines in parts; nothing where it must be read whole."""
    if not is_lines(note.names[0]) or note.parts:
        return
    try:
        content = target.read_bytes()
    except OSError:
        return
    if hashlib.sha256(content).hexdigest() != target.name:
        return
    lines = lines_of(content)
    kind = row_kind_of(lines, note.forced)
    if kind is None:
        return
    points = (row for n, line in enumerate(lines) for row in read_lines([line], n, note.forced))
    usual = usual_of(kind, points) or "unknown"
    first, held, size = 0, [], 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size > PART_BYTES:
            yield Part([(target, note)], b"\n".join(held), first, usual)
            first, held, size = first + len(held), [], 0
    if held:
        yield Part([(target, note)], b"\n".join(held), first, usual)
