"""CV, baseline and node effects of many series at once, against least squares on the single measurements."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm, t

from isoline.analysis.noise import Constants, History, Noise, last_nights, night_of, noise

NIGHTS = 20


def made(seed: int, series: int = 5) -> tuple[History, list[list[list[float]]]]:
    """Nights of 1 to 3 repetitions on two nodes, the first eight of a segment before; and the values."""
    random = np.random.default_rng(seed)
    node = random.integers(0, 2, (series, NIGHTS))
    segment = np.tile((np.arange(NIGHTS) >= 8).astype(np.int64), (series, 1))
    values = [
        [
            list(
                1000
                * (1 - 0.1 * segment[s, n])
                * (1 + 0.03 * node[s, n])
                * (1 + 0.02 * random.standard_normal(random.integers(1, 4)))
            )
            for n in range(NIGHTS)
        ]
        for s in range(series)
    ]
    nights = [[night_of(night) for night in one] for one in values]
    history = History(
        log=np.log([[night.value for night in one] for one in nights]),
        n=np.array([[float(night.n) for night in one] for one in nights]),
        spread=np.array([[night.spread for night in one] for one in nights]),
        node=node,
        segment=segment,
        usable=np.ones((series, NIGHTS), dtype=bool),
    )
    return history, values


@pytest.mark.parametrize("seed", range(5))
def test_cv_and_node_effects_are_those_of_least_squares(seed: int) -> None:
    """On unbalanced nights CV and node effects are those of a linear model with segment and node."""
    history, values = made(seed)
    found = noise(history, np.ones(5, dtype=np.int64), 2, Constants())
    for series, nights in enumerate(values):
        rows, logs = [], []
        for night, repetitions in enumerate(nights):
            for value in repetitions:
                segment, node = history.segment[series, night], history.node[series, night]
                rows.append([1.0 - segment, float(segment), float(node)])
                logs.append(math.log(value))
        solved, squares, rank, _ = np.linalg.lstsq(np.array(rows), np.array(logs), rcond=None)
        df = len(logs) - rank
        assert found.df[series] == df
        assert found.cv[series] == pytest.approx(math.sqrt(squares[0] / df), rel=0.01)
        gap = found.node_effect[series, 1] - found.node_effect[series, 0]
        assert 0.5 * solved[2] < gap <= 1.01 * solved[2]  # shrunk towards 0, never beyond


def test_the_baseline_is_of_this_segment_only() -> None:
    """Twelve nights at 900 in the new segment; a segment with fewer than seven nights has none."""
    history, _ = made(1)
    found = noise(history, np.ones(5, dtype=np.int64), 2, Constants())
    assert np.exp(found.baseline) == pytest.approx([900 * 1.015] * 5, rel=0.03)
    assert found.baseline_nights.tolist() == [12] * 5
    young = noise(history.before(12), np.ones(5, dtype=np.int64), 2, Constants())
    assert np.isnan(young.baseline).all()
    assert np.isfinite(young.cv).all()  # the noise is known from the segment before
    assert np.isnan(young.threshold(3.0, history.node[:, 0], 2.3, 0.025)).all()


def test_nodes_that_do_not_differ_have_no_effect() -> None:
    """Pure chance is shrunk to nothing or nearly so, in most series."""
    random = np.random.default_rng(8)
    log = np.log(1000 * (1 + 0.02 * random.standard_normal((400, NIGHTS))))
    history = History(
        log,
        np.ones_like(log),
        np.zeros_like(log),
        random.integers(0, 3, log.shape),
        np.zeros(log.shape, dtype=np.int64),
        np.ones(log.shape, dtype=bool),
    )
    found = noise(history, np.zeros(400, dtype=np.int64), 3, Constants())
    assert (found.node_effect == 0).all(axis=1).mean() > 0.5
    assert np.abs(found.node_effect).mean() < 0.002


def test_the_threshold_is_its_formula() -> None:
    """max(smallest change, Student's t times the error of night, baseline and node)."""
    one = Noise(
        cv=np.array([0.03]),
        df=np.array([19.0]),
        baseline=np.array([math.log(1000)]),
        baseline_nights=np.array([20]),
        baseline_n=np.array([20.0]),
        node_effect=np.zeros((1, 1)),
        node_variance=np.array([[0.0001]]),
        node_seen=np.array([[20]]),
    )
    node = np.zeros(1, dtype=np.int64)
    error = math.sqrt(0.03**2 / 2 + math.pi / 2 * 0.03**2 / 20 + 0.0001)
    factor = t.isf(norm.sf(2.3), 19)
    assert one.threshold(2.0, node, 2.3, 0.025) == pytest.approx([factor * error])
    assert one.threshold(2.0, node, 2.3, 0.5) == pytest.approx([0.5])
    assert one.change(np.array([math.log(950)]), node) == pytest.approx([-0.05])


def test_the_window_is_of_usable_nights() -> None:
    """The last three true ones of a row, wherever they are."""
    usable = np.array([[True, True, False, True, True, False]])
    assert last_nights(usable, 3).tolist() == [[False, True, False, True, True, False]]
