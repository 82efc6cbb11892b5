"""Archives of untrusted jobs: what is refused, that nothing gets out, and that honest ones come through."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from isoline.errors import IncompleteError
from isoline.results.arrivals.archive import Limits, unpack
from isoline.results.arrivals.names import NameRefusedError, Names, safe_path

SMALL = Limits(bytes=1 << 20, file_bytes=1 << 19, members=50, ratio=20, free_bytes=1 << 16)

GOOD = {"run/one.json": b'{"a": 1}', "run/deep/two.json": b"[]", "three.csv": b"x\n1\n"}


def tar_bytes(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar of these members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as made:
        for info, content in members:
            info.size = info.size or len(content)
            made.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def entry(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    """One member of a tar."""
    info = tarfile.TarInfo(name)
    info.type = kind
    if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        info.linkname, content = "/etc/passwd", b""
    if kind not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        content = b""
    return info, content


def zip_bytes(content: dict[str, bytes], change: Callable[[zipfile.ZipInfo], None] | None = None) -> bytes:
    """A zip of these files. ``change`` edits each entry before it is written."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in content.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if change:
                change(info)
            made.writestr(info, data)
    return buffer.getvalue()


def mode(bits: int) -> Callable[[zipfile.ZipInfo], None]:
    """Give an entry the type of file that these mode bits say."""

    def change(info: zipfile.ZipInfo) -> None:
        info.create_system, info.external_attr = 3, (bits | 0o644) << 16

    return change


def zst(data: bytes) -> bytes:
    """Compressed by zstd."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return bytes(sink.getvalue())


GOOD_TAR = tar_bytes(*(entry(f"./{name}", data) for name, data in GOOD.items()))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("job.zip", zip_bytes(GOOD)),
        ("job.tar", GOOD_TAR),
        ("JOB.TAR.GZ", gzip.compress(GOOD_TAR)),
        ("job.tgz", gzip.compress(GOOD_TAR)),
        ("job.tar.zst", zst(GOOD_TAR)),
        ("gnu.tar", tar_bytes(*(entry(name, data) for name, data in GOOD.items()), form=tarfile.GNU_FORMAT)),
    ],
)
def test_an_honest_archive_comes_out_as_it_is(name: str, content: bytes, tmp_path: Path) -> None:
    """Every kind that is read gives the same files, folders of their own included."""
    (tmp_path / name).write_bytes(content)
    (tmp_path / "out").mkdir()
    assert unpack(tmp_path / name, tmp_path / "out", SMALL) == len(GOOD)
    found = {
        path.relative_to(tmp_path / "out").as_posix(): path.read_bytes()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert found == GOOD


def test_long_names_and_sparse_looking_files_come_through(tmp_path: Path) -> None:
    """A name that needs an extended header is no reason to refuse, nor are zeros below the free size."""
    long = "/".join(["folder" * 20] * 3) + "/file.json"
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        out = tmp_path / str(form)
        out.mkdir()
        (tmp_path / "a.tar").write_bytes(tar_bytes(entry(long, bytes(40_000)), form=form))
        assert unpack(tmp_path / "a.tar", out, SMALL) == 1
        assert (out / long).stat().st_size == 40_000


def _lying_zip() -> bytes:
    """A zip whose entry says 10 bytes, and holds 40,000."""
    data = bytearray(zip_bytes({"a.json": os.urandom(40_000)}))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", data, data.index(signature) + offset, 10)
    return bytes(data)


def _sparse_tar() -> bytes:
    info = tarfile.TarInfo("a.json")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9999999"}
    return tar_bytes((info, b"0\n" + bytes(1022)))


def _huge_header_tar() -> bytes:
    """An extended header that says that it is of 4 GiB; a reader that believes it takes the memory."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 4 * 1024**3 - 512
    return info.tobuf(tarfile.USTAR_FORMAT) + bytes(1 << 16)


BOMB = bytes(900_000)
HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "zip bomb by ratio": ("a.zip", zip_bytes({"a.json": bytes(400_000)}), "times its size"),
    "zip bomb by size": (
        "a.zip",
        zip_bytes({f"{i}": os.urandom(400_000) for i in range(3)}),
        "1048576 bytes",
    ),
    "zip bomb by one file": ("a.zip", zip_bytes({"a": BOMB}), "at most 524288"),
    "zip that lies about a size": ("a.zip", _lying_zip(), "damaged|bytes that it is said"),
    "zip with a link": ("a.zip", zip_bytes({"a.json": b"/etc/passwd"}, mode(0o120000)), "a link"),
    "zip with a device": ("a.zip", zip_bytes({"a.json": b""}, mode(0o020000)), "no plain file"),
    "zip with a pipe": ("a.zip", zip_bytes({"a.json": b""}, mode(0o010000)), "no plain file"),
    "zip upwards": ("a.zip", zip_bytes({"x/../../a.json": b"x"}), "leads upwards"),
    "zip absolute": ("a.zip", zip_bytes({"/tmp/a.json": b"x"}), "absolute"),
    "zip of another system": ("a.zip", zip_bytes({"x\\..\\a.json": b"x"}), "backslash"),
    "zip with a drive": ("a.zip", zip_bytes({"c:/a.json": b"x"}), "drive"),
    "zip by case": ("a.zip", zip_bytes({"A.json": b"x", "a.json": b"y"}), "two names for one file"),
    "zip by Unicode": ("a.zip", zip_bytes({"\u00e9": b"x", "e\u0301": b"y"}), "two names for one file"),
    "zip file and folder": ("a.zip", zip_bytes({"a": b"x", "A/b": b"y"}), "both a file and a folder"),
    "zip folder by case": ("a.zip", zip_bytes({"a/x": b"x", "A/y": b"y"}), "two names for one folder"),
    "zip with many": ("a.zip", zip_bytes({str(i): b"" for i in range(51)}), "more than 50 members"),
    "zip cut off": ("a.zip", zip_bytes(GOOD)[:-30], "damaged"),
    "zip of nothing": ("a.zip", zip_bytes({}), "no file in it"),
    "wrong magic": ("a.zip", b"#!/bin/sh\nrm -rf /\n", "first bytes nothing that is read"),
    "another archive's magic": ("a.zip", GOOD_TAR, "first bytes tar"),
    "empty": ("a.tar", b"", "nothing that is read"),
    "tar with a symlink": ("a.tar", tar_bytes(entry("a.json", kind=tarfile.SYMTYPE)), "a link"),
    "tar with a hard link": ("a.tar", tar_bytes(entry("a.json", kind=tarfile.LNKTYPE)), "a link"),
    "tar with a device": ("a.tar", tar_bytes(entry("a.json", kind=tarfile.CHRTYPE)), "no plain file"),
    "tar with a pipe": ("a.tar", tar_bytes(entry("a.json", kind=tarfile.FIFOTYPE)), "no plain file"),
    "tar upwards": ("a.tar", tar_bytes(entry("../a.json")), "leads upwards"),
    "tar absolute": ("a.tar", tar_bytes(entry("/tmp/a.json")), "absolute"),
    "tar with a control character": ("a.tar", tar_bytes(entry("a\x1b[2J.json")), "control"),
    "tar with a hidden direction": ("a.tar", tar_bytes(entry("a\u202enosj.json")), "invisible"),
    "tar twice one name": ("a.tar", tar_bytes(entry("a.json"), entry("./a.json")), "twice the same name"),
    "tar with many": ("a.tar", tar_bytes(*(entry(str(i)) for i in range(51))), "more than 50 members"),
    "tar that is sparse": ("a.tar", _sparse_tar(), "no plain file|damaged"),
    "tar with a huge header": ("a.tar", _huge_header_tar(), "a header of"),
    "tar cut between members": ("a.tar", GOOD_TAR[:2048], "cut off"),
    "tar cut in a member": ("a.tar", GOOD_TAR[:1600], "damaged|cut off|bytes that it"),
    "tar.gz bomb": ("a.tar.gz", gzip.compress(tar_bytes(entry("a", bytes(400_000)))), "times its size"),
    "tar.zst bomb": ("a.tar.zst", zst(tar_bytes(entry("a", bytes(400_000)))), "times its size"),
    "bomb behind the end": ("a.tar.gz", gzip.compress(GOOD_TAR + bytes(1 << 20)), "times its size|1048576"),
    "tar.gz cut off": ("a.tar.gz", gzip.compress(GOOD_TAR)[:-6], "damaged"),
    "tar.gz with a flipped byte": (
        "a.tar.gz",
        (lambda data: data[:60] + bytes([data[60] ^ 255]) + data[61:])(gzip.compress(GOOD_TAR)),
        "damaged|cut off",
    ),
    "tar.zst cut off": ("a.tar.zst", zst(GOOD_TAR)[:-6], "damaged|cut off"),
    "long name": ("a.tar", tar_bytes(entry("a/" * 600)), "a name of"),
    "deep": ("a.tar", tar_bytes(entry("a/" * 40 + "b")), "41 folders"),
    "long part": ("a.zip", zip_bytes({"x" * 256: b""}), "longer than 255"),
    "other kind": ("a.rar", b"Rar!\x1a\x07", "no archive that is read"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    """Each is refused with its reason, and nothing is written outside the folder that it was given."""
    name, content, reason = HOSTILE[case]
    archive, out = tmp_path / name, tmp_path / "in" / "out"
    archive.write_bytes(content)
    out.mkdir(parents=True)
    with pytest.raises(IncompleteError, match=reason) as caught:
        unpack(archive, out, SMALL)
    assert "\n" not in caught.value.line() and caught.value.line().isprintable()
    assert {path.name for path in tmp_path.iterdir()} == {name, "in"}
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["out"]
    assert not [path for path in out.rglob("*") if path.is_symlink()]
    assert sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) <= SMALL.bytes


def test_a_million_members_cost_no_memory(tmp_path: Path) -> None:
    """A zip that declares a million entries is refused before its directory is read."""
    one = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    directory = one * 1_000_000
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(directory), 31, 0)
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 33, 0, 0, 0, 1, 0) + b"a"
    archive = tmp_path / "many.zip"
    archive.write_bytes(local + directory + end)
    del directory
    tracemalloc.start()
    try:
        with pytest.raises(IncompleteError, match="more than 100000 members"):
            unpack(archive, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024**2
    finally:
        tracemalloc.stop()


def test_a_million_headers_without_a_file_end(tmp_path: Path) -> None:
    """Headers that name no file count as members too: a tar of nothing else does not run for ever."""
    header = tarfile.TarInfo("a").create_pax_global_header({"comment": "x"})
    (tmp_path / "a.tar").write_bytes(header * 1000)
    with pytest.raises(IncompleteError, match="more than 50 members"):
        unpack(tmp_path / "a.tar", tmp_path, SMALL)


@pytest.mark.parametrize("name", ["a/b.json", "./a//"[:3], "ü/模型.json", "a b/c'd.json"])
def test_plain_names_stay(name: str) -> None:
    """What people name their files is no attack."""
    assert safe_path(name) == name.removeprefix("./")


def test_folders_may_come_twice() -> None:
    """A folder is listed and is in the paths of its files; a file is there once."""
    names = Names()
    assert names.add("a/", is_folder=True) == "a"
    assert names.add("a/b/c", is_folder=False) == "a/b/c"
    assert names.add("a/b", is_folder=True) == "a/b"
    assert names.add("./", is_folder=True) == ""
    with pytest.raises(NameRefusedError, match="both a file and a folder"):
        names.add("a/b/c/d", is_folder=False)
