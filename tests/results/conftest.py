"""Fixtures of the results tests: an empty project, its warehouse, and a server that speaks S3."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isoline.results.warehouse.file import Connection, open_reader
from isoline.settings import Settings, load_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of an empty project of this test's own."""
    for name in ("ISOLINE_STORE", "ISOLINE_WAREHOUSE", "ISOLINE_STATE", "ISOLINE_QUERY_TIMEOUT_S"):
        monkeypatch.delenv(name, raising=False)
    for folder in ("recipes", "sweeps", "results"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("ISOLINE_PROJECT", str(tmp_path))
    return load_settings(tmp_path)


@pytest.fixture
def ask(settings: Settings) -> Any:
    """Ask the read copy: SQL in, list of tuples out."""

    def run(sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        con: Connection = open_reader(settings.warehouse)
        try:
            return con.execute(sql, values or []).fetchall()
        finally:
            con.close()

    return run


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """moto's server; the URL of its end point."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """An empty bucket ``results``: a client on it, found by AWS's own settings."""
    import boto3

    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="results")
    yield client
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="results"):
        for item in page.get("Contents", ()):
            client.delete_object(Bucket="results", Key=item["Key"])
    client.delete_bucket(Bucket="results")
    client.close()
