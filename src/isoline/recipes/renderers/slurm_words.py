"""Words of a batch script: what is known only when the job runs is marked while it is rendered. Pure.

The marks are control characters, which no word of a recipe may hold.
"""

from __future__ import annotations

import re

from isoline.recipes.renderers.text import quoted

NODE = re.compile(r"\x01(\d+)\x02")
"""The address of a node of the job, by its number."""

SHELL = "\x03"
"""Begins a word that is the shell's as it stands."""

COMPILED = "\x04"
"""The folder of compiled kernels on the nodes."""

MARKS = re.compile(r"[\x00-\x08]")
"""What no word of a recipe may hold: our own marks are among it, and what they mark is not quoted."""


def node_at(number: int) -> str:
    """The address of a node, as a word or a part of one."""
    return f"\x01{number}\x02"


def addressed(text: str) -> str:
    """A text with the shell's variables for addresses of nodes."""
    return NODE.sub(r"${hosts[\1]}", text)


def shell_word(word: str) -> str:
    """A word of the script: addresses of nodes and the folder of compiled kernels are shell variables,
    anything else is quoted as it is."""
    if word.startswith(SHELL):
        return word[1:]
    if not NODE.search(word) and COMPILED not in word:
        return quoted(word)
    text = re.sub(r'([\\"$`])', r"\\\1", word)
    return '"' + addressed(text).replace(COMPILED, "$compiled") + '"'
