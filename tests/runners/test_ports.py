"""Port leases between runs."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from isoline.errors import InfraError
from isoline.runners.machine import ports
from isoline.runners.ownership import owners

HOST = "127.0.0.1"


def claim(state: Path) -> owners.Owner:
    return owners.claim(state, run_id="r", launch_id="l", what="server")


def test_parallel_leases_differ(state: Path) -> None:
    """Eight runs that ask at once get eight ports."""
    tokens = [claim(state).token for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda token: ports.lease(state, token, HOST), tokens))
    assert len(set(found)) == 8
    assert [ports.holder(state, port) for port in found] == tokens


def test_a_port_in_use_is_not_leased(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port on which somebody listens is passed over, and one that was tried in vain too."""
    with socket.socket() as busy:
        busy.bind((HOST, 0))
        busy.listen()
        port = busy.getsockname()[1]
        assert not ports.is_free(HOST, port)
        monkeypatch.setattr(ports, "FIRST", port)
        monkeypatch.setattr(ports, "LAST", port + 2)
        owner = claim(state)
        assert ports.lease(state, owner.token, HOST, avoid={port + 1}) == port + 2


def test_a_full_range_is_an_error(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every port leased there is one clear line."""
    first = ports.lease(state, claim(state).token, HOST)
    monkeypatch.setattr(ports, "FIRST", first)
    monkeypatch.setattr(ports, "LAST", first)
    with pytest.raises(InfraError, match="no port from"):
        ports.lease(state, claim(state).token, HOST)


def test_a_lease_ends_with_its_record(state: Path) -> None:
    """Releasing the owner gives its ports back, and a lease without a record is stale."""
    one, two = claim(state), claim(state)
    port, other = ports.lease(state, one.token, HOST), ports.lease(state, two.token, HOST)
    owners.release(state, one)
    assert ports.holder(state, port) is None
    (state / "owners" / f"{two.token}.json").unlink()
    assert ports.holder(state, other) is None
    ports.drop_stale(state)
    assert not (state / "ports" / str(other)).exists()


def test_a_damaged_lease_is_stale(state: Path) -> None:
    """Bytes that are no token stop nobody."""
    owner = claim(state)
    port = ports.lease(state, owner.token, HOST)
    (state / "ports" / "20000").write_bytes(b"\xff\x00/")
    assert ports.stale(state) == [20000]
    ports.release_all(state, owner.token)
    ports.drop_stale(state)
    assert not (state / "ports" / str(port)).exists() and ports.stale(state) == []
