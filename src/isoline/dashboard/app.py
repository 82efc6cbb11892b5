"""The Dash app: one callback keeps address, controls, picture, table and panel in step."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, no_update, set_props
from dash.exceptions import PreventUpdate
from flask import request

from isoline.dashboard import parts
from isoline.dashboard.api import add_api
from isoline.dashboard.board import view_of
from isoline.dashboard.changes import CHANGES, SNAPSHOT
from isoline.dashboard.config import Look
from isoline.dashboard.data import Source
from isoline.dashboard.figure import build_figure
from isoline.dashboard.layout import TITLE, page
from isoline.dashboard.panel import missing_panel, point_panel
from isoline.dashboard.security import add_security_headers, host_name, is_loopback
from isoline.dashboard.state import to_query
from isoline.dashboard.table import column_definitions, table_rows
from isoline.dashboard.view import View
from isoline.errors import IsolineError

log = logging.getLogger(__name__)

_CONTROLS = (
    "model",
    "scenario",
    "precision",
    "sku",
    "engine",
    "run",
    "x-family",
    "x-statistic",
    "y-family",
    "y-statistic",
)

_OUTPUTS: dict[str, Output] = {
    "search": Output("url", "search"),
    "stamp": Output("stamp", "data"),
    **{f"{name}.options": Output(name, "options") for name in _CONTROLS},
    **{f"{name}.value": Output(name, "value") for name in _CONTROLS},
    "official.value": Output("official", "value"),
    "x-statistic.disabled": Output("x-statistic", "disabled"),
    "y-statistic.disabled": Output("y-statistic", "disabled"),
    "figure": Output("graph", "figure"),
    "click": Output("graph", "clickData"),
    "rows": Output("grid", "rowData"),
    "columns": Output("grid", "columnDefs"),
    "selected": Output("grid", "selectedRows"),
    "panel": Output("panel-content", "children"),
    "panel.hidden": Output("panel", "hidden"),
    "title": Output("picture-title", "children"),
    "key": Output("key", "children"),
    "notes": Output("notes", "children"),
    "counts": Output("counts", "children"),
    "error": Output("error", "children"),
    "presets": Output("presets", "children"),
    "empty": Output("empty", "children"),
    "controls.hidden": Output("control-box", "hidden"),
    "content.hidden": Output("content", "hidden"),
    "footer": Output("footer", "children"),
    "csv": Output("csv-link", "href"),
    "json": Output("json-link", "href"),
    "frontier": Output("frontier-link", "href"),
}


@dataclass(frozen=True)
class Server:
    """What the callbacks need. ``internal``: whether machine details may be shown."""

    source: Source
    look: Look
    internal: bool


def create_app(source: Source, look: Look, *, internal: bool) -> Dash:
    """The app, with its API and headers; ``app.server`` is the WSGI application.

    :param internal: whether the page may show what describes the machine (fingerprints, paths).
    """
    app = Dash(
        "isoline.dashboard",
        assets_folder="assets",
        title=TITLE,
        update_title="",
        serve_locally=True,
        on_error=_say_error,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    app.layout = page()
    server = Server(source, look, internal)
    inputs: dict[str, Any] = {
        "search": Input("url", "search"),
        "tick": Input("tick", "n_intervals"),
        "stamp": State("stamp", "data"),
        "values": {key: _input(key) for key in CHANGES},
    }
    app.callback(output=_OUTPUTS, inputs=inputs)(
        lambda search, tick, stamp, values: _update(server, search, stamp, values)
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("isoline", "toggle"),
        Output("controls", "className"),
        Output("toggle-controls", "aria-expanded"),
        Input("toggle-controls", "n_clicks"),
    )
    add_api(app.server, source, look.palette)
    add_security_headers(app.server, app.csp_hashes())
    return app


def _input(key: str) -> Input:
    component, name = key.split(".")
    return Input(component, name)


def _say_error(error: Exception) -> None:
    """An error that nobody expected: the log gets all of it, the page a number to look for."""
    number = secrets.token_hex(4)
    log.error("dashboard error %s", number, exc_info=error)
    set_props(
        "error", {"children": f"Something went wrong here (error {number}; the server's log says more)."}
    )


def _update(server: Server, search: str | None, stamp: Any, values: dict[str, Any]) -> dict[str, Any]:
    trigger = next(iter(ctx.triggered_prop_ids), None)
    query = search or ""
    nothing = dict.fromkeys(_OUTPUTS, no_update)
    try:
        board = server.source.board()
        now = board.updated_at.isoformat() if board.updated_at else None
        if trigger == "tick.n_intervals" and now == stamp:
            raise PreventUpdate
        view = view_of(query, server.source, server.look.palette)
        if trigger in CHANGES:
            chosen = CHANGES[trigger](view.chosen, view.state, values[trigger])
            if chosen == view.chosen:
                raise PreventUpdate
            query = to_query(chosen)
            view = view_of(query, server.source, server.look.palette)
        shown = _shown(server, view, board.runs, query)
    except IsolineError as error:
        return nothing | {"error": error.line()}
    # The address is only written when something was chosen: what a reader typed stays as it is.
    return nothing | shown | {"stamp": now, "search": query if query != (search or "") else no_update}


def _shown(server: Server, view: View, runs: Sequence[str], query: str) -> dict[str, Any]:
    state, choices = view.state, view.choices
    filled = bool(view.curves)
    shown: dict[str, Any] = {
        "model.options": parts.options(choices.models),
        "model.value": state.model,
        "scenario.options": parts.options(choices.scenarios),
        "scenario.value": state.scenario,
        "precision.options": parts.options(choices.precisions),
        "precision.value": list(state.precisions),
        "sku.options": parts.options(choices.skus),
        "sku.value": list(state.skus),
        "engine.options": parts.options(choices.engines),
        "engine.value": list(state.engines),
        "run.options": parts.run_options(runs, state.run),
        "run.value": state.run or SNAPSHOT,
        "official.value": ["official"] if state.official else [],
        "figure": build_figure(view),
        "click": None,
        "rows": table_rows(view),
        "columns": column_definitions(view),
        "title": parts.picture_title(view) if filled else "",
        "key": parts.key(view) if filled else [],
        "notes": parts.notes(view),
        "counts": parts.counts(view) if runs else [],
        "error": "",
        "presets": parts.preset_links(server.look.presets, state) if runs else [],
        "empty": [] if filled else parts.empty_page(bool(runs)),
        "controls.hidden": not runs,
        "content.hidden": not filled,
        "footer": parts.footer(view),
        "csv": f"/api/points.csv{query}",
        "json": f"/api/points.json{query}",
        "frontier": f"/api/frontier.json{query}",
    }
    for axis, metric in (("x", view.x), ("y", view.y)):
        families, statistics = parts.axis_options(view, metric)
        shown |= {
            f"{axis}-family.options": families,
            f"{axis}-family.value": metric.family,
            f"{axis}-statistic.options": statistics,
            f"{axis}-statistic.value": metric.statistic or parts.ONE_VALUE,
            f"{axis}-statistic.disabled": len(statistics) < 2,
        }
    return shown | _panel(server, view)


def _panel(server: Server, view: View) -> dict[str, Any]:
    point = view.state.point
    if point is None:
        return {"panel": [], "panel.hidden": True, "selected": []}
    detail = server.source.detail(view.point_run, point) if view.point_run else None
    if detail is None:
        return {"panel": missing_panel(point), "panel.hidden": False}
    others: list[str] = next((list(row.members) for row in view.rows if point in row.members), [])
    siblings = [
        (member.split(".")[-2], to_query(replace(view.chosen, point=member)))
        for member in others
        if member != point
    ]
    # A page on another name that points to this address (DNS rebinding) is not this machine's own.
    internal = server.internal and is_loopback(host_name(request.host))
    return {"panel": point_panel(detail, siblings, internal=internal), "panel.hidden": False}
