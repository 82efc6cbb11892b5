"""The JSON and CSV twins of the page: the same query, the same view, read-only."""

from __future__ import annotations

import json
from collections.abc import Callable

from flask import Flask, Response, request

from isoline.dashboard.board import view_of
from isoline.dashboard.config import Palette
from isoline.dashboard.data import Source
from isoline.dashboard.table import view_csv, view_json
from isoline.dashboard.view import View
from isoline.errors import IsolineError


def _answer(value: object, status: int = 200) -> Response:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return Response(text + "\n", status=status, mimetype="application/json")


def _query() -> str:
    return request.query_string.decode("utf-8", errors="replace")


def add_api(server: Flask, source: Source, palette: Palette) -> None:
    """Add ``/api/points.json``, ``/api/frontier.json`` and ``/api/points.csv`` to ``server``.

    They take the names of the page's address. An unknown name or value is refused with status 400;
    a warehouse that cannot be read is 503. Errors are ``{"errors": [line, ...]}``.
    """

    def points() -> Response:
        return _served(lambda view: _answer(view_json(view, frontier_only=False)))

    def frontier() -> Response:
        return _served(lambda view: _answer(view_json(view, frontier_only=True)))

    def points_csv() -> Response:
        def write(view: View) -> Response:
            answer = Response(view_csv(view), mimetype="text/csv")
            answer.headers["Content-Disposition"] = 'attachment; filename="isoline-points.csv"'
            return answer

        return _served(write)

    def _served(write: Callable[[View], Response]) -> Response:
        try:
            view = view_of(_query(), source, palette)
            # The page ignores what it does not know and says so; a program must not get the answer
            # to another question than it asked.
            result = _answer({"errors": list(view.ignored)}, 400) if view.ignored else write(view)
        except IsolineError as error:
            result = _answer({"errors": [error.line()]}, 503)
        result.headers["Cache-Control"] = "no-cache"
        return result

    server.add_url_rule("/api/points.json", "points_json", points, methods=["GET"])
    server.add_url_rule("/api/frontier.json", "frontier_json", frontier, methods=["GET"])
    server.add_url_rule("/api/points.csv", "points_csv", points_csv, methods=["GET"])
