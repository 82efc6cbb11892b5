"""The served page in a real browser: what a reader does, and what must never happen meanwhile."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from isoline.settings import Settings

pytestmark = pytest.mark.browser

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
]
POINTS = ".scatterlayer .point"
OUTPUT = Path(__file__).resolve().parents[1] / "output"


@dataclass
class Watched:
    """A page with everything that it must not do, as it happens."""

    page: Page
    base: str
    console: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def open(self, path: str = "/") -> None:
        self.page.goto(self.base + path)
        self.page.wait_for_selector(f"{POINTS} >> nth=0", state="attached")

    def marks(self) -> int:
        return self.page.locator(POINTS).count()

    def line(self) -> str | None:
        """The drawn path of the first frontier."""
        return self.page.locator(".scatterlayer .js-line").first.get_attribute("d")

    def click_point(self, point_id: str) -> None:
        """A real mouse click on the mark of a point."""
        place = self.page.evaluate(
            """id => { const g = document.querySelector('.js-plotly-plot');
                const box = g.getBoundingClientRect(), l = g._fullLayout;
                for (const t of g.data) { const c = t.customdata || [];
                    for (let i = 0; i < c.length; i++) if (c[i][1] === id) return [
                        box.x + l.xaxis._offset + l.xaxis.d2p(t.x[i]),
                        box.y + l.yaxis._offset + l.yaxis.d2p(t.y[i])]; } }""",
            point_id,
        )
        self.page.mouse.move(*place)
        self.page.wait_for_timeout(150)
        self.page.mouse.click(*place)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def watched(
    browser: Browser,
    settings: Settings,
    make_warehouse: Callable[..., None],
    make_fleet: Callable[[], list[dict[str, Any]]],
    serving: Callable[[Settings], str],
) -> Iterator[Watched]:
    """The served fleet in a new page; afterwards: no console error, no request to elsewhere."""
    make_warehouse(settings.warehouse, make_fleet(), quarantined=2)
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    found = Watched(context.new_page(), serving(settings))

    def log(message: Any) -> None:
        if message.type in ("error", "warning"):
            found.console.append(message.text)

    def request(request: Any) -> None:
        if not request.url.startswith((found.base, "data:", "blob:")):
            found.outside.append(request.url)

    found.page.on("console", log)
    found.page.on("pageerror", lambda error: found.console.append(str(error)))
    found.page.on("request", request)
    yield found
    context.close()
    assert found.console == []
    assert found.outside == []


def _api(watched: Watched, query: str = "") -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{watched.base}/api/points.json{query}", timeout=10) as answer:
        return [point for curve in json.load(answer)["curves"] for point in curve["points"]]


def test_a_reader_changes_the_metric_and_shares_the_address(watched: Watched) -> None:
    """Points are drawn; another metric changes address and frontier; reload and back restore."""
    watched.open()
    assert watched.marks() == sum(point["x"] is not None for point in _api(watched))
    before = watched.line()
    watched.page.select_option("#x-family", "ttft")
    expect(watched.page.locator("#picture-title")).to_contain_text("time to first token p50")
    assert watched.page.url.endswith("/?x=ttft_p50_ms")
    after = watched.line()
    assert after != before
    watched.page.reload()
    expect(watched.page.locator("#x-family")).to_have_value("ttft")
    expect(watched.page.locator("#picture-title")).to_contain_text("time to first token p50")
    assert watched.line() == after
    watched.page.go_back()
    expect(watched.page.locator("#picture-title")).to_contain_text("interactivity p50")
    assert watched.line() == before


def test_a_reader_narrows_to_one_sku(watched: Watched) -> None:
    """A choice in the SKU filter leaves that SKU's points in picture, table and address."""
    watched.open()
    watched.page.click("#sku")
    watched.page.get_by_text("h200", exact=True).last.click()
    expect(watched.page.locator(POINTS)).to_have_count(3)
    assert "sku=h200" in watched.page.url
    expect(watched.page.locator(".ag-center-cols-container .ag-row")).to_have_count(3)


def test_a_click_on_a_point_opens_its_panel(watched: Watched) -> None:
    """The panel names the point and the command, can be linked to, and closes again."""
    watched.open()
    point = next(p for p in _api(watched) if p["topology"] == "tp1" and p["concurrency"] == 8)
    watched.click_point(point["point_id"])
    command = watched.page.locator("#reproduce-command")
    expect(command).to_contain_text(f"isoline reproduce {point['point_id']} --run ")
    expect(watched.page.locator("#panel")).to_contain_text("Other repetitions")
    assert point["point_id"] in watched.page.url
    OUTPUT.mkdir(exist_ok=True)
    watched.page.screenshot(path=OUTPUT / "dashboard-1440.png", full_page=True)
    watched.page.reload()
    expect(command).to_contain_text(point["point_id"])
    watched.page.click("#close-panel")
    expect(watched.page.locator("#panel")).to_be_hidden()
    assert "point=" not in watched.page.url


def test_the_copy_button_copies_the_command(watched: Watched) -> None:
    """What lands in the clipboard is the command."""
    watched.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=watched.base)
    point = _api(watched)[0]["point_id"]
    watched.open(f"/?point={point}")
    watched.page.locator(".copy").click()
    watched.page.wait_for_timeout(300)
    text = watched.page.evaluate("navigator.clipboard.readText()")
    assert text == watched.page.locator("#reproduce-command").inner_text().strip()
    assert text.startswith(f"isoline reproduce {point}")


def test_the_table_is_the_twin_of_the_picture(watched: Watched) -> None:
    """Row by row the table shows what the API gives; a row can be chosen by keyboard alone."""
    watched.open()
    rows = watched.page.locator(".ag-center-cols-container .ag-row")
    points = _api(watched)
    expect(rows).to_have_count(len(points))
    shown = watched.page.evaluate(
        """[...document.querySelectorAll('.ag-center-cols-container .ag-row')]
            .sort((a, b) => a.getAttribute('row-index') - b.getAttribute('row-index'))
            .map(r => ['y', 'x', 'frontier'].map(c => r.querySelector(`[col-id=${c}]`).innerText))"""
    )

    def read(text: str) -> float | None:
        return None if text == "–" else float(text.replace(",", ""))

    for (y, x, frontier), point in zip(shown, points, strict=True):
        for text, value in ((y, point["y"]), (x, point["x"])):
            assert read(text) == (None if value is None else pytest.approx(value, rel=1e-3))
        assert (frontier == "yes") is point["frontier"]
    rows.first.locator("[col-id=y]").focus()
    watched.page.keyboard.press("ArrowDown")
    watched.page.keyboard.press("Space")
    expect(watched.page.locator("#reproduce-command")).to_contain_text(points[1]["point_id"])


def test_a_phone_shows_everything_without_scrolling_sideways(watched: Watched) -> None:
    """At 390 pixels nothing is wider than the screen; the controls open on demand."""
    watched.page.set_viewport_size({"width": 390, "height": 844})
    partial = next(p for p in _api(watched) if p["verdict"] == "partial")
    watched.open(f"/?point={partial['point_id']}")
    expect(watched.page.locator("#reproduce-command")).to_be_visible()
    expect(watched.page.locator("#controls")).to_be_hidden()
    assert watched.page.evaluate("document.documentElement.scrollWidth") == 390
    watched.page.click("#toggle-controls")
    expect(watched.page.locator("#controls")).to_be_visible()
    assert watched.page.locator("#toggle-controls").get_attribute("aria-expanded") == "true"
    assert watched.page.evaluate("document.documentElement.scrollWidth") == 390
    OUTPUT.mkdir(exist_ok=True)
    watched.page.screenshot(path=OUTPUT / "dashboard-390.png", full_page=True)
    # Imported scenarios have names of fifty letters without a blank.
    watched.page.evaluate("document.querySelectorAll('h2').forEach(h => h.textContent = 'a_b'.repeat(30))")
    assert watched.page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_hostile_address_and_hostile_names_stay_text(
    watched: Watched, settings: Settings, make_point: Any, make_warehouse: Any
) -> None:
    """Scripts in the address, in a recipe id and in an engine are shown as text and never run."""
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    make_warehouse(
        settings.warehouse,
        [make_point(1, recipe_id=evil, topology=evil, curve={"engine": evil, "model": evil})],
    )
    point = _api(watched)[0]["point_id"]
    watched.open(f"/?point={quote(point)}&sku={quote(evil)}&{quote(evil)}=1")
    expect(watched.page.locator("#notes p")).to_have_count(2)
    expect(watched.page.locator("#panel")).to_contain_text("<script>")
    box = watched.page.locator(POINTS).first.bounding_box()
    assert box is not None
    watched.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(watched.page.locator(".hoverlayer .hovertext")).to_be_attached()
    assert watched.page.locator("img[src=x]").count() == 0
    assert "owned" not in watched.page.title()


def test_every_control_has_a_name(watched: Watched) -> None:
    """Selects, filters and the panel can be found by the name that a screen reader speaks."""
    watched.open()
    for name in ("Model", "Scenario", "Run"):
        expect(watched.page.get_by_label(name, exact=True)).to_be_visible()
    for name in ("Precision", "SKU", "Engine"):
        assert watched.page.evaluate(
            """name => { const l = [...document.querySelectorAll('label')].find(x => x.innerText === name);
                return l.control !== null || document.getElementById(l.htmlFor) !== null }""",
            name,
        )
    assert watched.page.locator("[aria-label]").count() >= 3


def test_a_picture_is_never_sent_elsewhere(watched: Watched) -> None:
    """plotly's button that uploads a chart to its makers is not there."""
    watched.open()
    watched.page.hover("#picture")
    titles = watched.page.locator(".modebar-btn").evaluate_all("all => all.map(b => b.dataset.title)")
    assert titles
    assert not [title for title in titles if "hare" in title or "loud" in title]


def test_an_empty_page_says_how_to_fill_it_and_fills_by_itself(
    browser: Browser,
    settings: Settings,
    serving: Callable[[Settings], str],
    make_warehouse: Callable[..., None],
    make_point: Callable[..., dict[str, Any]],
) -> None:
    """Before the first ingest there are the commands; after it the points, on a reload."""
    page = browser.new_page()
    page.goto(serving(settings))
    expect(page.locator("#empty")).to_contain_text("isoline results ingest")
    expect(page.locator("#content")).to_be_hidden()
    make_warehouse(settings.warehouse, [make_point(c) for c in (1, 2)])
    page.reload()
    expect(page.locator(POINTS)).to_have_count(2)
    page.close()


def test_an_error_in_the_server_leaks_nothing(
    browser: Browser,
    settings: Settings,
    serving: Callable[[Settings], str],
    make_warehouse: Callable[..., None],
    make_point: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bug in a callback shows a number on the page and its traceback in the log only."""

    def broken(view: object) -> None:
        raise RuntimeError("secret of the machine")

    make_warehouse(settings.warehouse, [make_point(1)])
    monkeypatch.setattr("isoline.dashboard.app.build_figure", broken)
    page = browser.new_page()
    answers: list[str] = []
    page.on(
        "response", lambda answer: answers.append(answer.text()) if "_dash-update" in answer.url else None
    )
    page.goto(serving(settings))
    expect(page.locator("#error")).to_contain_text("Something went wrong here (error ")
    assert not [text for text in [*answers, page.content()] if "secret" in text or "Traceback" in text]
    assert "secret of the machine" in caplog.text
    page.close()
