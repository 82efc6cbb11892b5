"""The headers that every answer carries. Pure, but for the hook that sets them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from flask import Flask, Response


def content_security_policy(script_hashes: Sequence[str]) -> str:
    """The policy of the page.

    Scripts come from this server or are one of the inline scripts whose hashes Dash names. Styles
    must allow inline ones: plotly and AG Grid set them while they draw.

    :param script_hashes: quoted hashes, as ``Dash.csp_hashes()`` gives them.
    """
    parts = {
        "default-src": "'self'",
        "script-src": " ".join(["'self'", *script_hashes]),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())


def add_security_headers(server: Flask, script_hashes: Sequence[str]) -> None:
    """Set the headers on every answer of ``server``, errors too."""
    policy = content_security_policy(script_hashes)

    def apply(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        return response

    server.after_request(apply)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The host of a ``Host`` header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
