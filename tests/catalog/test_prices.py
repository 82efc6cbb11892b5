"""Price lists: checked with file and line; the newest that is not later counts; what is unknown is null."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.documents import DocumentError
from isoline.catalog.facts import load_catalog
from isoline.catalog.prices import load_prices, rates_on
from isoline.errors import InputError

LIST = """schema_version: 1
dated: "2026-04-01"
source: a public place, named in words
default_tier: big
tiers:
  big:
    h100: 1.5
  small:
    h100: 2
    b200: 3.0
"""


def write(root: Path, name: str, text: str) -> None:
    folder = root / "dashboard" / "prices"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(text)


def test_the_project_s_lists(project_root: Path) -> None:
    """There are two lists at least; every SKU of a list is known, and a CPU has no price in any."""
    lists = load_prices(project_root)
    assert len(lists) >= 2 and list(lists) == sorted(lists)
    for name in lists:
        for tier, prices in lists[name].tiers.items():
            assert prices.keys() <= load_catalog().skus.keys() - {"cpu"}, (name, tier)
        assert lists[name].default_tier == "hyperscaler"
    newest = rates_on(lists, date(2027, 1, 1))
    assert newest is not None
    assert newest.usd("b200", 90.0) == pytest.approx(1.73 * 1.5)
    assert newest.usd("cpu", 90.0) is newest.usd("mi455x", 90.0) is None


def test_the_newest_list_that_is_not_later(tmp_path: Path) -> None:
    """A day has the list of before; the first list's day is its own; before it, and without lists, none."""
    write(tmp_path, "2026-04", LIST)
    write(tmp_path, "2026-07", LIST.replace("2026-04-01", "2026-07-15").replace("h100: 1.5", "h100: 1.25"))
    lists = load_prices(tmp_path)

    def price(*day: int, tier: str = "") -> Any:
        rates = rates_on(lists, date(*day), tier)
        return None if rates is None else (rates.version, rates.tier, rates.usd_per_gpu_hour.get("h100"))

    assert price(2026, 7, 14) == ("2026-04", "big", 1.5)
    assert price(2026, 7, 15) == ("2026-07", "big", 1.25)
    assert price(2026, 4, 1, tier="small") == ("2026-04", "small", 2.0)
    assert price(2026, 3, 31) is None
    assert rates_on(load_prices(tmp_path / "nowhere"), date(2026, 7, 1)) is None
    with pytest.raises(InputError, match=r"2026-04 has no tier 'smal'.*ISOLINE_PRICE_TIER.*|small"):
        price(2026, 4, 1, tier="smal")


@pytest.mark.parametrize(
    ("was", "becomes", "line", "said"),
    [
        ("h100: 1.5", "h1oo: 1.5", 7, "unknown SKU 'h1oo'; did you mean 'h100'"),
        ("h100: 1.5", "cpu: 1.5", 7, "no price"),
        ("h100: 1.5", "h100: 0", 7, "0 is no price"),
        ("h100: 1.5", "h100: -1", 7, "-1 is no price"),
        ("h100: 1.5", "h100: .inf", 7, "infinity"),
        ("default_tier: big", "default_tier: bg", 1, "unknown tier 'bg'; did you mean 'big'"),
        ('dated: "2026-04-01"', 'dated: "2026-04-31"', 2, "dated"),
        ('dated: "2026-04-01"', 'dated: "2026-05-01"', 2, "not in the file's month"),
        ("source: a public place, named in words", "source: x", 3, "source"),
        ("tiers:", "teirs:", 5, "unknown key 'teirs'"),
    ],
)
def test_a_wrong_list_is_one_line(tmp_path: Path, was: str, becomes: str, line: int, said: str) -> None:
    """Each mistake is told with file and line."""
    write(tmp_path, "2026-04", LIST.replace(was, becomes))
    with pytest.raises(DocumentError) as caught:
        load_prices(tmp_path)
    text = str(caught.value)
    assert f"dashboard/prices/2026-04.yaml:{line}" in text and said in text


def test_a_list_is_named_by_its_month(tmp_path: Path) -> None:
    """Any other name is refused: it would be a list that never counts."""
    write(tmp_path, "newest", LIST)
    with pytest.raises(DocumentError, match=r"newest\.yaml.*named by its month"):
        load_prices(tmp_path)
