"""The page's fixed parts: one tree of components, filled by the callbacks in ``app``."""

from __future__ import annotations

from typing import Any

import dash_ag_grid as dag
import dash_bootstrap_components as dbc
from dash import dcc, html

NAME = "Isoline"
ONE_LINE = (
    "Nightly, reproducible LLM-inference benchmarks. How many tokens per second and per dollar a GPU "
    "gives at the speed each user sees, with the answers checked on the same configuration."
)
TITLE = f"{NAME}: {ONE_LINE[0].lower()}{ONE_LINE[1:]}"

REFRESH_MS = 30_000
"""How often the page asks whether the read copy was replaced."""

GRAPH_CONFIG: Any = {
    "displaylogo": False,
    # plotly's own button would send the picture, with its data, to somebody's server.
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "responsive": True,
    "scrollZoom": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
    "toImageButtonOptions": {"filename": "isoline", "scale": 2},
}


def aria(names: dict[str, str]) -> dict[str, Any]:
    """Attributes whose names are no Python names, to be given as ``**aria({...})``."""
    return dict(names)


def _field(label: str, control: Any, name: str) -> html.Div:
    return html.Div([html.Label(label, htmlFor=name, id=f"{name}-label"), control], className="field")


def _one(label: str, name: str) -> html.Div:
    return _field(label, dbc.Select(id=name, options=[], className="select"), name)


def _many(label: str, name: str) -> html.Div:
    control = dcc.Dropdown(
        id=name, options=[], multi=True, placeholder="all", searchable=False, className="many"
    )
    return _field(label, control, name)


def _axis(title: str, axis: str) -> html.Fieldset:
    return html.Fieldset(
        [
            html.Legend(title),
            html.Div(
                [_one("Metric", f"{axis}-family"), _one("Statistic", f"{axis}-statistic")],
                className="axis-fields",
            ),
        ],
        className="axis",
    )


def _controls() -> html.Div:
    return html.Div(
        [
            html.Button(
                "Filters and axes",
                id="toggle-controls",
                className="quiet toggle",
                n_clicks=0,
                **aria({"aria-controls": "controls", "aria-expanded": "false"}),
            ),
            html.Div(
                [
                    html.Div(
                        [
                            _one("Model", "model"),
                            _one("Scenario", "scenario"),
                            _many("Precision", "precision"),
                            _many("SKU", "sku"),
                            _many("Engine", "engine"),
                            _one("Run", "run"),
                        ],
                        className="filters",
                    ),
                    html.Div(
                        [
                            _axis("Vertical axis", "y"),
                            _axis("Horizontal axis", "x"),
                            dcc.Checklist(
                                id="official",
                                options=[{"label": "Official points only", "value": "official"}],
                                value=[],
                                className="check",
                            ),
                        ],
                        className="axes",
                    ),
                ],
                id="controls",
                className="controls",
            ),
        ],
        id="control-box",
        className="control-box",
        role="group",
        **aria({"aria-label": "Filters and axes"}),
    )


def _picture() -> html.Div:
    return html.Div(
        [
            html.H2(id="picture-title"),
            html.Div(
                dcc.Graph(
                    id="graph",
                    figure={"data": [], "layout": {"xaxis": {"visible": False}, "yaxis": {"visible": False}}},
                    config=GRAPH_CONFIG,
                    responsive=True,
                    className="graph",
                ),
                role="figure",
                id="picture",
                **aria({"aria-label": "Points and step frontier; the table below has the same rows"}),
            ),
            html.Div(id="key", className="key"),
        ],
        className="picture",
    )


def _panel() -> html.Aside:
    return html.Aside(
        [
            html.Button("Close", id="close-panel", className="quiet close", n_clicks=0),
            html.Div(id="panel-content"),
        ],
        id="panel",
        className="panel",
        hidden=True,
        **aria({"aria-label": "The chosen point"}),
    )


def _table() -> html.Section:
    grid = dag.AgGrid(
        id="grid",
        rowData=[],
        columnDefs=[],
        getRowId="params.data.id",
        defaultColDef={
            "sortable": True,
            "resizable": True,
            "suppressMovable": True,
            "wrapHeaderText": True,
            "autoHeaderHeight": True,
        },
        dashGridOptions={
            "domLayout": "autoHeight",
            "pagination": True,
            "paginationPageSize": 25,
            "paginationPageSizeSelector": [25, 100],
            "rowSelection": {
                "mode": "singleRow",
                "checkboxes": False,
                "enableClickSelection": True,
            },
            "ensureDomOrder": True,
            "enableCellTextSelection": True,
            "rowHeight": 34,
        },
        style={"height": None, "width": "100%"},
        className="grid",
    )
    return html.Section(
        [
            html.Div(
                [
                    html.H2("The same points as a table"),
                    html.P(
                        [
                            html.A("CSV", id="csv-link", href="/api/points.csv"),
                            " ",
                            html.A("JSON", id="json-link", href="/api/points.json"),
                            " ",
                            html.A("frontier as JSON", id="frontier-link", href="/api/frontier.json"),
                        ],
                        className="links",
                    ),
                ],
                className="table-head",
            ),
            html.P("Choose a row by click, or by arrow keys and space.", className="hint"),
            grid,
        ],
        className="table",
    )


def page() -> html.Div:
    """The whole page, empty."""
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="stamp"),
            dcc.Interval(id="tick", interval=REFRESH_MS),
            html.Header(
                [html.H1(dcc.Link(NAME, href="/")), html.P(ONE_LINE)],
                className="page-head",
            ),
            html.Main(
                [
                    html.Nav(id="presets", className="presets", **aria({"aria-label": "Ready views"})),
                    _controls(),
                    html.Div(id="error", className="notes error", role="alert"),
                    html.Div(id="notes", className="notes", role="status"),
                    html.P(id="counts", className="counts"),
                    html.Div(id="empty"),
                    html.Div(
                        [html.Div([_picture(), _panel()], className="stage"), _table()],
                        id="content",
                        hidden=True,
                    ),
                ]
            ),
            html.Footer(id="footer"),
        ],
        className="page",
    )
