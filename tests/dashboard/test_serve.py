from __future__ import annotations

import urllib.request
from collections.abc import Callable

import pytest

from isoline.cli.main import run
from isoline.dashboard import serve
from isoline.dashboard.security import host_name, is_loopback
from isoline.errors import InputError
from isoline.settings import Settings


def test_a_taken_port_is_one_line_and_exit_code_4(
    taken_port: int, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command names the address and the way out, and ends with the code for infrastructure."""
    monkeypatch.setenv("ISOLINE_PROJECT", str(settings.project))
    assert run(["dashboard", "serve", "--port", str(taken_port)]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert f"127.0.0.1:{taken_port}" in line
    assert "--port" in line


def test_a_host_that_is_not_ours_is_exit_code_4(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An address of nobody here gives one line."""
    monkeypatch.setenv("ISOLINE_PROJECT", str(settings.project))
    assert run(["dashboard", "serve", "--host", "192.0.2.1", "--port", "0"]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_port_must_be_a_port(settings: Settings) -> None:
    """70000 is refused before anything is opened."""
    with pytest.raises(InputError, match="not a port"):
        serve.bind(settings, "127.0.0.1", 70000)


def test_the_page_is_served(settings: Settings, serving: Callable[[Settings], str]) -> None:
    """The address answers with the page, whose title is the one line of the project."""
    with urllib.request.urlopen(serving(settings) + "/", timeout=10) as answer:
        text = answer.read().decode()
    assert "<title>Isoline: nightly, reproducible LLM-inference benchmarks." in text
    assert "https://" not in text.split("_dash-config")[0]


@pytest.mark.parametrize(
    ("host", "internal"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("example", False)],
)
def test_only_loopback_counts_as_this_machine(host: str, internal: bool) -> None:
    """Anything that others may reach is not internal."""
    assert is_loopback(host) is internal


def test_the_printed_address_can_be_opened() -> None:
    """A wildcard is printed as loopback, an IPv6 address in brackets."""
    assert serve.page_url("0.0.0.0", 80) == "http://127.0.0.1:80/"
    assert serve.page_url("::1", 80) == "http://[::1]:80/"


def test_without_a_screen_no_browser_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without a display --open says so and opens nothing."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(serve.sys, "platform", "linux")
    monkeypatch.setattr(serve.webbrowser, "open", lambda url: pytest.fail("a browser was opened"))
    said: list[str] = []
    serve._open("http://127.0.0.1:1/", said.append)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("header", "name"),
    [("127.0.0.1:8050", "127.0.0.1"), ("[::1]:8050", "::1"), ("evil.example", "evil.example")],
)
def test_the_host_is_read_without_its_port(header: str, name: str) -> None:
    """The name that a browser used is compared, whatever the port."""
    assert host_name(header) == name


def test_public_hides_the_machine_on_loopback_too(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy the page listens on loopback and still leaves out details of machines."""
    shown: list[bool] = []
    real = serve.create_app

    def create(*parts: object, internal: bool) -> object:
        shown.append(internal)
        return real(*parts, internal=internal)

    monkeypatch.setattr(serve, "create_app", create)
    for public in (False, True):
        serve.bind(settings, "127.0.0.1", 0, public=public).close()
    assert shown == [True, False]
