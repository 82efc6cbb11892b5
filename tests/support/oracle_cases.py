"""The cases on which our statistics meet their oracles: plain data, the same on every machine."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

REQUIREMENTS = "apache-otava==0.8.0\nstatsmodels==0.15.0\n"
PROGRAM = Path(__file__).with_name("oracle_program.py")


def step_series() -> list[dict[str, Any]]:
    """Series of 40 to 80 nights with no, one or two known steps, each far above the noise."""
    made = []
    for seed in range(60):
        generator = np.random.default_rng([7, seed])
        count = int(generator.integers(40, 81))
        steps = seed % 3
        edges = [count // 3, 2 * count // 3][:steps]
        level = np.full(count, 1000.0)
        for edge in edges:
            level[edge:] *= 1 + float(generator.choice([-1, 1]) * generator.uniform(0.06, 0.15))
        values = level * (1 + 0.01 * generator.standard_normal(count))
        made.append({"values": [round(float(value), 3) for value in values], "steps": edges})
    return made


def cases() -> dict[str, Any]:
    """Everything that the oracles are asked."""
    rng = random.Random(11)
    pairs = [(rng.randint(0, 40), rng.randint(0, 40)) for _ in range(60)] + [(0, 0), (0, 9), (9, 0), (5, 5)]
    shares = [(0, 1), (1, 1), (0, 40), (40, 40)]
    shares += [(rng.randint(0, n), n) for n in (rng.randint(1, 2000) for _ in range(60))]
    families = [[round(rng.random() ** 4, 9) for _ in range(rng.randint(1, 30))] for _ in range(40)]
    families += [[0.01, 0.01, 0.01], [0.0, 1.0], [1.0]]
    return {
        "series": [row["values"] for row in step_series()],
        "wilson": shares,
        "holm": families,
        "mcnemar": pairs,
    }


def dumped() -> str:
    """:func:`cases` as the oracle program reads them."""
    return json.dumps(cases())
