"""Made-up series of nights with known truth, for the trend's simulation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from isoline.analysis.noise import Constants
from isoline.analysis.trend import REGRESSED, Judged, Nights, judge


@dataclass(frozen=True)
class World:
    """How a fleet's numbers come about.

    :param cv: of a single measurement (share).
    :param repetitions: a night, before any re-measurement.
    :param nodes: machines; each night is on one of them, by chance.
    :param node_sd: standard deviation of the machines' effects (share).
    :param night_sd: what a whole night has in common (share).
    :param drop: share by which all is slower from night ``at`` on.
    """

    cv: float
    repetitions: int = 3
    nodes: int = 1
    node_sd: float = 0.0
    night_sd: float = 0.0
    drop: float = 0.0
    at: int = 40


def nights(
    world: World, series: int, count: int, seed: int, constants: Constants, together: int = 1
) -> Nights:
    """``series`` × ``count`` nights; the re-measurements are there for every night, used or not.

    :param together: so many neighbouring series are readings of one curve: same node, same night, and
        half of the variance of a single measurement in common.
    """
    random = np.random.default_rng(seed)
    curves = series // together

    def shared(values: np.ndarray) -> np.ndarray:
        return np.repeat(values, together, axis=0)

    node = random.integers(0, world.nodes, (curves, count))
    effect = random.normal(0, world.node_sd, (curves, world.nodes))
    level = shared(
        np.take_along_axis(effect, node, axis=1) + random.normal(0, world.night_sd, (curves, count))
    )
    level[:, world.at :] += np.log(1 - world.drop)

    def measured(repetitions: int) -> tuple[np.ndarray, np.ndarray]:
        own = random.standard_normal((series, count, repetitions))
        if together > 1:
            common = shared(random.standard_normal((curves, count, repetitions)))
            own = (own + common) / np.sqrt(2)
        values = 1000 * np.exp(level)[..., None] * (1 + world.cv * own)
        mean = values.mean(axis=2)
        return mean, (((values - mean[..., None]) / mean[..., None]) ** 2).sum(axis=2)

    value, spread = measured(world.repetitions)
    again, again_spread = measured(constants.more)
    whole = np.ones((series, count))
    return Nights(
        value=value,
        n=whole * world.repetitions,
        spread=spread,
        again_value=again,
        again_n=whole * constants.more,
        again_spread=again_spread,
        node=shared(node),
        segment=np.zeros((series, count), dtype=np.int64),
        measured=whole.astype(bool),
    )


@dataclass(frozen=True)
class Outcome:
    """Shares of series, and what it cost.

    :param alarmed: with any ``regressed`` from night 31 on.
    :param found: regressed within three nights of the drop.
    :param alerts: regressions that opened from night 31 on, by series.
    :param extra: re-measurements a night and series from night 31 on.
    """

    alarmed: float
    found: float
    alerts: float
    extra: float


def outcome(world: World, judged: Judged, constants: Constants) -> Outcome:
    """What a simulation showed."""
    regressed = judged.state == REGRESSED
    before = np.concatenate((np.zeros((len(regressed), 1), dtype=bool), regressed[:, :-1]), axis=1)
    return Outcome(
        alarmed=float(regressed[:, 30:].any(axis=1).mean()),
        found=float(regressed[:, world.at : world.at + 3].any(axis=1).mean()),
        alerts=float((regressed & ~before)[:, 30:].sum(axis=1).mean()),
        extra=float(judged.asked[:, 30:].mean() * constants.more),
    )


def simulate(
    world: World, series: int, seed: int, constants: Constants | None = None, count: int = 60
) -> Outcome:
    """Judge simulated nights by the real rules."""
    chosen = constants or Constants()
    made = nights(world, series, count, seed, chosen)
    return outcome(world, judge(made, "max", chosen), chosen)


def fleet(
    world: World, curves: int, seed: int, readings: int = 3, constants: Constants | None = None
) -> np.ndarray:
    """False alerts of each of ``curves`` curves (three readings are one alert) in nights 31 to 60."""
    chosen = constants or Constants()
    made = nights(world, curves * readings, 60, seed, chosen, together=readings)
    regressed = (judge(made, "max", chosen).state == REGRESSED).reshape(curves, readings, 60).any(axis=1)
    before = np.concatenate((np.zeros((curves, 1), dtype=bool), regressed[:, :-1]), axis=1)
    return np.asarray((regressed & ~before)[:, 30:].sum(axis=1))


def with_drop(world: World, drop: float = 0.05) -> World:
    """The same world with a true drop."""
    return replace(world, drop=drop)


def fleets(
    world: World, cvs: tuple[float, ...], count: int, seed: int, constants: Constants | None = None
) -> np.ndarray:
    """False alerts in 30 days of each of ``count`` fleets of 60 curves, an equal share at each CV."""
    share = 60 // len(cvs)
    alerts = [
        fleet(replace(world, cv=cv), count * share, seed + place, constants=constants)
        for place, cv in enumerate(cvs)
    ]
    return np.asarray(sum(part.reshape(count, share).sum(axis=1) for part in alerts))
