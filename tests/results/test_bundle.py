"""Bundles: whole or not there, and never changed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isoline.errors import IncompleteError
from isoline.results.bundles.bundle import (
    MANIFEST,
    BundleWriter,
    attempts,
    bundle_digest,
    is_sealed,
    read_manifest,
    run_folder,
    run_folders,
    sealed_bundles,
    verify,
    write_file,
)

RUN_ID = "20261201T020000Z-demo-aaaaaa"


def seal(run: Path, target: str = "point.r1/1", **files: bytes) -> Path:
    """Seal a bundle with the given files."""
    writer = BundleWriter(run, "point", target, target)
    for name, data in (files or {"a.txt": b"a"}).items():
        path = writer.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return writer.seal()


def test_sealed_bundle_verifies(tmp_path: Path) -> None:
    """After sealing every file is in the manifest with its hash, and the scratch is gone."""
    folder = seal(tmp_path, **{"a.txt": b"a", "aiperf/raw.jsonl": b"{}"})
    assert folder == tmp_path / "point.r1" / "1"
    assert verify(folder) == []
    assert [file.path for file in read_manifest(folder).files] == ["a.txt", "aiperf/raw.jsonl"]
    assert list((tmp_path / ".work").iterdir()) == []


def test_sealed_bundle_is_never_replaced(tmp_path: Path) -> None:
    """A second bundle under the same name is an error, and the first stays as it was."""
    folder = seal(tmp_path)
    with pytest.raises(FileExistsError):
        seal(tmp_path, **{"a.txt": b"other"})
    assert (folder / "a.txt").read_bytes() == b"a"


def test_digest_is_of_the_content_alone(tmp_path: Path) -> None:
    """Equal content has an equal digest, whenever and wherever it was sealed; other content another."""
    digests = [
        bundle_digest(read_manifest(seal(tmp_path / str(n), a=data)))
        for n, data in enumerate([b"x", b"x", b"y"])
    ]
    assert digests[0] == digests[1] != digests[2]


def test_links_are_refused(tmp_path: Path) -> None:
    """A bundle holds plain files only: a link could point to anything."""
    writer = BundleWriter(tmp_path, "point", "p/1", "p/1")
    (writer.path / "link").symlink_to("/etc/hostname")
    with pytest.raises(IncompleteError, match="plain files"):
        writer.seal()
    assert not (tmp_path / "p").exists()


def test_nothing_to_seal_is_an_error(tmp_path: Path) -> None:
    """A bundle without a file says nothing and is not sealed."""
    with pytest.raises(ValueError, match="at least 1 item"):
        BundleWriter(tmp_path, "point", "p/1", "p/1").seal()
    assert not (tmp_path / "p" / "1").exists()


def test_every_difference_is_a_line(tmp_path: Path) -> None:
    """Changed, missing and added files are named."""
    folder = seal(tmp_path, a=b"a", b=b"b")
    (folder / "a").write_bytes(b"changed")
    (folder / "b").unlink()
    (folder / "c").write_bytes(b"new")
    lines = verify(folder)
    assert [line.split(":")[0] for line in lines] == ["a", "b", "c"]


def test_path_out_of_the_bundle_is_a_difference(tmp_path: Path) -> None:
    """A manifest that names a file outside its folder is not followed."""
    folder = seal(tmp_path)
    manifest = json.loads((folder / MANIFEST).read_text())
    for path in ("../outside", "/etc/hostname"):
        manifest["files"][0]["path"] = path
        (folder / MANIFEST).write_text(json.dumps(manifest))
        assert f"{path}: path leaves the bundle" in verify(folder)


def test_discarded_bundle_leaves_nothing(tmp_path: Path) -> None:
    """What is not sealed can be dropped."""
    writer = BundleWriter(tmp_path, "point", "p/1", "p/1")
    (writer.path / "a").write_text("a")
    writer.discard()
    assert list(tmp_path.rglob("a")) == []


def test_sealed_bundles_in_order_and_nothing_else(tmp_path: Path) -> None:
    """Plan first, then launches, then attempts; scratch and unsealed folders are left out."""
    run = run_folder(tmp_path, RUN_ID)
    for target in ("_run", "_launch/aaaa-1", "p/1", "p/2", "p/10"):
        seal(run, target)
    (run / "p" / "3").mkdir()
    left = BundleWriter(run, "point", "p/4", "p/4")
    (left.path / MANIFEST).write_text("{}")
    names = [path.relative_to(run).as_posix() for path in sealed_bundles(run)]
    assert names[:2] == ["_run", "_launch/aaaa-1"]
    assert sorted(names[2:]) == ["p/1", "p/10", "p/2"]
    assert [path.name for path in attempts(run, "p")] == ["1", "2", "10"]
    assert list(run_folders(tmp_path)) == [run]


FULL = """
import resource, signal, sys
from pathlib import Path
from isoline.results.bundles.bundle import BundleWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = BundleWriter(Path(sys.argv[1]), "point", "p/1", "p/1")
for n in range(200):
    (writer.path / f"{n:04d}").write_text("x")
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
writer.seal()
"""


def test_full_store_seals_nothing_half(tmp_path: Path) -> None:
    """When the manifest does not fit any more there is an error, and no bundle."""
    assert hasattr(resource, "RLIMIT_FSIZE")
    result = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "File too large" in result.stderr
    assert not (tmp_path / "p" / "1").exists()
    assert list(tmp_path.rglob(MANIFEST)) == []
    assert list(tmp_path.rglob("*.part")) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from isoline.results.bundles import bundle
step = int(sys.argv[2])
calls = 0
real = bundle.sync
def fsync(path):
    global calls
    calls += 1
    if calls == step:
        os.kill(os.getpid(), signal.SIGKILL)
    real(path)
bundle.sync = fsync
writer = bundle.BundleWriter(Path(sys.argv[1]), "point", "p/1", "p/1")
(writer.path / "a").write_text("a")
(writer.path / "b").write_text("b")
writer.seal()
print("sealed")
"""


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_killed_seal_is_whole_or_not_there(tmp_path: Path, step: int) -> None:
    """SIGKILL at each step of sealing: the bundle verifies or is not there at all."""
    result = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(step)], capture_output=True, text=True, check=False
    )
    target = tmp_path / "p" / "1"
    if step == 5:
        assert result.stdout == "sealed\n"
    else:
        assert result.returncode == -signal.SIGKILL
    assert is_sealed(target) == (step >= 4)  # renamed in before the last fsync, of the parent folder
    if target.exists():
        assert verify(target) == []


def test_written_file_is_whole_or_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails leaves the file that was there, and no scratch."""
    path = tmp_path / "a"
    write_file(path, b"old")

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["a"]
