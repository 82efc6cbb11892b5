"""Device telemetry at 2 Hz (1 Hz where the tool gives no more) by one long-running tool a machine.

One process that prints on and on costs far less than one call a second: nvidia-smi alone takes some
hundred milliseconds of a core to start on eight devices.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import deque
from collections.abc import Collection
from pathlib import Path

from isoline.runners.machine.devices import amd, cpu, nvidia, rocm
from isoline.runners.machine.hosts import Host, kill_session
from isoline.runners.telemetry.streams import AmdReader, CpuReader, NvidiaReader, Reader
from isoline.runners.telemetry.table import Sample, SampleStore, write_samples

INTERVAL_MS = 500
AGAIN_S = 1.0
"""Pause before a tool that ended is started again."""

MAX_STARTS = 20
JOIN_S = 5.0

READERS: dict[str, type[Reader]] = {"nvidia": NvidiaReader, "amd": AmdReader, "cpu": CpuReader}


def sample_command(vendor: str) -> tuple[str, ...]:
    """The command that prints telemetry of a vendor's devices until it is ended.

    Without amd-smi the older rocm-smi is called once a second. Each loop ends with its reader: a program
    that cannot print any more fails.
    """
    if vendor == "nvidia":
        return nvidia.query_command(INTERVAL_MS)
    if vendor == "cpu":
        return cpu.loop_command(1.0)
    new, old = " ".join(amd.monitor_command()), " ".join(rocm.SAMPLE_COMMAND)
    return (
        "sh",
        "-c",
        f"if command -v amd-smi >/dev/null 2>&1; then exec {new}; fi; while {old}; do sleep 1; done; exit 1",
    )


class DeviceSampler:
    """Samples the devices of one machine in a thread, from :meth:`start` to :meth:`close`.

    :param devices: indices that are kept; None = all of them.
    :param node: put before the device's index (``n1:0``) where a launch has several machines.
    """

    def __init__(
        self, host: Host, vendor: str, devices: Collection[int] | None = None, *, node: str | None = None
    ) -> None:
        self.host = host
        self.command = sample_command(vendor)
        self._vendor = vendor
        self._kept = None if devices is None else {str(index) for index in devices}
        self._node = node
        self._lock = threading.Lock()
        self._samples = SampleStore()
        self._ended = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._tail: deque[str] = deque(maxlen=3)
        self._starts = 0
        self._thread = threading.Thread(target=self._work, name="isoline-devices", daemon=True)

    def start(self) -> None:
        """Begin to sample. Never raises: a tool that does not work is :meth:`problem`."""
        self._thread.start()

    def close(self) -> None:
        """End the tool and the thread; samples stay readable. May be called twice."""
        self._ended.set()
        self._end_process()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def samples(self, from_ns: int | None = None, to_ns: int | None = None) -> list[Sample]:
        """The samples in [from_ns, to_ns] so far, epoch nanoseconds."""
        return self._samples.between(from_ns, to_ns)

    def problem(self) -> str | None:
        """Why there is nothing, in one line; None once there are samples."""
        if len(self._samples):
            return None
        with self._lock:
            said = self._tail[-1] if self._tail else "it printed nothing"
        return f"{self.command[0]} on {self.host.name} gave no telemetry: {said}"

    def write(self, path: Path, *, from_ns: int | None = None, to_ns: int | None = None) -> int:
        """Write samples as Parquet (see :mod:`isoline.runners.telemetry.table`). Returns how many."""
        return write_samples(path, self.samples(from_ns, to_ns))

    def _work(self) -> None:
        while not self._ended.is_set() and self._starts < MAX_STARTS:
            self._starts += 1
            try:
                self._read_on()
            except OSError as error:
                self._tail.append(f"it cannot be started: {error.strerror}")
            self._ended.wait(AGAIN_S)

    def _read_on(self) -> None:
        reader = READERS[self._vendor]()
        process = self.host.popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            bufsize=1,
        )
        self._process = process
        if self._ended.is_set():  # close() came in between
            self._end_process()
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._take(reader, line.rstrip("\r\n"))
        process.wait()

    def _take(self, reader: Reader, line: str) -> None:
        found = reader.feed(line, time.time_ns())
        if not found:
            with self._lock:
                self._tail.append(line[:200])
        prefix = "" if self._node is None else f"{self._node}:"
        self._samples.add(
            item._replace(device=f"{prefix}{item.device}")
            for item in found
            if self._kept is None or item.device in self._kept
        )

    def _end_process(self) -> None:
        if self._process is not None:
            kill_session(self._process)
