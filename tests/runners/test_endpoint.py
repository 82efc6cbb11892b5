"""Endpoints: servers that somebody else runs are measured and never touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isoline.catalog.pools import Endpoint, Pool
from isoline.runners.launchers.endpoint import EndpointLauncher
from isoline.runners.launchers.interface import LaunchSpec, PhaseFailedError, Server, Staged
from isoline.runners.launchers.process import ProcessLauncher
from isoline.settings import Settings

SpecOf = Callable[..., LaunchSpec]


@pytest.fixture
def theirs(settings: Settings, staged: Staged, spec_of: SpecOf) -> Iterator[Callable[..., Server]]:
    """A starter of servers that are not the endpoint launcher's."""
    launcher = ProcessLauncher(settings)
    servers: list[Server] = []

    def start(*faults: str) -> Server:
        servers.append(launcher.start(spec_of(*faults), staged))
        launcher.ready(servers[-1])
        return servers[-1]

    yield start
    for server in servers:
        launcher.stop(server)


def at(spec: LaunchSpec, url: str) -> LaunchSpec:
    """The launch at an address."""
    pool = Pool(
        schema_version=1,
        name="there",
        launcher="endpoint",
        sku="h200",
        accelerators=8,
        endpoint=Endpoint(url=url, topology="tp8"),
    )
    return replace(spec, pool=pool)


def test_whole_life(
    settings: Settings, staged: Staged, spec_of: SpecOf, theirs: Callable[..., Server], tmp_path: Path
) -> None:
    """It is proven ready, reset and described as declared; a stop leaves it running."""
    server = theirs()
    launcher = EndpointLauncher(settings)
    ours = launcher.start(at(spec_of(name="ours"), server.url + "/"), staged)
    assert launcher.ready(ours).tokens == 5 and ours.url == server.url
    assert launcher.reset(ours).slots == 2
    lock = launcher.collect(ours, tmp_path / "bundle")
    assert lock["declared"] == {"topology": "tp8", "sku": "h200"} and lock["launcher"] == "endpoint"
    launcher.stop(ours)
    assert server.ended() is None
    assert EndpointLauncher(settings).start(at(spec_of(name="again"), server.url), staged).url == server.url


def test_a_reset_that_nobody_can_prove_is_said(
    settings: Settings, staged: Staged, spec_of: SpecOf, theirs: Callable[..., Server]
) -> None:
    """An endpoint that keeps its cache is measured all the same, and the lock says that it was not reset."""
    launcher = EndpointLauncher(settings)
    ours = launcher.start(at(spec_of(name="ours"), theirs("keeps").url), staged)
    launcher.ready(ours)
    launcher.reset(ours)
    assert ours.notes == ["reset not proven: 20 tokens were still cached after erasing"]
    launcher.stop(ours)


def test_nobody_there_is_not_ready(settings: Settings, staged: Staged, spec_of: SpecOf) -> None:
    """An address without a server fails at its deadline."""
    launcher = EndpointLauncher(settings)
    ours = launcher.start(at(spec_of(ready_s=0.5), "http://127.0.0.1:9"), staged)
    with pytest.raises(PhaseFailedError) as failed:
        launcher.ready(ours)
    assert failed.value.code == "launch_timeout"
    launcher.stop(ours)
