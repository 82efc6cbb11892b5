"""docs/metrics.md says what the registry says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from isoline.cli.metrics_page import PAGE, generated, with_generated, write_page
from isoline.errors import GateFailedError, InputError
from isoline.results.judging.reasons import REASONS
from isoline.results.metrics.registry import METRICS

ROOT = Path(__file__).parents[2]


def test_page_is_up_to_date() -> None:
    """The generated part of the page equals what the program makes today."""
    assert (ROOT / PAGE).is_file()
    write_page(ROOT, check=True)


def test_every_metric_has_a_row() -> None:
    """Each name of the registry stands in the table exactly once."""
    for name in METRICS:
        assert generated().count(f"\n| `{name}` |") == 1


def test_reason_codes_in_the_text_exist() -> None:
    """The hand-written part names no reason code that the program does not have."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+_(?:mismatch|missing))`", text))
    assert len(named) == 4
    assert named <= set(REASONS)


def test_an_old_page_is_seen_and_mended(tmp_path: Path) -> None:
    """A changed table fails the check and is written anew; the hand-written text stays."""
    page = tmp_path / PAGE
    page.parent.mkdir()
    current = (ROOT / PAGE).read_text(encoding="utf-8")
    page.write_text(current.replace("| `window_s` | s |", "| `window_s` | ms |"), encoding="utf-8")
    with pytest.raises(GateFailedError, match="make docs"):
        write_page(tmp_path, check=True)
    assert write_page(tmp_path)
    assert page.read_text(encoding="utf-8") == current
    assert not write_page(tmp_path)


def test_a_page_without_markers_is_refused() -> None:
    """Without its markers the page is left alone, with an error."""
    with pytest.raises(InputError, match="markers"):
        with_generated("# Metrics\n")
