"""Serves the dashboard with a production WSGI server."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import Any

from waitress.server import create_server

from isoline.dashboard.app import create_app
from isoline.dashboard.config import load_look
from isoline.dashboard.data import Source
from isoline.dashboard.security import is_loopback
from isoline.errors import InfraError, InputError
from isoline.settings import Settings

THREADS = 8


def page_url(host: str, port: int) -> str:
    """The address to type into a browser on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


def bind(settings: Settings, host: str, port: int, *, public: bool = False) -> Any:
    """A server that listens already; its ``run()`` serves until it is closed.

    :param public: whether others see the page though it listens on loopback (behind a proxy).
    :raises InfraError: when the port is taken or the address is not ours.
    :raises InputError: when the palette or the presets are wrong, or the port is none.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"{port} is not a port", remedy="choose one from 1 to 65535, or 0 for any")
    look = load_look(settings.project / "dashboard")
    source = Source(settings.warehouse, settings.query_timeout_s)
    # Bound here and not by waitress, which leaves open what it could not bind.
    listener = _listener(host, port)
    try:
        app = create_app(source, look, internal=is_loopback(host) and not public)
        return create_server(
            app.server, sockets=[listener], threads=THREADS, ident=None, clear_untrusted_proxy_headers=True
        )
    except BaseException:
        listener.close()
        raise


def _listener(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise _cannot_bind(error, host, port) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _cannot_bind(error, host, port) from error
    return listener


def _cannot_bind(error: OSError, host: str, port: int) -> InfraError:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return InfraError(
            "the port is taken", where=where, remedy="end the other program or choose another with --port"
        )
    if error.errno == errno.EACCES:
        return InfraError("this user may not listen there", where=where, remedy="choose a --port above 1023")
    return InfraError(f"cannot listen there: {error.strerror}", where=where, remedy="choose another --host")


def serve(
    settings: Settings,
    host: str,
    port: int,
    *,
    public: bool,
    open_browser: bool,
    say: Callable[[str], None],
) -> None:
    """Serve until interrupted. ``say`` gets one line when the page can be reached.

    :raises InfraError: as :func:`bind`.
    """
    server = bind(settings, host, port, public=public)
    url = page_url(host, int(server.effective_port))
    say(f"the dashboard is at {url} (Ctrl-C ends it)")
    if open_browser:
        threading.Thread(target=_open, args=(url, say), daemon=True).start()
    try:
        server.run()
    finally:
        close(server)


def close(server: Any) -> None:
    """End a server: first the threads that answer, which would write to what is closed after them."""
    server.task_dispatcher.shutdown()
    server.close()


def _open(url: str, say: Callable[[str], None]) -> None:
    if not has_browser():
        say("no browser can be opened from here: go to the address above")
        return
    if not webbrowser.open(url):
        say("no browser was found: go to the address above")


def has_browser() -> bool:
    """Whether a browser with a window can be opened: never a text browser, which would take the terminal."""
    if sys.platform == "darwin":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
