"""How long a server may take to get ready, by its size; and whether it still gets on. Pure.

Ready = weights / the rate at which the pool reads them + an allowance for compiling. A clock that is told
the bytes read and the lines of the log ends a start early that does not get on, and lets one that does get
on go past its deadline, up to a hard cap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, field_validator

from isoline.catalog.documents import Document
from isoline.catalog.facts import DATA, load_catalog
from isoline.catalog.pools import Pool
from isoline.catalog.trees import parse_yaml, read_text, to_plain
from isoline.runners.causes import shown

ASSUMED_GB_S = 0.5
"""Read rate of a pool that nobody has measured: a shared file system on a bad day (10^9 bytes a second)."""

LOAD_SLACK = 1.5
"""On the time that reading takes: rates differ from node to node and with the page cache."""

MIN_PAST = 3
"""Past launches that a rate is taken from, at least."""

CAP_FACTOR = 3.0
STALL_S = 300.0
"""Without any progress for so long (or for the compile allowance, where that is longer) a start is over."""

GRACE_S = 120.0
"""Past its deadline a start goes on only while the last progress is younger than this."""

MIN_BYTES = 16_000_000
"""Bytes read that count as progress: a process that only idles reads less."""

MAX_HARD_S = 14_400.0
KEPT_STEPS = 10_000


class StartLine(Document):
    """A line that shows progress: where it contains ``has``; ``re`` takes out what changes."""

    step: str
    has: str = Field(min_length=2)
    re: str | None = None

    @field_validator("re")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            re.compile(value)
        return value


class Startup(Document):
    """The file."""

    schema_version: Literal[1]
    engines: dict[str, list[StartLine]]
    compile_s: dict[str, float]


@lru_cache(maxsize=1)
def startup() -> Startup:
    """Lines of progress and compile allowances, by engine."""
    where = "data/startup.yaml"
    tree = to_plain(parse_yaml(read_text(DATA / "startup.yaml", where), where))
    tree["compile_s"] = {name: float(value) for name, value in tree["compile_s"].items()}
    return Startup.model_validate(tree)


def _own_or_backend(engine: str, known: Iterable[str]) -> str:
    entry = load_catalog().engines.get(engine)
    names = [engine, entry.backend if entry and entry.backend else "any"]
    return next((name for name in names if name in known), "any")


@dataclass(frozen=True)
class ReadyBudget:
    """Times in seconds from the start. ``why`` says in one line what they follow from."""

    deadline_s: float
    hard_cap_s: float
    stall_s: float
    why: str


@dataclass(frozen=True)
class PastLoad:
    """A launch that got ready: bytes of its weights, and how long it took (seconds)."""

    weights_bytes: int
    ready_s: float


def weights_bytes(identity: Mapping[str, Any]) -> int | None:
    """Bytes that a launch reads, by its identity and the catalog; None where they are not known."""
    model = load_catalog().models.get(str(identity["model"]))
    if model is None:
        return None
    total = 0
    for row in identity["weights"]:
        files = [file.bytes for file in model.weights if file.sha256 == row.get("sha256")]
        stores = [one for one in model.checkpoints.values() if one.hub_id == row.get("hub_id")]
        known = files + [one.bytes or int((one.size_gb or 0) * 1e9) for one in stores]
        if not any(known):
            return None
        total += max(known)
    return total or None


def past_rate(loads: Sequence[PastLoad], compile_s: float) -> float | None:
    """GB/s that a pool is known to reach, by its launches; None where there are too few.

    The lower quartile. The compile allowance is taken off where that leaves half of the time.
    """
    rates = sorted(
        load.weights_bytes / 1e9 / max(load.ready_s - compile_s, load.ready_s / 2)
        for load in loads
        if load.ready_s > 0 and load.weights_bytes > 0
    )
    return rates[len(rates) // 4] if len(rates) >= MIN_PAST else None


def ready_budget(
    weights_bytes: int | None,
    pool: Pool,
    engine: str,
    *,
    past: Sequence[PastLoad] = (),
    floor_s: float = 0.0,
) -> ReadyBudget:
    """The deadlines of a start.

    :param weights_bytes: what is read from disk; None: not known, then ``floor_s`` and the compile
        allowance are all there is.
    :param past: launches of that pool, for one whose ``load_gb_s`` nobody has set.
    :param floor_s: the recipe's own ``ready_s``: never less than that.
    """
    table = startup().compile_s
    compile_s = pool.compile_s
    if compile_s is None:
        compile_s = table[_own_or_backend(engine, table)]
    rate, source = pool.load_gb_s, "measured for the pool"
    if rate is None:
        rate, source = past_rate(past, compile_s), "of past launches"
    if rate is None:
        rate, source = ASSUMED_GB_S, "assumed"
    load_s = 0.0 if weights_bytes is None else weights_bytes / 1e9 / rate * LOAD_SLACK
    deadline_s = max(floor_s, load_s + compile_s)
    size = "weights of unknown size" if weights_bytes is None else f"{weights_bytes / 1e9:.1f} GB"
    return ReadyBudget(
        deadline_s=deadline_s,
        hard_cap_s=max(deadline_s, min(deadline_s * CAP_FACTOR, MAX_HARD_S)),
        stall_s=max(STALL_S, compile_s),
        why=f"{size} at {rate:.3g} GB/s ({source}) x {LOAD_SLACK:g} + {compile_s:.0f} s to compile, "
        f"at least {floor_s:.0f} s",
    )


class LogProgress:
    """Reads a growing log and counts what is new in it. Feed it text as it comes, in any pieces."""

    def __init__(self, engine: str) -> None:
        table = startup().engines
        name = _own_or_backend(engine, table)
        self._lines = [*(table[name] if name != "any" else ()), *table["any"]]
        self._seen: set[tuple[str, str]] = set()
        self._rest = ""
        self.steps = 0
        self.last = ""

    def feed(self, text: str) -> None:
        """Take in what was written since the last call. A bar that rewrites its line counts too."""
        *whole, rest = re.split("[\r\n]", self._rest + text)
        self._rest = rest[-2000:]
        for line in whole:
            if key := self._key(line[:2000]):
                self.last = shown(line)
                if key not in self._seen and len(self._seen) < KEPT_STEPS:
                    self._seen.add(key)
                    self.steps += 1

    def _key(self, line: str) -> tuple[str, str] | None:
        for item in self._lines:
            if item.has not in line:
                continue
            if item.re is None:
                return item.step, ""
            if match := re.search(item.re, line):
                groups = match.groupdict()
                return item.step, " ".join(groups.get(name) or "" for name in ("what", "done", "total"))
        return None


class IoMeter:
    """Bytes that a server's processes have read, also those that have ended meanwhile."""

    def __init__(self) -> None:
        self._by_pid: dict[int, int] = {}

    def tell(self, by_pid: Mapping[int, int]) -> int:
        """Take a reading (pid -> bytes since its start), return the sum over all pids so far."""
        for pid, count in by_pid.items():
            self._by_pid[pid] = max(count, self._by_pid.get(pid, 0))
        return sum(self._by_pid.values())


def parse_io(text: str) -> int:
    """Bytes read, of ``/proc/<pid>/io``: by calls (``rchar``), and from storage for mapped files.

    They overlap; that something grows is all that is asked of them.
    """
    found = dict(re.findall(r"(?m)^(rchar|read_bytes): (\d+)$", text))
    return sum(int(value) for value in found.values())


@dataclass(frozen=True)
class TooLate:
    """A start that is over: a reason code and what was seen, one line."""

    code: str
    why: str


@dataclass
class ReadyClock:
    """Told what a start does, it says when to give up. Times are seconds of any one clock.

    :param now: when the start began.
    """

    budget: ReadyBudget
    now: float
    progress: float = field(init=False)  # when there last was any
    bytes_read: int = 0
    steps: int = 0
    last: str = "nothing yet"

    def __post_init__(self) -> None:
        self.progress = self.now
        self._began = self.now

    def forgive(self, gap_s: float) -> None:
        """Leave out a time in which nobody looked (the orchestrator stood still)."""
        self._began += gap_s
        self.progress += gap_s

    def tell(
        self, now: float, bytes_read: int | None = None, log: LogProgress | None = None
    ) -> TooLate | None:
        """None: go on. ``bytes_read`` and ``log`` None: they cannot be seen.

        Where neither can, nothing is concluded from it: the deadline alone decides.
        """
        if bytes_read is not None and bytes_read >= self.bytes_read + MIN_BYTES:
            self.bytes_read = bytes_read
            self.progress = now
            self.last = f"{bytes_read / 1e9:.1f} GB read"
        if log is not None and log.steps > self.steps:
            self.steps = log.steps
            self.progress = now
            self.last = log.last
        took, still = now - self._began, now - self.progress
        if took >= self.budget.hard_cap_s:
            return self._over(f"not ready after {took:.0f} s, the hard cap")
        if bytes_read is None and log is None:
            if took >= self.budget.deadline_s:
                return self._over(f"not ready after {took:.0f} s")
            return None
        if still >= self.budget.stall_s:
            return self._over(f"no progress for {still:.0f} s")
        if took >= self.budget.deadline_s and still >= min(
            GRACE_S, self.budget.stall_s, self.budget.deadline_s
        ):
            return self._over(f"not ready after {took:.0f} s and no progress for {still:.0f} s")
        return None

    def _over(self, what: str) -> TooLate:
        return TooLate("launch_timeout", f"{what}; last seen: {self.last}; allowed were {self.budget.why}")
