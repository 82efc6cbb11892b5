from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from isoline.dashboard.app import create_app
from isoline.dashboard.board import view_of
from isoline.dashboard.config import Look
from isoline.dashboard.data import Source
from isoline.results.warehouse.file import read_copy_path


@pytest.fixture
def client(source: Source, look: Look) -> FlaskClient:
    """A client of the app on the fleet."""
    return create_app(source, look, internal=True).server.test_client()


@pytest.mark.parametrize(
    "query", ["", "?sku=cpu", "?sku=h200&sku=b200&x=ttft_p50_ms", "?scenario=demo-trace"]
)
def test_json_csv_and_page_have_the_same_rows(
    query: str, client: FlaskClient, source: Source, look: Look
) -> None:
    """The three forms of one query agree in points, values and frontier."""
    view = view_of(query, source, look.palette)
    expected = [(row.point_id, row.x, row.y, row.on_frontier) for row in view.rows]
    answer = client.get(f"/api/points.json{query}")
    assert answer.status_code == 200
    points = [point for curve in answer.get_json()["curves"] for point in curve["points"]]
    assert [(p["point_id"], p["x"], p["y"], p["frontier"]) for p in points] == expected
    lines = list(csv.DictReader(io.StringIO(client.get(f"/api/points.csv{query}").text)))

    def read(text: str) -> float | None:
        return float(text) if text else None

    x, y = view.x.name, view.y.name
    got = [(line["point_id"], read(line[x]), read(line[y]), line["frontier"] == "true") for line in lines]
    assert got == expected


def test_the_frontier_has_only_its_points_in_order(client: FlaskClient) -> None:
    """Each curve's points are on the frontier and ascend in x."""
    for curve in client.get("/api/frontier.json").get_json()["curves"]:
        assert all(point["frontier"] for point in curve["points"])
        xs = [point["x"] for point in curve["points"]]
        assert xs == sorted(xs) and xs


@pytest.mark.parametrize(
    "query", ["?skU=cpu", "?sku=h999", "?x=throughput", "?official=yes", "?x=cache_hit_share"]
)
def test_a_program_is_refused_what_is_unknown(query: str, client: FlaskClient) -> None:
    """Unknown names and values are status 400 with a line, never another answer."""
    for path in ("points.json", "frontier.json", "points.csv"):
        answer = client.get(f"/api/{path}{query}")
        assert answer.status_code == 400
        assert len(answer.get_json()["errors"]) == 1


def test_absent_is_null_in_json(client: FlaskClient) -> None:
    """The invalid point is there with null and not with 0."""
    points = [p for c in client.get("/api/points.json?sku=cpu").get_json()["curves"] for p in c["points"]]
    (bad,) = [point for point in points if point["topology"] == "tp1-bad"]
    assert (bad["x"], bad["y"], bad["ttft_p50_ms"]) == (None, None, None)


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_the_api_only_reads(method: str, client: FlaskClient) -> None:
    """Any other method than GET is refused."""
    assert getattr(client, method)("/api/points.json").status_code == 405


@pytest.mark.parametrize("path", ["/", "/api/points.json", "/api/nothing", "/_dash-layout"])
def test_every_answer_has_the_headers(path: str, client: FlaskClient) -> None:
    """Policy, nosniff, no referrer and no framing are on pages, data and errors."""
    headers = client.get(path).headers
    policy = headers["Content-Security-Policy"]
    script = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert "unsafe" not in script and "http" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_a_spreadsheet_does_not_run_a_name(
    warehouse_path: Path, make_point: Any, make_warehouse: Any, look: Look
) -> None:
    """A recipe id that begins like a formula is quoted in the CSV."""
    make_warehouse(warehouse_path, [make_point(1, recipe_id="=cmd|' /C calc'!A0")])
    client = create_app(Source(warehouse_path, 10.0), look, internal=True).server.test_client()
    (line,) = csv.DictReader(io.StringIO(client.get("/api/points.csv").text))
    assert line["recipe_id"].startswith("'=")


def test_a_broken_warehouse_is_503_without_a_traceback(warehouse_path: Path, look: Look) -> None:
    """The answer is one line that names the remedy."""
    warehouse_path.parent.mkdir(parents=True)
    read_copy_path(warehouse_path).write_bytes(b"broken")
    client = create_app(Source(warehouse_path, 10.0), look, internal=True).server.test_client()
    answer = client.get("/api/points.json")
    assert answer.status_code == 503
    assert "rebuild" in answer.text and "Traceback" not in answer.text


def test_an_empty_warehouse_answers_with_no_curves(warehouse_path: Path, look: Look) -> None:
    """Before the first ingest the API gives an empty list."""
    client = create_app(Source(warehouse_path, 10.0), look, internal=True).server.test_client()
    assert client.get("/api/points.json").get_json()["curves"] == []
    assert client.get("/api/points.csv").status_code == 200


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1:8050", True), ("evil.example:8050", False)])
def test_another_name_for_this_address_sees_no_machine(
    host: str, shown: bool, client: FlaskClient, source: Source
) -> None:
    """A page asked for under a foreign name (DNS rebinding) leaves the fingerprint out."""
    row = source.board().points.iloc[0]
    (callback,) = [one for one in client.get("/_dash-dependencies").get_json() if "panel" in one["output"]
                   and "grid" in one["output"]]  # fmt: skip
    inputs = [{**one, "value": None} for one in callback["inputs"]]
    inputs[0]["value"] = f"?point={row['point_id']}"
    outputs = [
        {"id": part.rpartition(".")[0], "property": part.rpartition(".")[2]}
        for part in callback["output"].strip(".").split("...")
    ]
    body = {
        "output": callback["output"],
        "outputs": outputs,
        "inputs": inputs,
        "state": [{**one, "value": None} for one in callback["state"]],
        "changedPropIds": [],
    }
    answer = client.post("/_dash-update-component", json=body, headers={"Host": host})
    assert answer.status_code == 200
    assert "isoline reproduce" in answer.text
    assert ("node-of-the-test" in answer.text) is shown
