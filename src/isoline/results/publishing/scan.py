"""Is a text fit for the public: no path of a machine, no host, no address, no secret. Pure.

It errs on the side of refusing: what is refused and yet harmless can be allowed by name.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Hit:
    """One piece of a text that must not be published. ``shown``: as much of it as can be told."""

    what: str
    text: str

    @property
    def shown(self) -> str:
        """The piece itself; of a secret only how it begins."""
        if self.what == "a secret":
            return f"{self.text[:4]}… ({len(self.text)} characters)"
        return self.text[:80]


_TOP = (
    "internal|local|lan|corp|intra|intranet|home|private|cluster|svc|consul|localdomain|"
    "com|net|org|io|ai|cloud|dev|edu|gov|mil|int|eu|de|fr|uk|cn|jp|kr|nl|ch|tw|us"
)
_KNOWN_FOLDERS = (
    "home|root|Users|mnt|media|data|scratch|tmp|var|opt|srv|workspace|nfs|lustre|gpfs|etc|usr|raid|run|"
    "proc|dev|models|shared|work"
)
_NAMES_A_SECRET = r"(?:token|secret|passw(?:or)?d|passwd|api[_-]?key|access[_-]?key|credentials?)"

_RULES: tuple[tuple[str, str], ...] = (
    (
        "a secret",
        r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{20,}|gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
        r"|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}"
        r"|nvapi-[\w-]{20,}|eyJ[\w-]{6,}\.[\w-]{6,}\.[\w-]*)"
        r"|-----BEGIN [A-Z ]+-----"
        rf"|(?i:\b\w*{_NAMES_A_SECRET}[\"']?\s*[=:]\s*[\"']?[^\s\"',;]{{4,}})"
        r"|(?i:\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,})"
        r"|://[^/\s:@]+:[^/\s@]+@"
        # A long word of all kinds of characters: a key. Digests are lower case, names have hyphens.
        r"|(?<![\w+])(?=[\w+]*[a-z])(?=[\w+]*[A-Z])(?=[\w+]*\d)[\w+]{36,}={0,2}",
    ),
    ("an e-mail address", r"[\w.+%-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"),
    (
        "a path of a machine",
        rf"(?<![\w/.:}}])(?:/(?:[\w.@+-]+/)+[\w.@+-]*|/(?:{_KNOWN_FOLDERS})\b|~/?[\w./-]*/[\w./-]*)"
        r"|\bfile://\S+|\b[A-Za-z]:\\\S+|\\\\[\w.-]+\\\S+",
    ),
    (
        "a host",
        rf"(?i:(?<![\w.-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:{_TOP})(?![\w-]|\.\w))"
        r"|(?i:\bip-\d+-\d+-\d+-\d+\b)|\b[a-z_][\w.-]*@(?!sha256\b)[A-Za-z][\w-]*"
        r"|(?i:\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b)|(?i:(?<![\w:])[0-9a-f:]*::[0-9a-f:]*[0-9a-f]\b)",
    ),
)
_IP = ("a host", r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.]|\w)")

PUBLIC_HOSTS = frozenset({"github.com", "huggingface.co", "arxiv.org"})
"""Hosts that everybody knows: links to them say nothing about a machine."""

_COMMON_WORDS = frozenset({"localhost", "root", "user", "admin", "runner", "ubuntu", "isoline", "local"})


class Scanner:
    """Finds what must not be public.

    :param words: names of this machine, its user, its pools' hosts: found wherever they stand alone.
    :param allowed: pieces that were looked at and may be published.
    """

    def __init__(self, words: Collection[str] = (), allowed: Collection[str] = ()) -> None:
        self._allowed = {*allowed, *PUBLIC_HOSTS}
        names = sorted({word for word in words if len(word) > 3 and word.lower() not in _COMMON_WORDS})
        rules = list(_RULES)
        if names:
            either = "|".join(re.escape(word) for word in names)
            rules.append(("a host", rf"(?i:(?<![\w-])(?:{either})(?![\w-]))"))
        self._rules = [(what, re.compile(pattern)) for what, pattern in rules]
        self._ip = (_IP[0], re.compile(_IP[1]))

    def hits(self, text: str, *, is_version: bool = False) -> list[Hit]:
        """Every piece that must not be public, in the order of the rules.

        :param is_version: the text is a version: four numbers with dots are no address.
        """
        rules = self._rules if is_version else [*self._rules, self._ip]
        return [
            Hit(what, match.group())
            for what, pattern in rules
            for match in pattern.finditer(text)
            if match.group() not in self._allowed
        ]
