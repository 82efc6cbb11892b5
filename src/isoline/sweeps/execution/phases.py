"""Phases of an attempt or a launch: named, timed, journalled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from isoline.results.bundles.bundle import utc_now
from isoline.results.bundles.records import PhaseRow


class Phases:
    """Collects the phases of one attempt or one launch.

    :param on_change: called with the name at the start of each phase.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self.rows: list[PhaseRow] = []
        self._on_change = on_change

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase. Its outcome is ``ok``, or the name of the error that left it."""
        self._on_change(name)
        started_at, began = utc_now(), time.monotonic()
        outcome = "ok"
        try:
            yield
        except BaseException as error:
            outcome = getattr(error, "code", None) or type(error).__name__
            raise
        finally:
            self.rows.append(
                PhaseRow(
                    name=name,
                    started_at=started_at,
                    duration_s=round(time.monotonic() - began, 3),
                    outcome=outcome,
                )
            )
