"""How long a person waits for ``isoline --help``, beside an empty program and one with all libraries."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 5
CASES = {
    "isoline --help": [str(Path(sys.executable).parent / "isoline"), "--help"],
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import duckdb, pandas, pyarrow, dash'": [
        sys.executable,
        "-c",
        "import duckdb, pandas, pyarrow, dash",
    ],
}


def seconds(command: list[str]) -> list[float]:
    """Wall-clock seconds of each of the runs, after one that warms the disk cache."""
    found = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - start)
    return found[1:]


def main() -> None:
    """Print one line for each case."""
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, median of {RUNS}"
    )
    for name, command in CASES.items():
        times = seconds(command)
        print(f"{statistics.median(times):7.3f} s  ({min(times):.3f} to {max(times):.3f})  {name}")


if __name__ == "__main__":
    main()
