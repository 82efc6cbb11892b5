"""Frontier of 100,000 points: ours beside the same idea in pandas (sort_values and cummax).

Prints the median of 5 of each and their ratio, for three shapes of data. Both must find the same
points; a random cloud has few on its frontier, an anti-correlated curve has all.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pandas as pd

from isoline.analysis.frontier import frontier

N = 100_000
REPEATS = 5


def with_pandas(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The named alternative: sort, running maximum, compare; without tie keys."""
    frame = pd.DataFrame({"x": x, "y": y}).replace([np.inf, -np.inf], np.nan).dropna()
    ordered = frame.sort_values(["x", "y"], ascending=False, kind="stable")
    before = ordered["y"].cummax().shift(fill_value=-np.inf)
    return ordered.index[ordered["y"] > before].to_numpy()[::-1]


def seconds(call: Callable[[], object]) -> float:
    """Median of :data:`REPEATS` runs, after one to warm up."""
    call()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return median(times)


def main() -> None:
    """Print one line for each shape; exit 1 when the two disagree."""
    random = np.random.default_rng(0)
    base = random.random(N)
    shapes = {
        "random cloud": (base, random.random(N)),
        "anti-correlated curve": (base, 1 - base),
        "many ties": (random.integers(0, 300, N) / 1.0, random.integers(0, 300, N) / 1.0),
    }
    print(f"frontier of {N:,} points, median of {REPEATS}")
    for name, (x, y) in shapes.items():
        ours, theirs = frontier(x, y), with_pandas(x, y)
        if not np.array_equal(ours, theirs):
            sys.exit(f"{name}: the two find different points")
        mine, other = seconds(lambda x=x, y=y: frontier(x, y)), seconds(lambda x=x, y=y: with_pandas(x, y))
        print(
            f"  {name:<22} {len(ours):>7,} kept  isoline {mine * 1e3:6.1f} ms  "
            f"pandas cummax {other * 1e3:6.1f} ms  ratio {other / mine:.2f}"
        )


if __name__ == "__main__":
    main()
