"""InferenceX's master files as rows: what each config expands to, and rows that clash. Pure.

Rules of the expansion as in InferenceX @843c6254 (Apache-2.0), in our own words: a list of
concurrencies counts as it stands, a range doubles from its start and always has its end; a
single-node entry is one row for each concurrency, a fixed-length multi-node entry one row with all
of them, an agentic multi-node entry one row for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Path = tuple[str, ...]


@dataclass(frozen=True)
class Pool:
    """Workers of one side, in the words of the source. GPUs of a worker are tp × pp × pcp."""

    workers: int
    tp: int
    pp: int
    dcp: int
    pcp: int
    ep: int
    dp_attention: bool
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One server start of the reference: one config, topology and list of concurrencies."""

    file: str
    config: str
    scenario: str  # 8k1k, 1k1k, agentic, …
    first: Pool  # the only side, or prefill
    second: Pool | None  # decode
    concurrencies: tuple[int, ...]
    speculative: str
    offload: str
    backend: str | None
    backend_version: str | None
    dram_utilization: float | None
    router: str | None
    transfer: str | None

    @property
    def is_aggregated(self) -> bool:
        """Whether one side does everything (a multi-node entry says so by no decode workers)."""
        return self.second is None or self.second.workers == 0

    def setting(self, name: str) -> str | None:
        """The value of ``NAME=value`` among the settings of either side."""
        for pool in (self.first, self.second):
            for item in pool.settings if pool else ():
                key, _, value = item.partition("=")
                if key == name:
                    return value
        return None


def scenario_name(isl: int, osl: int) -> str:
    """``8k1k`` for 8192/1024; other lengths as ``<isl>-<osl>``."""
    if isl % 1024 == 0 and osl % 1024 == 0:
        return f"{isl // 1024}k{osl // 1024}k"
    return f"{isl}-{osl}"


def concurrencies(entry: Mapping[str, Any]) -> list[int]:
    """The concurrencies of an entry, in its order.

    :raises ValueError: when it says none.
    """
    if "conc-list" in entry:
        return [int(item) for item in entry["conc-list"]]
    if "conc-start" not in entry or "conc-end" not in entry:
        raise ValueError("an entry has conc-list, or conc-start and conc-end")
    level, end = int(entry["conc-start"]), int(entry["conc-end"])
    if not 0 < level <= end:
        raise ValueError(f"no range of concurrencies: {level} to {end}")
    found = []
    while level < end:
        found.append(level)
        level *= 2
    return [*found, end]


def _pool(entry: Mapping[str, Any]) -> Pool:
    return Pool(
        workers=int(entry.get("num-worker", 1)),
        tp=int(entry["tp"]),
        pp=int(entry.get("pp", 1)),
        dcp=int(entry.get("dcp-size", 1)),
        pcp=int(entry.get("pcp-size", 1)),
        ep=int(entry.get("ep", 1)),
        dp_attention=bool(entry.get("dp-attn", False)),
        settings=tuple(str(item) for item in entry.get("additional-settings", ())),
    )


def _named(value: Any) -> str | None:
    """``{name, version}`` as one text."""
    return " ".join(str(value[key]) for key in ("name", "version") if key in value) if value else None


def rows_of(file: str, key: str, config: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of one config.

    :raises ValueError, KeyError, TypeError: when it has not the form of a master entry.
    """
    for kind, blocks in config["scenarios"].items():
        for block in blocks:
            is_fixed = kind == "fixed-seq-len"
            name = scenario_name(block["isl"], block["osl"]) if is_fixed else "agentic"
            for entry in block["search-space"]:
                levels = concurrencies(entry)
                is_multi = "prefill" in entry
                backend = entry.get("kv-offload-backend") or {}
                for chunk in [levels] if is_multi and is_fixed else [[level] for level in levels]:
                    yield Row(
                        file=file,
                        config=key,
                        scenario=name,
                        first=_pool(entry["prefill"] if is_multi else {**entry, "num-worker": 1}),
                        second=_pool(entry["decode"]) if is_multi else None,
                        concurrencies=tuple(chunk),
                        speculative=str(entry.get("spec-decoding", "none")),
                        offload=str(entry.get("kv-offloading", "none")),
                        backend=backend.get("name"),
                        backend_version=str(backend["version"]) if "version" in backend else None,
                        dram_utilization=block.get("dram-utilization"),
                        router=_named(entry.get("router") or config.get("router")),
                        transfer=entry.get("kv-p2p-transfer") or config.get("kv-p2p-transfer"),
                    )


@dataclass(frozen=True)
class Clash:
    """A row that an earlier one stands in the way of. ``is_exact``: nothing at all differs."""

    row: Row
    earlier: Row
    is_exact: bool


_NAMED = ("model-prefix", "precision", "framework", "runner", "disagg")
_DECIDING = ("image", "model", "multinode")


def clashes(rows: Iterable[Row], configs: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[Clash]:
    """Rows that are exactly an earlier one, and other rows that the reference gives an earlier one's name.

    The reference names a result by model prefix, precision, framework, machine label, shape, parallel
    sizes of both sides, disaggregation, drafting, offload and concurrency; not by image, model,
    settings or router.

    :param configs: by (file, key), for what a row does not hold itself.
    """
    first: dict[str, Row] = {}
    exact: dict[str, Row] = {}
    found: list[Clash] = []
    for row in rows:
        config = configs[(row.file, row.config)]
        sides = [_sizes(pool) for pool in (row.first, row.second) if pool is not None]
        offload = row.offload if row.backend is None else row.backend
        named = [config.get(name) for name in _NAMED]
        name = [*named, row.scenario, sides, row.speculative, offload, row.concurrencies]
        settings = [pool.settings for pool in (row.first, row.second) if pool is not None]
        rest = [row.backend_version, row.dram_utilization, row.router, row.transfer, settings]
        short = json.dumps(name, default=str)
        full = json.dumps([name, [config.get(key) for key in _DECIDING], rest], default=str)
        if full in exact:
            found.append(Clash(row, exact[full], is_exact=True))
        elif short in first:
            found.append(Clash(row, first[short], is_exact=False))
        first.setdefault(short, row)
        exact.setdefault(full, row)
    return found


def _sizes(pool: Pool) -> list[Any]:
    return [pool.workers, pool.tp, pool.pp, pool.dcp, pool.pcp, pool.ep, pool.dp_attention]


def unknown_labels(
    configs: Mapping[tuple[str, str], Mapping[str, Any]], runners: Mapping[str, Any]
) -> dict[tuple[str, str], str]:
    """(file, config) -> the machine label that it names and the list of machines does not have."""
    known = set(runners.get("labels") or {})
    return {
        where: str(config.get("runner"))
        for where, config in configs.items()
        if config.get("runner") not in known
    }
