"""Client profiles: how the load generator is set up on a kind of machine, as data.

A profile is part of ``point_digest``: the same server measured by another kind of client is another
point. The tick rate itself is not part of it (it is raised when a point turns out faster than
expected); the rule that gives it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from isoline.errors import InputError

AIPERF_VERSION = "0.13"
"""The minor version of AIPerf that the adapter is written for and tested with."""


@dataclass(frozen=True)
class ClientProfile:
    """How AIPerf is run.

    :param name: the profile's name in scenarios and pools.
    :param connection_reuse: ``never`` (a new connection for each request: no keep-alive race with
        a small server) or ``pooled``.
    :param is_ticked: poll for the next request at a constant rate. AIPerf's own closed loop spins
        one core; with the engine on the same cores it falsifies the result 4 to 6 times.
    :param min_tick_hz: the lowest tick rate; the mean idle time of a lane is half a tick.
    :param completions_factor: tick rate over the expected completions per second. The rate is
        also a cap, and it comes near one at a third.
    :param max_busy_share: CPU share of one core above which a process of the client counts as
        saturated. The timing manager spins by design where the profile has no tick.
    :param max_send_delay_ms: send delay (p90) that is always allowed; above it 2 % of ttft count.
        Where the engine shares the client's cores, a wake-up alone takes some milliseconds.
    """

    name: str
    connection_reuse: Literal["never", "pooled"]
    is_ticked: bool
    min_tick_hz: float = 50.0
    completions_factor: float = 5.0
    max_busy_share: float = 0.85
    max_send_delay_ms: float = 5.0

    def tick_hz(self, concurrency: int, expected_completions_per_s: float | None = None) -> float | None:
        """The tick rate for a point, in Hz; None where the profile has none.

        At least ``completions_factor`` times the expected completions per second, and half the
        concurrency (a point of 512 lanes starts within 2 s).
        """
        if not self.is_ticked:
            return None
        expected = expected_completions_per_s or 0.0
        return float(math.ceil(max(self.min_tick_hz, self.completions_factor * expected, concurrency / 2)))

    def identity(self) -> dict[str, Any]:
        """What goes in ``point_digest``: generator, version, profile and everything that it sets."""
        return {
            "generator": "aiperf",
            "version": AIPERF_VERSION,
            "profile": self.name,
            "connection_reuse": self.connection_reuse,
            "loop": "closed",
            "tick": {"min_hz": self.min_tick_hz, "completions_factor": self.completions_factor}
            if self.is_ticked
            else None,
            "export": "raw",
            "tokens": "server_usage",
        }


PROFILES: dict[str, ClientProfile] = {
    profile.name: profile
    for profile in (
        ClientProfile("shared-cpu", connection_reuse="never", is_ticked=True, max_send_delay_ms=10.0),
        ClientProfile("gpu-host", connection_reuse="pooled", is_ticked=False),
    )
}
"""``shared-cpu``: client and engine share the cores (demo, CI). ``gpu-host``: the default elsewhere."""


def profile(name: str) -> ClientProfile:
    """The profile of that name.

    :raises InputError: when there is none.
    """
    try:
        return PROFILES[name]
    except KeyError:
        raise InputError(
            f"unknown client profile {name!r}", remedy=f"known: {', '.join(sorted(PROFILES))}"
        ) from None
