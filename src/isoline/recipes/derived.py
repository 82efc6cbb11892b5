"""Images with what a recipe's programs need beside the engine: a base and pinned packages. Pure.

Sidecars say what the image lacks (a router's package, a store's wheel). Workers import the same packages
(``dynamo.vllm``, a KV connector), so a launch has one image for all of its programs. It is made while the
pool is staged, never on allocated devices; its name says what it is made of.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from isoline.catalog.pools import Pool
from isoline.errors import InputError
from isoline.recipes.deployment import Deployment

PACKAGE = re.compile(
    r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?"
    r"(==[A-Za-z0-9][A-Za-z0-9._+!-]*| @ git\+https://[^\s@#]+@[0-9a-f]{40}(#[A-Za-z0-9=&/._-]+)?)$"
)
"""A package of one version: by number, or by the commit of its source."""

_PIP = re.compile(r"^PIP_[A-Z0-9_]+\Z")

KEPT = {"PIP_BREAK_SYSTEM_PACKAGES": "1"}
"""An image's Python is nobody else's, whatever its distribution says."""


def is_pinned(package: str) -> bool:
    """Whether a package is one version for good."""
    return PACKAGE.match(package) is not None


def pip_words(packages: Iterable[str]) -> list[str]:
    """The command that brings packages into the Python of an image."""
    return ["python3", "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", *packages]


def pip_env(pool: Pool) -> dict[str, str]:
    """What pip is told while an image is made: variables ``PIP_…`` of the pool's container environment."""
    given = pool.container.env if pool.container else {}
    return {**KEPT, **{name: value for name, value in sorted(given.items()) if _PIP.match(name)}}


def containerfile(base: str, packages: Iterable[str], names: Iterable[str] = ()) -> str:
    """What docker and podman make the image from.

    :param names: variables that are given while it is made; none stays in the image.
    """
    rows = [f"FROM {base}", *(f"ARG {name}={value}" for name, value in KEPT.items())]
    rows += [f"ARG {name}" for name in names if name not in KEPT]
    return "\n".join([*rows, f"RUN {json.dumps(pip_words(packages))}"]) + "\n"


def definition(base_file: str, packages: Iterable[str], env: Mapping[str, str]) -> str:
    """What apptainer makes the image from; ``base_file`` is the base as one file."""
    given = [f"    export {name}={shlex.quote(value)}" for name, value in env.items()]
    rows = ["Bootstrap: localimage", f"From: {base_file}", "", "%post", *given]
    return "\n".join([*rows, f"    {shlex.join(pip_words(packages))}"]) + "\n"


def why_no_image(packages: Sequence[str], pool: Pool) -> tuple[str, str] | None:
    """(why, remedy) where this pool's staging cannot make an image with packages; None where it can."""
    if not packages or pool.launcher not in ("process", "slurm"):
        return None
    names = ", ".join(packages)
    kind = pool.slurm.container if pool.slurm else "none"
    if kind == "none":
        what = f"its sidecars need packages ({names}), and programs of pool {pool.name} run in no image"
        return what, "use a pool with containers"
    if pool.slurm is not None and pool.slurm.has_runtime and pool.slurm.image_cache is None:
        what = f"its sidecars need packages ({names}), and pool {pool.name} has no folder for such an image"
        return what, "name a folder that all nodes see in slurm.image_cache"
    return None


def check_packages(deployment: Deployment, pool: Pool, where: str) -> None:
    """Refuse a launch whose image this pool's staging cannot make.

    :raises InputError: at planning, before anything is allocated.
    """
    if found := why_no_image(deployment.packages, pool):
        raise InputError(found[0], where=where, remedy=found[1])
