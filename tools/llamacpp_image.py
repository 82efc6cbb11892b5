"""A container image of llama.cpp for CPUs, made from this machine: no registry and no base image needed.

    python tools/llamacpp_image.py                # write .isoline/images/llamacpp-<key>.tar
    python tools/llamacpp_image.py --load podman  # and load it as localhost/isoline-llamacpp:<version>

Inside are the Python of the engine's environment without what a server does not need, the engine's
wheel, the shared libraries that these two ask for, our start script
(``/opt/isoline/llamacpp_server.py``) and a few small programs. It is an OCI archive written byte for
byte by this script, so the same content has the same digest, whoever loads it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SCRIPT = PROJECT / "src/isoline/runners/engines/llamacpp_server.py"
REPOSITORY = "localhost/isoline-llamacpp"
FORMAT = 2
"""Counts changes of this script that change the image; part of the key."""

PROGRAMS = ("sh", "cat", "rm", "chown", "ls", "sleep", "mkdir")
LEFT_OUT = re.compile(
    r"(^|/)(__pycache__|test|tests|idlelib|tkinter|turtledemo|lib2to3|ensurepip|venv|pydoc_data|"
    r"site-packages|distutils|config-[^/]*|unittest)(/|$)"
    r"|(^|/)(_test[^/]*|_xx[^/]*|xx[^/]*|_tkinter[^/]*|_curses[^/]*|_sqlite3[^/]*|_dbm[^/]*|_gdbm[^/]*|"
    r"readline[^/]*)\.so$|\.(a|pyc)$"
)
KERNELS = re.compile(r"^(linux-vdso|linux-gate)\.")
ENV = (
    "PATH=/usr/local/bin:/usr/bin:/bin",
    "LD_LIBRARY_PATH=/usr/local/lib",
    "PYTHONDONTWRITEBYTECODE=1",
    "PYTHONUNBUFFERED=1",
)


class ImageError(Exception):
    """The image cannot be made; the message says what is missing."""


@dataclass(frozen=True)
class Made:
    """An image on disk. ``digest`` is that of its manifest; ``ref`` its name with the engine's version."""

    path: Path
    ref: str
    digest: str

    @property
    def pinned(self) -> str:
        """The name by digest."""
        return f"{REPOSITORY}@{self.digest}"


def engine_env(state: Path) -> Path:
    """The newest engine environment of the state folder."""
    found = sorted((state / "envs").glob("llamacpp-*/bin/python"), key=lambda path: path.lstat().st_mtime)
    if not found:
        raise ImageError(f"no engine environment in {state / 'envs'}: run `make setup`")
    return found[-1].parents[1]


def _asked(python: Path, code: str) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def libraries(program: Path) -> Iterator[tuple[str, Path]]:
    """(name under which it is asked for, file) of each shared library, the loader with its full path."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False, timeout=60)
    for line in done.stdout.splitlines():
        words = line.split()
        if not words or KERNELS.match(words[0]):
            continue
        if "not found" in line:
            raise ImageError(f"{program.name} asks for {words[0]}, which is not on this machine")
        if words[0].startswith("/"):
            yield words[0], Path(words[0])
        elif "=>" in words:
            yield words[0], Path(words[2])


def content(env: Path) -> dict[str, Path]:
    """path inside the image -> file on this machine."""
    python = env / "bin" / "python"
    base = Path(_asked(python, "import sys; print(sys.base_prefix)"))
    version = _asked(python, "import sys; print('%d.%d' % sys.version_info[:2])")
    packages = Path(_asked(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    stdlib = base / "lib" / f"python{version}"
    files = {
        f"usr/local/bin/python{version}": (base / "bin" / f"python{version}").resolve(),
        "opt/isoline/llamacpp_server.py": SCRIPT,
    }
    for path in stdlib.rglob("*"):
        name = path.relative_to(stdlib).as_posix()
        if path.is_file() and not LEFT_OUT.search(name):
            files[f"usr/local/lib/python{version}/{name}"] = path
    for path in packages.rglob("*"):
        name = path.relative_to(packages).as_posix()
        if path.is_file() and name.startswith("xllamacpp") and not name.endswith(".pyc"):
            files[f"usr/local/lib/python{version}/site-packages/{name}"] = path
    for name in PROGRAMS:
        found = shutil.which(name, path="/bin:/usr/bin")
        if found:
            files[f"bin/{name}"] = Path(found).resolve()
    for path in [path for path in files.values() if ".so" in path.name or path.parent.name == "bin"]:
        for name, library in libraries(path):
            # The loader's path is written in each program; the rest is found by LD_LIBRARY_PATH.
            files[name.lstrip("/") if name.startswith("/") else f"usr/local/lib/{name}"] = library.resolve()
    return dict(sorted(files.items()))


def key_of(files: dict[str, Path]) -> str:
    """Digest over names and content."""
    whole = hashlib.sha256(f"{FORMAT}\n{sys.byteorder}\n{json.dumps(ENV)}\n".encode())
    for name, path in files.items():
        with path.open("rb") as source:
            whole.update(f"{name} {hashlib.file_digest(source, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry  # uid, gid and time are 0


def write_layer(files: dict[str, Path], into: Path) -> None:
    """The root file system as a tar whose bytes depend on the content alone."""
    folders = {"tmp", "models", "scratch", "etc", "proc", "sys", "dev"}
    for name in files:
        folders |= {str(parent) for parent in Path(name).parents if str(parent) != "."}
    version = next(name for name in files if name.startswith("usr/local/bin/python")).rpartition("/")[2]
    with tarfile.open(into, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(folders):
            tar.addfile(_entry(name, tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755))
        for name, text in {
            "etc/passwd": "root:x:0:0:root:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n",
            "etc/group": "root:x:0:\nnogroup:x:65534:\n",
        }.items():
            entry = _entry(name, tarfile.REGTYPE, 0o644)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
        link = _entry("usr/local/bin/python3", tarfile.SYMTYPE, 0o777)
        link.linkname = version
        tar.addfile(link)
        for name, path in files.items():
            entry = _entry(name, tarfile.REGTYPE, 0o755 if os.access(path, os.X_OK) else 0o644)
            entry.size = path.stat().st_size
            with path.open("rb") as source:
                tar.addfile(entry, source)


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def write_archive(layer: Path, ref: str, user: str, into: Path) -> str:
    """Put layer, configuration and manifest together as an OCI archive; the manifest's digest."""
    with layer.open("rb") as source:
        layer_digest = "sha256:" + hashlib.file_digest(source, "sha256").hexdigest()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    config = _json(
        {
            "architecture": machine,
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {"Env": ENV, "User": user, "WorkingDir": "/tmp", "Entrypoint": ["python3"]},
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            # As many as layers: without it no other image can be made of this one.
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "tools/llamacpp_image.py"}],
        }
    )
    kind = "application/vnd.oci.image"
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": {
                "mediaType": f"{kind}.config.v1+json",
                "digest": _digest(config),
                "size": len(config),
            },
            "layers": [
                {
                    "mediaType": f"{kind}.layer.v1.tar",
                    "digest": layer_digest,
                    "size": layer.stat().st_size,
                }
            ],
        }
    )
    index = _json(
        {
            "schemaVersion": 2,
            "manifests": [
                {
                    "mediaType": f"{kind}.manifest.v1+json",
                    "digest": _digest(manifest),
                    "size": len(manifest),
                    "annotations": {
                        "org.opencontainers.image.ref.name": ref,  # podman
                        "io.containerd.image.name": ref,  # docker
                    },
                }
            ],
        }
    )
    with tarfile.open(into, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in (
            ("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
            ("index.json", index),
            *((f"blobs/sha256/{_digest(data)[7:]}", data) for data in (config, manifest)),
        ):
            entry = _entry(name, tarfile.REGTYPE, 0o644)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        entry = _entry(f"blobs/sha256/{layer_digest[7:]}", tarfile.REGTYPE, 0o644)
        entry.size = layer.stat().st_size
        with layer.open("rb") as source:
            tar.addfile(entry, source)
    return _digest(manifest)


def make(state: Path, user: str = "") -> Made:
    """The image of the engine in this state folder; made once for each content.

    :param user: who programs run as inside (``1000:1000``); empty is root.
    :raises ImageError: when something that belongs in is not on this machine.
    """
    env = engine_env(state)
    files = content(env)
    wheel = next((env / "lib").glob("python*/site-packages/xllamacpp-*.dist-info")).name
    version = wheel.removeprefix("xllamacpp-").removesuffix(".dist-info")
    ref = f"{REPOSITORY}:{version}" + (f"-user{user.replace(':', '-')}" if user else "")
    folder = state / "images"
    folder.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(f"{key_of(files)} {user}".encode()).hexdigest()[:16]
    path = folder / f"llamacpp-{key}.tar"
    note = path.with_suffix(".json")
    if not (path.exists() and note.exists()):
        part = folder / f".llamacpp-{key}.{os.getpid()}"
        layer, archive = part.with_suffix(".layer"), part.with_suffix(".tar")
        try:
            write_layer(files, layer)
            digest = write_archive(layer, ref, user, archive)
            archive.replace(path)
            note.write_text(json.dumps({"ref": ref, "digest": digest}) + "\n", encoding="utf-8")
        finally:
            layer.unlink(missing_ok=True)
            archive.unlink(missing_ok=True)
    said = json.loads(note.read_text(encoding="utf-8"))
    return Made(path, said["ref"], said["digest"])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--state", type=Path, help="the state folder (default: ISOLINE_STATE, else .isoline)")
    parser.add_argument("--user", default="", help="who programs run as inside, `1000:1000`; default root")
    parser.add_argument("--load", choices=("podman", "docker"), help="load it into this runtime")
    options = parser.parse_args()
    state = options.state or Path(os.environ.get("ISOLINE_STATE") or PROJECT / ".isoline")
    try:
        made = make(state, options.user)
    except ImageError as error:
        print(f"llamacpp_image: {error}", file=sys.stderr)
        return 4
    if options.load:
        # The name inside the archive is kept by both runtimes.
        done = subprocess.run([options.load, "load", "--quiet", "--input", made.path], check=False)
        if done.returncode:
            return 4
    print(f"{made.ref}\n{made.pinned}\n{made.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
