"""What a file's name says: a second witness against its content, and the only one where that is silent.

Names are words joined by ``_`` or ``-``. GPU counts are never taken from a name (DESIGN 5.1): a
topology from it is a label and no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from isoline.catalog.facts import Catalog
from isoline.catalog.models import FAMILIES

_PRODUCT = re.compile(r"^(?:(?:a|h|b|gb|gh|mi|vr)\d{2,3}[a-z]?|l4|l40s?|\d{3}dt)\Z")
_LENGTHS = re.compile(r"^(\d+)k(\d+)k\Z")
_TOPOLOGY = re.compile(r"^(?:tp|tep|dep|pp|ep|dcp)\d+\Z|^\d+p\d+d\Z|^\d+replicas?\Z|^dpa(?:true)?\Z")
_TRIVIAL = re.compile(r"^(?:pp|ep|dcp|pcp)1\Z|^dpafalse\Z")
_SPECULATIVE = ("mtp", "eagle3", "eagle")
# Words that tell two runs of one configuration apart, not two configurations.
_OF_THE_RUN = re.compile(
    r"^(?:re-?run\d*|retry\d*|conc\d+|users\d+|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}-\d{2}|benchmark|results?|agg|json|lifecycle|metrics"
    r"|stage|\d{1,3})$"
)
_COMMIT = re.compile(r"^[0-9a-f]{7}\.")


@dataclass(frozen=True)
class FileFacts:
    """Facts in a file's name; None where it does not say. ``product`` is a word that looks like a SKU.

    ``variant`` is the name without what tells runs of one configuration apart.
    """

    model: str | None = None
    engine: str | None = None
    sku: str | None = None
    product: str | None = None
    precision: str | None = None
    topology: str | None = None
    speculative: str | None = None
    concurrency: int | None = None
    isl: int | None = None
    osl: int | None = None
    is_mock: bool = False
    variant: str = ""


def file_facts(name: str, catalog: Catalog) -> FileFacts:
    """The facts in a name without folders."""
    stem = _COMMIT.sub("", re.sub(r"\.(?:json|jsonl|ndjson|csv)$", "", name))
    words = [word for word in re.split(r"[_\-+\s]+", stem.lower()) if word]
    products = [word for word in words if _PRODUCT.match(word)]
    lengths = next((match for word in words if (match := _LENGTHS.match(word))), None)
    isl, osl = (_after(stem.lower(), key) for key in ("isl", "osl"))
    if lengths is not None:
        isl, osl = int(lengths[1]) * 1024, int(lengths[2]) * 1024
    return FileFacts(
        model=_model(words, catalog),
        engine=_engine(words, catalog),
        sku=next((sku for word in products if (sku := catalog.resolve("sku", word))), None),
        product=products[0] if products else None,
        precision=next((word for word in words if word in FAMILIES or word in catalog.precisions), None),
        topology=_topology(stem.lower(), words),
        speculative=next((word for word in _SPECULATIVE if word in words), None),
        concurrency=_after(stem.lower(), "conc") or _after(stem.lower(), "concurrency_"),
        isl=isl,
        osl=osl,
        is_mock=is_mock(stem),
        variant=_variant(stem.lower()),
    )


def is_mock(text: object) -> bool:
    """Whether a name says that its numbers are made up."""
    return isinstance(text, str) and _says_mock(text)


@lru_cache(maxsize=1 << 12)
def _says_mock(text: str) -> bool:
    return "mock" in re.split(r"[^a-z0-9]+", text.lower())


def _after(stem: str, key: str) -> int | None:
    match = re.search(rf"(?:^|[_\-]){key}(\d+)(?:[_\-]|$)", stem)
    return int(match[1]) if match else None


def _grams(words: Sequence[str], longest: int) -> Iterator[Sequence[str]]:
    for start in range(len(words)):
        for count in range(min(longest, len(words) - start), 0, -1):
            yield words[start : start + count]


def squeezed(name: str) -> str:
    """A name without anything but letters and digits: kimik2.5, Kimi-K2.5 and kimi_k25 are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _model(words: Sequence[str], catalog: Catalog) -> str | None:
    known: dict[str, str] = {}
    for name, target in catalog.model_names().items():
        key = squeezed(name.rpartition("/")[2])
        if len(key) >= 4:  # a shorter one may be anything
            known.setdefault(key, target)
    return next((found for gram in _grams(words, 6) if (found := known.get(squeezed("".join(gram))))), None)


def _engine(words: Sequence[str], catalog: Catalog) -> str | None:
    return next(
        (found for gram in _grams(words, 3) if (found := catalog.resolve("engine", "-".join(gram)))), None
    )


def _topology(stem: str, words: Sequence[str]) -> str | None:
    roles = re.search(r"_ctx_(\d+)_gen_(\d+)", stem)
    if roles:
        return f"ctx{roles[1]}-gen{roles[2]}"
    found = [word for word in words if _TOPOLOGY.match(word) and not _TRIVIAL.match(word)]
    return "-".join(dict.fromkeys(found)) or None


def _variant(stem: str) -> str:
    stem = re.sub(r"_concurrency_\d+", "", stem)
    words = [
        word for part in stem.split("_") for word in ([part] if _OF_THE_RUN.match(part) else part.split("-"))
    ]
    return "_".join(word for word in words if not _OF_THE_RUN.match(word))
