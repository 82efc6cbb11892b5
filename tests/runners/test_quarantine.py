"""Nodes that take nothing: by hand, by their errors, by the pool's list; each with its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from isoline.catalog.pools import Excluded, Pool
from isoline.runners.ownership import quarantine
from isoline.runners.ownership.quarantine import NodeError

NOW = datetime(2026, 12, 1, 2, tzinfo=UTC)


def error(minutes: float = 0, code: str = "server_killed") -> NodeError:
    """An error of the machine so many minutes after NOW."""
    return NodeError(quarantine.stamp(NOW + timedelta(minutes=minutes)), "p", "r", "l-1", code, "seen")


@pytest.fixture
def pool() -> Pool:
    """A pool with one node excluded for good and one until an hour ago."""
    ended = quarantine.stamp(NOW - timedelta(hours=1))
    exclude = [Excluded(node="n8", reason="slow"), Excluded(node="n9", reason="fan", until=ended)]
    return Pool(schema_version=1, name="p", launcher="process", sku="cpu", exclude=exclude)


def test_three_errors_quarantine_a_node_with_an_end(state: Path, pool: Pool) -> None:
    """The third one does, for a while; afterwards the node is as good as new."""
    assert quarantine.note_error(state, "n1", error(0)) is None
    assert quarantine.note_error(state, "n1", error(1, "tool_missing")) is None
    hold = quarantine.note_error(state, "n1", error(2))
    assert hold is not None
    assert hold.until == quarantine.stamp(NOW + timedelta(minutes=2) + quarantine.EXPIRY)
    later = NOW + timedelta(minutes=3)
    away = quarantine.kept_away(state, pool, later)
    assert away["n1"].startswith("quarantined until ")
    assert "server_killed, tool_missing" in away["n1"]
    assert "n1" not in quarantine.kept_away(state, pool, later + quarantine.EXPIRY)
    assert quarantine.note_error(state, "n1", error(60 * 12)) is None, "it begins anew"


def test_a_lost_device_is_enough(state: Path) -> None:
    """The first error of that kind quarantines: the next launch there would meet it too."""
    hold = quarantine.note_error(state, "n1", error(0, "device_lost"))
    assert hold is not None
    assert "device_lost" in hold.reason


def test_a_good_launch_and_time_forget_errors(state: Path) -> None:
    """Only errors in a row, within a day, say something about a node."""
    quarantine.note_error(state, "n1", error(0))
    quarantine.note_error(state, "n1", error(1))
    quarantine.note_good(state, "n1")
    assert quarantine.note_error(state, "n1", error(2)) is None
    assert quarantine.note_error(state, "n2", error(0)) is None
    quarantine.note_error(state, "n2", error(1))
    assert quarantine.note_error(state, "n2", error(60 * 25)) is None


def test_by_hand(state: Path, pool: Pool) -> None:
    """Drained until it is released, with the reason; a release forgets errors as well."""
    quarantine.note_error(state, "gpu@n1", error(0))
    quarantine.hold(state, "gpu@n1", "drained", "new fan", None, NOW)
    assert quarantine.kept_away(state, pool, NOW + timedelta(days=9))["gpu@n1"] == "drained: new fan"
    was = quarantine.release(state, "gpu@n1")
    assert was.hold is not None
    assert len(was.errors) == 1
    assert quarantine.all_nodes(state) == []


def test_the_pools_own_list_counts_until_its_date(state: Path, pool: Pool) -> None:
    """Excluded nodes are kept away from as long as the file says."""
    assert quarantine.kept_away(state, pool, NOW) == {"n8": "excluded: slow"}


@pytest.mark.parametrize(
    "text",
    [
        "[1,",
        "[" * 100_000,
        '{"node": "n1", "errors": 5, "hold": null}',
        '{"node": "n7", "errors": [], "hold": null}',
        '{"node": "n1", "errors": [], "hold": {"kind": "drained", "reason": "", "since": "", "until": "x"}}',
        '{"node": "n1", "errors": [], "hold": {"kind": "drained", "reason": "", "since": "", '
        '"until": "2027-01-01T00:00:00"}}',
        '{"node": "n1", "errors": [{"at": "x", "pool": "", "run_id": "", "launch_id": "", "code": "", '
        '"detail": ""}], "hold": null}',
    ],
)
def test_a_damaged_record_holds_its_node(state: Path, pool: Pool, text: str) -> None:
    """It may have said "drained": the node takes nothing until somebody releases it."""
    path = state / "nodes" / "n1.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert "cannot be read" in quarantine.kept_away(state, pool, NOW)["n1"]
    quarantine.note_error(state, "n1", error(0))
    quarantine.release(state, "n1")
    assert "n1" not in quarantine.kept_away(state, pool, NOW)
