"""Changing ``recipes/channels.yaml`` without touching its comments. Pure."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML

from isoline.recipes.channels import FILE, Channel, Channels, version_in


def bumped(text: str, name: str, channel: Channel, to: str, *, today: str) -> str:
    """The file's text with another version of one channel; its digests are of the old one and go.

    :param to: a version, or a reference that fits the channel's pattern.
    :param today: ``yyyy-mm-dd``, the new ``dated``.
    :raises InputError, DocumentError: for what cannot be a version of this channel.
    """
    version = version_in(channel, to)
    if version == channel.version:
        return text
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    tree: Any = yaml.load(text)
    entry = tree["channels"][name]
    entry["version"] = version
    entry["dated"] = type(entry["dated"])(today)
    entry.pop("digests", None)
    out = io.StringIO()
    yaml.dump(tree, out)
    _check(out.getvalue())
    return out.getvalue()


def _check(text: str) -> None:
    from isoline.catalog.documents import validate_text

    validate_text(text, Channels, FILE)
