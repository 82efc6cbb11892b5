"""What a reader of a foreign format hands over: points in the words of their file. Pure.

A reader converts units and says what it had to guess; it resolves no name. Throughput is either per
GPU of the whole deployment (``values``) or of the whole system (``system_tps``), never per role.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from pydantic_core import from_json

Code = Literal[
    "unreadable",
    "unknown_format",
    "unknown_name",
    "name_against_content",
    "no_model",
    "no_rows",
    "not_a_point",
]


class ForeignError(ValueError):
    """A file or row that cannot be taken in. It goes to quarantine as ``<code>: <text>``.

    ``row`` is its place in the file, None where it is the whole file.
    """

    def __init__(self, code: Code, text: str, row: int | None = None) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.row = row

    def at(self, row: int) -> ForeignError:
        """The same, of one row."""
        return ForeignError(self.code, self.text, row)


@dataclass(frozen=True)
class Role:
    """Workers of one role, in the words of the source. ``pcp`` splits a prompt over further devices."""

    workers: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dpa: int = 1
    dcp: int = 1
    pcp: int = 1

    @property
    def gpus(self) -> int:
        """Devices: workers × tp × pp × pcp. ep, DP attention and dcp divide these."""
        return self.workers * self.tp * self.pp * self.pcp

    def label(self) -> str:
        """As of our own topologies: ``tp8``, ``2xtp4-ep4``."""
        text = f"tp{self.tp}"
        named = (("pp", self.pp), ("ep", self.ep), ("dpa", self.dpa), ("dcp", self.dcp), ("pcp", self.pcp))
        for short, value in named:
            if value > 1:
                text += f"-{short}{value}"
        return f"{self.workers}x{text}" if self.workers > 1 else text


@dataclass(frozen=True)
class Topology:
    """One role, or prefill and decode. ``gpus`` is None where the sizes contradict each other."""

    label: str
    gpus: int | None
    prefill_gpus: int | None = None
    decode_gpus: int | None = None

    @property
    def is_split(self) -> bool:
        """Whether prefill and decode are apart."""
        return self.label.startswith("p") and "_d" in self.label


@lru_cache(maxsize=1 << 12)
def one_role(role: Role) -> Topology:
    """The topology of a deployment without separate roles."""
    return Topology(role.label(), role.gpus)


@dataclass(frozen=True)
class Score:
    """One result of an evaluation. ``value`` and ``error`` (standard error) are shares from 0 to 1."""

    task: str
    value: float
    error: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Sample:
    """One sample of a power log."""

    t: datetime
    device: str
    name: str
    value: float


@dataclass
class ForeignPoint:
    """One row of a foreign file.

    :param row: its place in the file, from 0.
    :param raw: the row as it is there.
    :param line: its own line, in a file of lines; None elsewhere.
    :param client: what made the load, as a client class.
    :param model: as the row says it; likewise engine, sku, precision (of the weights) and kv_precision.
    :param scenario: name of the load; ``isl`` and ``osl`` are nominal lengths, None where not said.
    :param concurrency: None for an open loop, where ``rate`` (requests/s) says what was asked.
    :param topology: None where the file does not tell.
    :param values: metrics of our registry, by name; per GPU means all GPUs of the deployment.
    :param system_tps: ``total``, ``output``, ``input`` tokens/s of the whole deployment.
    :param asked: requests that were asked for, completed and failed; None where the file does not say.
    :param identity: what else tells two points apart (image, router), never a measured number.
    :param marks: short words that are shown beside the point.
    :param notes: one line each: what was converted, dropped or guessed.
    :param run: the run that the row is of, where it says one.
    """

    row: int
    raw: Mapping[str, Any]
    client: str
    scenario_kind: Literal["fixed_length", "trace"] = "fixed_length"
    scenario: str | None = None
    isl: int | None = None
    osl: int | None = None
    model: str | None = None
    engine: str | None = None
    sku: str | None = None
    precision: str | None = None
    kv_precision: str | None = None
    speculative: str | None = None
    kv_offload: str | None = None
    concurrency: int | None = None
    rate: float | None = None
    topology: Topology | None = None
    multi_node: bool | None = None
    values: dict[str, float] = field(default_factory=dict)
    system_tps: dict[str, float] = field(default_factory=dict)
    asked: int | None = None
    completed: int | None = None
    failed: int | None = None
    window_s: float | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    run: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    line: str | None = None

    @property
    def only_scores(self) -> bool:
        """Whether the row is an evaluation, which has no speed."""
        return bool(self.scores)


@dataclass(frozen=True)
class ForeignFile:
    """A file to read. ``parts`` are files beside it that belong to it, by name."""

    name: str
    content: bytes
    parts: Mapping[str, bytes] = field(default_factory=dict)


Found = ForeignPoint | ForeignError
"""What a reader gives for each row: a bad row never takes the others with it."""


def load_json(content: bytes) -> Any:
    """The JSON in a file; a file of lines becomes a list.

    :raises ForeignError: ``unreadable``.
    """
    with contextlib.suppress(ValueError):
        return from_json(content)  # five times as fast; what it does not take, the library's own may
    try:
        return json.loads(content)
    except RecursionError:
        raise ForeignError("unreadable", "nested too deeply") from None
    except ValueError as error:
        raise ForeignError("unreadable", f"not JSON: {' '.join(str(error).split())[:120]}") from None


MAX_NUMBER = 1e300
"""A whole number beyond it is none that anybody measured, and does not fit a float."""

MAX_WHOLE = 2**31 - 1
"""The largest count that the tables hold."""


# --- values that are written in several ways --------------------------------------------------


def number(value: Any) -> float | None:
    """A finite number, also one that is written as text; None for anything else, booleans included."""
    if type(value) is float:  # nearly always
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float) or abs(value) > MAX_NUMBER:
        return None
    return float(value) if math.isfinite(value) else None


def whole(value: Any) -> int | None:
    """A whole number, also one that is written as text or as 8.0."""
    if type(value) is int:  # nearly always
        return value if -MAX_WHOLE <= value <= MAX_WHOLE else None
    if value is None:
        return None
    found = number(value)
    return int(found) if found is not None and abs(found) <= MAX_WHOLE and found == int(found) else None


def stated_count(row: Mapping[str, Any], *keys: str) -> int | None:
    """The first of these that says a count; None where none of them is there.

    :raises ForeignError: for one that is there and is no count: it must not look like one that nobody gave.
    """
    for key in keys:
        value = row.get(key)
        if value is None or value == "":
            continue
        count = whole(value)
        if count is None or count < 1:
            raise ForeignError("not_a_point", f"{key} is {str(value)[:40]!r}")
        return count
    return None


def boolean(value: Any) -> bool | None:
    """True or False, also as text ("true", "False"); None for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return None


def text(value: Any) -> str | None:
    """A text that is not empty; numbers (ids) become texts, so that 12 and "12" are one."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return str(value) if abs(value) < MAX_NUMBER else None
    return writable(value.strip()) or None if isinstance(value, str) else None


def writable(value: str) -> str:
    """A text that UTF-8 can write: half a surrogate pair, as in JSON or in a file's name, becomes ``?``."""
    return value if value.isascii() else value.encode("utf-8", errors="replace").decode()


_QUANTITY = re.compile(r"^\s*(-?\d+(?:\.\d+)?)\s*(?:W|%|MiB|MHz|C)?\s*\Z")


def quantity(value: Any) -> float | None:
    """A number with its unit behind, as nvidia-smi prints it (``610.00 W``); None for ``[N/A]``."""
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    return float(match.group(1)) if match else number(value)


def clean_keys(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose keys have lost a colon behind (``request_goodput:``)."""
    return {str(key).removesuffix(":"): value for key, value in row.items()}


def moment(value: Any) -> datetime | None:
    """A time, UTC without a zone: seconds since 1970, ISO 8601, a date, or ``20260804-143300``."""
    seconds = number(value)
    if seconds is not None and 1e9 < seconds < 1e10:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    if not isinstance(value, str):
        return None
    try:
        if re.fullmatch(r"\d{8}-\d{6}", value):
            return datetime.strptime(value, "%Y%m%d-%H%M%S")
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def scenario_of(isl: int, osl: int) -> str:
    """``8k1k`` for 8192/1024; other lengths as ``<isl>-<osl>``."""
    if isl % 1024 == 0 and osl % 1024 == 0:
        return f"{isl // 1024}k{osl // 1024}k"
    return f"{isl}-{osl}"


def failed_verdict(completed: int, failed: int) -> str | None:
    """The reason code that failures give: at most 5 % is partial, above invalid (DESIGN 5.4)."""
    if not failed:
        return None
    return "failed_requests" if failed <= MAX_FAILED_SHARE * (completed + failed) else "too_many_failed"


MAX_FAILED_SHARE = 0.05
"""Hard cap of lost requests up to which what was measured still says something."""
