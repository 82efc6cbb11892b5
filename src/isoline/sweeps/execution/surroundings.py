"""What is around a launch on its machine: the look before it, what the machine is before and after, its
devices' telemetry meanwhile, and their memory coming free at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isoline.catalog.facts import WeightFile
from isoline.catalog.pools import Pool
from isoline.results.bundles.bundle import write_file
from isoline.results.bundles.records import ReasonNote
from isoline.runners.launchers.compile_cache import CompileCache, compile_cache
from isoline.runners.machine.device_checks import wait_until_idle
from isoline.runners.machine.devices.reader import known_vendor
from isoline.runners.machine.fingerprint import changes, node_fingerprint
from isoline.runners.machine.hosts import Host
from isoline.runners.machine.needs import NeededFile, Problem, for_launch, needs_of_pool
from isoline.runners.machine.preflight import as_json, inspect
from isoline.runners.telemetry.sampler import DeviceSampler
from isoline.runners.telemetry.table import Sample

FREE_S = {"nvidia": 60.0, "amd": 180.0}
"""How long device memory may take to come free after a stop: AMD's driver takes its time."""


@dataclass
class Surroundings:
    """The machine of one launch. Every method is safe to call where there is nothing to look at."""

    pool: Pool
    host: Host
    devices: tuple[int, ...]
    state: Path
    starts_servers: bool = True  # else the devices are those of a server that runs before and after it
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    sampler: DeviceSampler | None = None

    @property
    def is_seen(self) -> bool:
        """Whether the machine is known before the launch; Slurm's is looked at inside the job."""
        return self.pool.is_placed_by_us

    @property
    def vendor(self) -> str | None:
        """Whose devices they are; None where no tool reads them."""
        return known_vendor(self.pool.sku)

    def look(self, folder: Path, weights: Sequence[WeightFile] = ()) -> list[Problem]:
        """The preflight of the machine; kept as ``preflight.json``.

        :param weights: the launch's single files of weights: all of each must be in the pool's model cache.
        :returns: what speaks against the launch.
        """
        if not (self.is_seen and self.starts_servers):
            return []
        state = self.state.absolute()
        cache = self.pool.container.model_cache_in(state) if self.pool.container is not None else None
        needs = for_launch(
            needs_of_pool(self.pool, state=str(state)),
            devices=None if self.vendor == "cpu" else self.devices,
            files=[NeededFile(str(cache / item.place), item.bytes) for item in weights if cache is not None],
        )
        report = inspect(self.host, needs)
        text = json.dumps(as_json(self.pool.name, [report]), indent=1, ensure_ascii=False) + "\n"
        write_file(folder / "preflight.json", text.encode())
        return report.problems

    def begin(self) -> None:
        """Take the fingerprint, and sample the devices from now on."""
        if self.is_seen and (vendor := self.vendor) is not None:
            self.before = node_fingerprint(self.host, vendor, self.devices)
            self.sampler = DeviceSampler(self.host, vendor, None if vendor == "cpu" else self.devices)
            self.sampler.start()

    def compile_cache(self, image: str | None) -> CompileCache | None:
        """The launch's folder for compiled kernels; None where nothing is compiled, or it is not known here.

        :raises InfraError: when it cannot be made.
        """
        if self.pool.launcher != "container" or self.vendor == "cpu" or image is None:
            return None
        return compile_cache(
            self.host, self.pool, image, self.pool.sku, self.before.get("driver"), state=self.state
        )

    def samples(self, from_ns: int | None = None, to_ns: int | None = None) -> list[Sample]:
        """The devices' telemetry in [from_ns, to_ns], epoch nanoseconds."""
        return self.sampler.samples(from_ns, to_ns) if self.sampler else []

    def close(self) -> None:
        """End the telemetry, whatever else could not be done. May be called twice."""
        if self.sampler is not None:
            self.sampler.close()

    def end(self, folder: Path, fallback: dict[str, Any]) -> None:
        """End the telemetry, take the fingerprint again, and write ``fingerprint.json`` with what changed.

        :param fallback: the machine that Isoline runs on, where the launch's own was not looked at.
        """
        self.close()
        vendor = self.vendor
        if self.before and vendor is not None:
            self.after = node_fingerprint(self.host, vendor, self.devices)
        content = {
            "before": self.before or fallback,
            "after": self.after or None,
            "changes": changes(self.before, self.after) if self.after else [],
        }
        text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        write_file(folder / "fingerprint.json", text.encode())

    def drained(self) -> ReasonNote | None:
        """Wait until the launch's devices are free again.

        :returns: ``memory_not_freed`` when they are not in time: that machine takes no more launches.
        """
        vendor = self.vendor
        if not (self.is_seen and self.starts_servers) or vendor not in FREE_S:
            return None
        needs = for_launch(needs_of_pool(self.pool, state=str(self.state)), devices=self.devices)
        last = wait_until_idle(self.host, needs, FREE_S[vendor])
        if last.ok is True:
            return None
        detail = f"{FREE_S[vendor]:.0f} s after the stop: {last.detail}"
        return ReasonNote(code="memory_not_freed", detail=detail)
