"""Lines of values in a good document, by libyaml: as :func:`isoline.catalog.trees.line_of`, only sooner.

For documents that were read before and are right; a test holds the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from isoline.catalog.trees import Loc, line_of, parse_yaml

_Loader: Any = getattr(yaml, "CSafeLoader", None)


@dataclass(frozen=True)
class Lines:
    """A document of which only the lines are asked."""

    node: Any

    def line_of(self, loc: Loc) -> int:
        """The line (from 1) of the deepest part of ``loc`` that the document has."""
        line, node = 0, self.node
        for part in loc:
            found = _step(node, part)
            if found is not None:
                line, node = found
        return int(line) + 1


@dataclass(frozen=True)
class _Slow(Lines):
    """The same by the careful reader."""

    def line_of(self, loc: Loc) -> int:
        return line_of(self.node, loc)


def _step(node: Any, part: int | str) -> tuple[int, Any] | None:
    if isinstance(node, yaml.MappingNode):
        text = str(part)
        for key, value in node.value:
            if key.value == text:
                return key.start_mark.line, value
        for key, value in node.value:
            if key.value.lower() == text.lower():
                return key.start_mark.line, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    return None


def quick_lines(text: str, where: str) -> Lines:
    """The lines of one document.

    :raises DocumentError: when it is not YAML after all.
    """
    if _Loader is not None:
        try:
            node = yaml.compose(text, Loader=_Loader)
        except yaml.YAMLError:
            node = None
        if node is not None:
            return Lines(node)
    return _Slow(parse_yaml(text, where))
