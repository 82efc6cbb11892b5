"""From sealed bundles through the real ingest to the page's rows."""

from __future__ import annotations

from typing import Any

from isoline.dashboard.board import view_of
from isoline.dashboard.config import Look
from isoline.dashboard.data import Source
from isoline.dashboard.panel import point_panel
from isoline.results.ingest import ingest
from isoline.settings import Settings


def test_what_was_sealed_is_what_is_shown(settings: Settings, bundles: Any, look: Look) -> None:
    """A run of four points with one that died: three on the page with numbers, one with its reason."""
    plan = bundles.make_plan()
    bundles.make_run(settings.store, plan, outcomes={(8, 1): bundles.Outcome(reasons=("server_died",))})
    ingest(settings)
    source = Source(settings.warehouse, 10.0)
    view = view_of("", source, look.palette)
    assert (view.counts.expected, view.counts.got) == (4, 4)
    assert dict(view.counts.causes) == {"server_died": 1}
    drawn = [row for row in view.rows if row.x is not None]
    assert sorted(row.concurrency for row in drawn) == [1, 2, 4]
    assert any(row.on_frontier for row in drawn)
    for row in view.rows:
        detail = source.detail(row.run_id, row.point_id)
        assert detail is not None and detail.lock is not None
        point_panel(detail, [], internal=True)
        assert detail.canary is not None
