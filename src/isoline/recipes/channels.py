"""Channels: names for image patterns (``recipes/channels.yaml``), resolved once for a run.

Pure but for reading the file; asking a registry is a function that the caller gives
(:func:`isoline.runners.staging.registry.registry_digest`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator, model_validator

from isoline.catalog.documents import Document, DocumentError, UnknownNameError, load_document, nearest
from isoline.errors import InputError

if TYPE_CHECKING:
    from isoline.recipes.schema import Recipe

FILE = "recipes/channels.yaml"

Architecture = Literal["amd64", "arm64"]

ARM_SKUS = frozenset(("gb200-nvl72", "gb300-nvl72", "vr200-nvl72"))
"""SKUs whose hosts have NVIDIA's Arm CPUs (Grace, Vera); the hosts of all others are x86-64."""

_DIGEST = re.compile(r"^sha256:[0-9a-f]{64}\Z")


class Channel(Document):
    """One channel. ``image`` holds ``{version}`` once; ``digests`` are of that version, null: unknown."""

    image: str
    version: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")
    digests: dict[Architecture, str | None] = {}
    source: str
    dated: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")

    @field_validator("image")
    @classmethod
    def _has_one_version(cls, value: str) -> str:
        tag = value.rpartition("/")[2].partition(":")[2]
        if value.count("{version}") != 1 or "{version}" not in tag:
            raise ValueError(f"{value!r} has not {{version}} once in its tag; write repository:{{version}}")
        return value

    @field_validator("digests")
    @classmethod
    def _are_digests(cls, value: dict[str, str | None]) -> dict[str, str | None]:
        for digest in value.values():
            if digest is not None and not _DIGEST.match(digest):
                raise ValueError(f"{digest!r} is no digest; write sha256:<64 hex digits>")
        return value

    @model_validator(mode="after")
    def _is_an_image(self) -> Channel:
        from isoline.recipes.schema import Image

        Image(ref=self.ref)
        return self

    @property
    def ref(self) -> str:
        """The image reference by its tag."""
        return self.image.replace("{version}", self.version)


class Channels(Document):
    """The file."""

    schema_version: Literal[1]
    channels: dict[str, Channel]

    @field_validator("channels")
    @classmethod
    def _names_are_plain(cls, value: dict[str, Channel]) -> dict[str, Channel]:
        for name in value:
            if not re.match(r"^[a-z0-9][a-z0-9-]*\Z", name):
                raise ValueError(f"{name!r} is no name of a channel: lower-case letters, digits and -")
        return value


class Refs(dict[str, str]):
    """Channel -> image reference by its tag; an unknown name is an error with the nearest one."""

    def __missing__(self, name: str) -> str:
        raise UnknownNameError([(FILE, f"no such channel; {nearest(name, self)}")], "channel", name)


def read_channels(project: Path) -> dict[str, Channel]:
    """All channels of a project by name; none where it has no such file.

    :raises DocumentError: when the file is wrong.
    """
    if not (project / FILE).exists():
        return {}
    return load_document(project / FILE, Channels, root=project).channels


def load_channels(project: Path) -> Refs:
    """Channel -> image reference by its tag.

    :raises DocumentError: when the file is wrong; when an unknown name is asked for.
    """
    return Refs({name: channel.ref for name, channel in read_channels(project).items()})


def parse_override(text: str) -> tuple[str, str]:
    """``CHANNEL=REF`` of ``--image``.

    :raises InputError: when it has another form or REF is no image with a tag or digest.
    """
    name, equals, ref = text.partition("=")
    if not equals or not name or not ref:
        raise InputError(f"{text!r} is not CHANNEL=REF", where="--image")
    from isoline.recipes.schema import Image

    try:
        Image(ref=ref)
    except ValueError as error:
        lines = [line for line in str(error).splitlines() if "Value error" in line]
        what = lines[0].partition("Value error, ")[2].split(" [type")[0] if lines else f"{ref!r} is no image"
        raise InputError(what, where=f"--image {name}") from None
    return name, ref


def architecture_of(sku: str) -> Architecture:
    """The CPU architecture of a SKU's hosts, which decides the image's variant."""
    return "arm64" if sku in ARM_SKUS else "amd64"


def resolve_channels(
    recipes: Iterable[Recipe],
    channels: Mapping[str, Channel],
    overrides: Mapping[str, str],
    digest_of: Callable[[str, Architecture], str | None],
) -> dict[str, dict[Architecture, str]]:
    """:func:`resolve_used` for the channels that recipes use."""
    uses = [(recipe.image.channel, recipe.sku) for recipe in recipes]
    return resolve_used(uses, channels, overrides, digest_of)


def resolve_used(
    uses: Iterable[tuple[str | None, str]],
    channels: Mapping[str, Channel],
    overrides: Mapping[str, str],
    digest_of: Callable[[str, Architecture], str | None],
) -> dict[str, dict[Architecture, str]]:
    """Channel -> CPU architecture -> reference, for the channels and architectures that are used.

    Each is asked for once. What has a digest is ``ref@sha256:…``, else only the tag stands there: such
    a launch is unresolved (DESIGN 5.1).

    :param uses: channel (None: none) and SKU of each recipe.
    :param overrides: channel -> reference, from ``--image``.
    :param digest_of: asks a registry; None where it cannot say.
    :raises InputError: for a channel that is not there, or an override that no recipe uses.
    """
    wanted: dict[str, set[Architecture]] = {}
    for channel, sku in uses:
        if channel is not None:
            wanted.setdefault(channel, set()).add(architecture_of(sku))
    for name in overrides:
        if name not in wanted:
            raise InputError(
                f"no selected recipe uses channel {name!r}",
                where="--image",
                remedy=nearest(name, wanted) if wanted else "no selected recipe uses any channel",
            )
    return {
        name: {
            arch: _resolved(name, arch, channels, overrides.get(name), digest_of)
            for arch in sorted(wanted[name])
        }
        for name in sorted(wanted)
    }


def _resolved(
    name: str,
    arch: Architecture,
    channels: Mapping[str, Channel],
    override: str | None,
    digest_of: Callable[[str, Architecture], str | None],
) -> str:
    if override is not None:
        ref, known = override, None
    elif name in channels:
        ref, known = channels[name].ref, channels[name].digests.get(arch)
    else:
        raise InputError(f"unknown channel {name!r}", where=FILE, remedy=nearest(name, channels))
    if "@" in ref:
        return ref
    digest = known or digest_of(ref, arch)
    return f"{ref}@{digest}" if digest else ref


def images_for(resolved: Mapping[str, Mapping[Architecture, str]], sku: str) -> dict[str, str]:
    """Channel -> reference for one SKU: what :class:`isoline.recipes.render.Inputs` takes."""
    arch = architecture_of(sku)
    return {name: refs[arch] for name, refs in resolved.items() if arch in refs}


def recipes_of(project: Path, name: str) -> list[str]:
    """The ids of the recipes that use a channel; recipes that cannot be read are none of them."""
    from isoline.recipes.load import read_recipe, recipe_ids

    found = []
    for recipe_id in recipe_ids(project):
        with suppress(DocumentError):
            if read_recipe(project, recipe_id).recipe.image.channel == name:
                found.append(recipe_id)
    return found


def is_resolved(ref: str) -> bool:
    """Whether a reference names one image for ever."""
    return "@sha256:" in ref


def version_in(channel: Channel, to: str) -> str:
    """The version that ``recipe bump --to`` means: a version, or a reference that fits the pattern.

    :raises InputError: for a reference of another repository or form.
    """
    if "@" in to:
        raise InputError(
            f"{to!r} has a digest, which each run resolves itself", where=FILE, remedy="name the version"
        )
    if "/" not in to and ":" not in to:
        return to
    ref = to
    before, _, after = channel.image.partition("{version}")
    if not ref.startswith(before) or not ref.endswith(after) or len(ref) <= len(before) + len(after):
        raise InputError(
            f"{to!r} does not fit the pattern {channel.image!r}",
            where=FILE,
            remedy="change the pattern there, or name a version",
        )
    return ref[len(before) : len(ref) - len(after)]
