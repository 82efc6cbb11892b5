"""From resolved arguments to the words of a command line. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def word(value: Any) -> str:
    """One value as one word: JSON for a mapping, whole numbers without a point."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def flags(args: Mapping[str, Any]) -> list[str]:
    """``{"ctx-size": 8192, "no-warmup": True, "bs": [1, 2]}`` as ``--bs 1 2 --ctx-size 8192 --no-warmup``.

    In the order of the names: a mapping has none of its own, so moving a line is no other launch. A
    list is one flag with several words; a mapping is JSON in one word.
    """
    argv: list[str] = []
    for name, value in sorted(args.items()):
        argv.append(f"--{name}")
        if value is True:
            continue
        argv += [word(item) for item in value] if isinstance(value, list) else [word(value)]
    return argv
