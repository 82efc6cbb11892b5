from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from isoline.catalog import facts
from isoline.dashboard.board import view_of
from isoline.dashboard.config import Look, load_look
from isoline.dashboard.data import Source
from isoline.dashboard.state import Known, parse
from isoline.errors import InputError


def test_unknown_names_look_the_same_every_day(look: Look) -> None:
    """A SKU that is not listed takes a listed colour, the same in each process."""
    palette = look.palette
    assert palette.colour("gpu-of-tomorrow") in palette.other.colours
    assert palette.colour("gpu-of-tomorrow") == palette.colour("gpu-of-tomorrow")
    assert palette.shape("engine-of-tomorrow") in palette.other.shapes


def _luminance(colour: str) -> float:
    def linear(part: int) -> float:
        value = part / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_colour_can_be_seen_on_white(look: Look) -> None:
    """Marks and lines have a contrast of at least 3 to 1 on white (WCAG 2.2, 1.4.11)."""
    for colour in (*look.palette.skus.values(), *look.palette.other.colours):
        assert 1.05 / (_luminance(colour) + 0.05) >= 3, colour


def test_no_two_skus_share_a_colour(look: Look) -> None:
    """A colour names one SKU."""
    colours = sorted(look.palette.skus.values())
    assert all(left != right for left, right in pairwise(colours))


def test_every_preset_is_a_view_with_points(look: Look, source: Source) -> None:
    """Each preset's address is understood and draws something from the demo's data."""
    for preset in look.presets:
        query = "&".join(f"{name}={value}" for name, value in preset.query.items())
        _, notes = parse(query, Known({}))
        view = view_of(query, source, look.palette)
        assert not notes and not view.ignored
        assert any(row.on_frontier for row in view.rows)


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("palette", "#0072b2", "blue", "palette.yaml: skus.cpu"),
        ("palette", "engines:", "engine:", "palette.yaml"),
        ("presets", "ttft_p50_ms", "ttft_p51_ms", "ttft_p51_ms"),
        ("presets", "id: tail", "id: speed", "speed"),
        ("presets", "presets:", "presets: [", "presets.yaml"),
    ],
)
def test_a_wrong_file_is_one_line_with_the_place(
    name: str, old: str, new: str, expected: str, tmp_path: Path, project_root: Path
) -> None:
    """A misspelt key, value or metric stops the start and says where."""
    folder = tmp_path / "dashboard"
    shutil.copytree(project_root / "dashboard", folder)
    path = folder / f"{name}.yaml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_look(folder)
    assert expected in caught.value.line()
    assert "\n" not in caught.value.line()


def test_every_sku_of_the_catalog_has_a_colour(look: Look) -> None:
    """The palette knows all SKUs that the catalog knows."""
    assert set(facts.load_catalog().skus) <= set(look.palette.skus)
