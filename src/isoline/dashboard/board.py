"""From a query string to its view: the one way for the page and the JSON, so they cannot differ."""

from __future__ import annotations

from isoline.dashboard.config import Palette
from isoline.dashboard.data import Source
from isoline.dashboard.view import NEWEST, View, build_view, requested_run


def view_of(query: str, source: Source, palette: Palette) -> View:
    """Read what the query asks for and build its view.

    Where no curve has a complete run yet, the newest runs are shown, and a note says so.

    :raises InfraError: when the read copy cannot be read in time.
    """
    board = source.board()
    run = requested_run(query, board.runs)
    notes = []
    frame = board.points if run is None else source.run_points(run)
    if run is None and frame.empty and board.runs:
        frame = source.run_points(NEWEST)
        notes.append("No run is complete yet: this is the newest one of each curve, as far as it is.")
    return build_view(
        query,
        frame,
        board.runs,
        palette,
        quarantined=board.quarantined,
        updated_at=board.updated_at,
        notes=notes,
    )
