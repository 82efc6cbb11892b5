"""A server that speaks S3, on this machine only, and a run that lies elsewhere."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isoline.results.bundle import run_folder


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


@pytest.fixture
def elsewhere(tmp_path: Path, bundles: Any) -> Path:
    """Another store, with one run of two points."""
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])
    bundles.make_run(tmp_path / "elsewhere", plan)
    return tmp_path / "elsewhere"


@pytest.fixture
def run(elsewhere: Path, bundles: Any) -> Path:
    """The folder of that run."""
    folder = run_folder(elsewhere, bundles.RUN_ID)
    shutil.rmtree(folder / ".work", ignore_errors=True)
    return folder
