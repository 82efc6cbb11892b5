"""Images on the machines of a pool: asked for by the runtime's own words, brought before a launch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from isoline.catalog.pools import Pool
from isoline.errors import InputError
from isoline.runners.causes import explain
from isoline.runners.machine.hosts import Host, ToolUnavailableError
from isoline.runners.machine.nodes import NodeJobError

PULL_S = 7200.0
ABSENT = re.compile(r"(?i)no such image|no such object|image not known|unable to find")

_SUFFIX = {"pyxis": "sqsh", "apptainer": "sif", "docker": "tar", "podman": "tar"}


@dataclass(frozen=True)
class Found:
    """An image that a runtime has: its bytes."""

    bytes: int


def by_digest(ref: str) -> str:
    """``repository@sha256:…`` without the tag, which some tools do not take beside a digest."""
    name, at, digest = ref.partition("@")
    if not at:
        return ref
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}@{digest}"


def find_image(host: Host, runtime: str, ref: str) -> Found | None:
    """The image as the machine's runtime knows it; None where it has none.

    :raises ToolUnavailableError: when the runtime does not say.
    """
    done = host.run([runtime, "image", "inspect", "--format", "{{.Size}}", by_digest(ref)], timeout_s=60)
    if done.ok:
        words = done.stdout.split()
        return Found(int(words[0]) if words and words[0].isdigit() else 0)
    if ABSENT.search(done.stderr):
        return None
    raise ToolUnavailableError(f"{runtime} image inspect: {done.last_line()}", where=host.name)


def pull_image(host: Host, runtime: str, ref: str) -> None:
    """Have the machine's runtime pull an image.

    :raises NodeJobError: with the cause that the runtime's words prove.
    :raises ToolUnavailableError: when it gives no answer.
    """
    if ref.startswith("localhost/"):
        raise NodeJobError(
            "image_missing",
            f"image {ref} is not there, and no registry has it",
            where=host.name,
            remedy="make or load it on that machine",
        )
    done = host.run([runtime, "pull", by_digest(ref)], timeout_s=PULL_S)
    if not done.ok:
        raise explained(f"{done.stdout}\n{done.stderr}", f"{runtime} pull {ref}", host.name)


def explained(text: str, what: str, where: str) -> NodeJobError:
    """The error of a tool that failed: what its words prove, else its last line."""
    cause = explain(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # pip's own word comes before that of the tool that ran it.
    lines = [line for line in lines if "ERROR: " in line] or lines
    last = cause.lines[0][1] if cause else (lines[-1][:300] if lines else "it failed without a word")
    code, remedy = (cause.code, cause.remedy) if cause else ("infra", "")
    return NodeJobError(code, f"{what}: {last}", where=where, remedy=remedy)


def image_file(pool: Pool, ref: str) -> str | None:
    """Where a Slurm pool keeps an image as one file, by its digest; None where its jobs use none.

    With docker and podman the nodes may have the image in their own storage; it is never pulled there.

    :raises InputError: when the pool names no folder for them.
    """
    slurm = pool.slurm
    if slurm is None or slurm.container == "none":
        return None
    if slurm.image_cache is None and slurm.has_runtime:
        return None
    if slurm.image_cache is None:
        raise InputError(
            "slurm.image_cache is not set: nodes would pull the image on allocated devices",
            where=f"pool {pool.name}",
            remedy="name a folder that all nodes see",
        )
    digest = ref.partition("@sha256:")[2]
    name = digest or re.sub(r"[^A-Za-z0-9._-]+", "--", ref)
    return f"{slurm.image_cache.rstrip('/')}/{name}.{_SUFFIX[slurm.container]}"


def import_words(pool: Pool, ref: str) -> list[str]:
    """The command that makes the image's file, ``{out}``, once for all nodes of a Slurm pool."""
    assert pool.slurm is not None
    plain = by_digest(ref)
    match pool.slurm.container:
        case "pyxis":
            registry, slash, rest = plain.partition("/")
            is_registry = bool(slash) and ("." in registry or ":" in registry or registry == "localhost")
            return [
                "enroot", "import", "--output", "{out}",
                f"docker://{registry}#{rest}" if is_registry else f"docker://{plain}",
            ]  # fmt: skip
        case "apptainer":
            return ["apptainer", "pull", "--force", "{out}", f"docker://{plain}"]
        case _:
            return ["skopeo", "copy", f"docker://{plain}", "docker-archive:{out}:" + ref.partition("@")[0]]
