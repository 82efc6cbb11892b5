"""What the imports share: names of others -> keys of the catalog, drafts of recipes, and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from isoline.catalog.documents import DocumentError, problems_of
from isoline.catalog.facts import load_catalog
from isoline.catalog.fastyaml import UNSURE, fast_parse
from isoline.catalog.models import FAMILIES
from isoline.catalog.trees import parse_yaml, read_text, to_plain
from isoline.errors import InputError
from isoline.recipes.schema import Recipe
from isoline.recipes.yamltext import to_yaml

Kind = Literal[
    "imported",
    "left_out",
    "unknown_label",
    "unknown_name",
    "duplicate",
    "name_collision",
    "not_said",
    "differs",
]
"""What a line of the report says.

``left_out`` is not imported, for the reason given; ``unknown_label`` names machines that nobody
lists; ``unknown_name`` is a name that the catalog lacks; ``duplicate`` is exactly another row;
``name_collision`` is another measurement under a name that is taken; ``not_said`` is a fact that the
source has and a recipe has no place for; ``differs`` is a value that was written in another form.
"""

LOSSES: tuple[Kind, ...] = ("left_out", "unknown_label", "unknown_name", "duplicate")
"""The kinds that make an import incomplete (exit code 3)."""


@dataclass(frozen=True)
class Line:
    """One line of the report. ``points`` is how many measured points it is about."""

    kind: Kind
    source: str
    what: str
    recipe_id: str | None = None
    points: int | None = None
    remedy: str = ""

    def row(self) -> dict[str, Any]:
        """For printing."""
        return {
            "kind": self.kind,
            "source": self.source,
            "recipe_id": self.recipe_id,
            "points": self.points,
            "what": f"{self.what}; {self.remedy}" if self.remedy else self.what,
        }


@dataclass(frozen=True)
class Draft:
    """A recipe that an import made: its id, its content, and the comment at its top."""

    recipe_id: str
    tree: dict[str, Any]
    head: tuple[str, ...] = ()

    def text(self) -> str:
        """The file."""
        return to_yaml(self.tree, head=self.head)


@dataclass
class Imported:
    """What an import made and what it has to say."""

    drafts: list[Draft] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """How many lines there are of each kind, in the order of the kinds."""
        found = Counter(line.kind for line in self.lines)
        return {kind: found[kind] for kind in Kind.__args__ if found[kind]}  # type: ignore[attr-defined]

    @property
    def losses(self) -> int:
        """How many lines say that something was not imported or is not known."""
        return sum(1 for line in self.lines if line.kind in LOSSES)

    def add(self, draft: Draft, source: str, points: int) -> None:
        """Take a draft, if it is a good recipe; else say why not."""
        problem = problem_of(draft)
        if problem is None:
            self.drafts.append(draft)
            self.lines.append(Line("imported", source, "", draft.recipe_id, points))
        else:
            self.lines.append(Line("left_out", source, problem, draft.recipe_id, points))


def problem_of(draft: Draft) -> str | None:
    """What is wrong with a draft as a recipe; None when nothing is."""
    try:
        Recipe.model_validate(draft.tree)
    except ValidationError as error:
        problems = problems_of(error, None, draft.recipe_id, Recipe)
        return "; ".join(what for _, what in problems[:3])
    return None


def read_tree(path: Path) -> Any:
    """A foreign YAML file as plain values; duplicate keys are errors as in our own files.

    :raises DocumentError: when it cannot be read.
    """
    where = str(path)
    text = read_text(path, where)
    plain = fast_parse(text)
    if plain is UNSURE:
        plain = to_plain(parse_yaml(text, where), where)
    if not isinstance(plain, dict):
        raise DocumentError([(f"{where}:1", "`key: value` lines are expected")])
    return plain


@dataclass(frozen=True)
class Weights:
    """What a model name of others means here. ``checkpoint`` is a hub id, None for the model's own."""

    model: str
    precision: str
    checkpoint: str | None


class UnknownName(ValueError):  # noqa: N818 - a finding of the import, no failure
    """A name that the catalog lacks. Remedy: the alias that the message names."""

    def __init__(self, kind: str, name: str, what: str, remedy: str) -> None:
        self.kind, self.name, self.remedy = kind, name, remedy
        super().__init__(what)


def engine_of(name: str) -> str:
    """The engine of a framework's name.

    :raises UnknownName: when the catalog has none.
    """
    return _key("engine", "engines", name)


def sku_of(label: str) -> str:
    """The SKU of a machine, queue or GPU label.

    :raises UnknownName: when the catalog has none.
    """
    return _key("sku", "skus", label)


def _key(kind: Literal["engine", "sku"], section: str, name: str) -> str:
    key = load_catalog().resolve(kind, name)
    if key is None:
        raise UnknownName(
            kind,
            name,
            f"the catalog knows no {kind} {name!r}",
            f"add `{section}: {{{name.lower()}: KEY}}` to recipes/_catalog/aliases.yaml",
        )
    return key


def weights_of(name: str, vague: str | None) -> Weights:
    """The model, exact precision and checkpoint of a model's name.

    :param vague: what the source calls the precision (``fp4``); None when it does not say.
    :raises UnknownName: when the catalog lacks the model, or no checkpoint of it has that precision.
    """
    catalog = load_catalog()
    key = catalog.resolve("model", name)
    if key is None:
        raise UnknownName(
            "model",
            name,
            f"the catalog knows no model {name!r}",
            f"add `models: {{{name.lower()}: KEY}}` to recipes/_catalog/aliases.yaml",
        )
    model = catalog.models[key]
    named = catalog.resolve_checkpoint(name)
    if named is not None:
        checkpoint = model.checkpoints[named[1]]
        if vague in (None, checkpoint.precision) or checkpoint.precision in FAMILIES.get(vague or "", ()):
            other = checkpoint.hub_id if checkpoint.hub_id != model.hub_id else None
            return Weights(key, checkpoint.precision, other)
        exact = model.precision_of(vague or "")
        if exact is None:
            raise UnknownName(
                "precision",
                f"{name} at {vague}",
                f"{name} holds {checkpoint.precision}, and no checkpoint of {key} is {vague}",
                f"add one to `models: {{{key}: {{checkpoints: …}}}}` in recipes/_catalog/models.yaml",
            )
        return Weights(key, exact, checkpoint.hub_id)
    exact = model.precision_of(vague) if vague else None
    if exact is None:
        raise UnknownName(
            "precision",
            f"{name} at {vague}",
            f"which weights of {key} {vague!r} means is not known; there are {', '.join(model.precisions)}",
            f"alias {name!r} to `{key}:CHECKPOINT` in recipes/_catalog/aliases.yaml",
        )
    found = list(model.checkpoints_at(exact).values())
    return Weights(
        key, exact, found[0].hub_id if len(found) == 1 and found[0].hub_id != model.hub_id else None
    )


def image_ref(text: str) -> str:
    """An image reference in the common spelling: ``registry#path`` of enroot is ``registry/path``."""
    return text.removeprefix("docker://").replace("#", "/", 1)


def unique_id(wanted: str, taken: Iterable[str]) -> str:
    """``wanted``, or with the first number behind it that nobody has."""
    used = set(taken)
    if wanted not in used:
        return wanted
    number = 2
    while f"{wanted}-{number}" in used:
        number += 1
    return f"{wanted}-{number}"


def write(drafts: Sequence[Draft], out: Path, *, dry_run: bool = False) -> list[Path]:
    """Write drafts as ``<out>/<recipe_id>.yaml``; files that are there already with this content stay.

    :returns: the files that are new (with ``dry_run``: would be).
    :raises InputError: when another content is in the way of any of them; nothing is written then.
    """
    new: list[tuple[Path, str]] = []
    for draft in drafts:
        path, text = out / f"{draft.recipe_id}.yaml", draft.text()
        if path.exists():
            if path.read_text(encoding="utf-8") != text:
                raise InputError(
                    "another content is there", where=str(path), remedy="remove it, or choose another --out"
                )
            continue
        new.append((path, text))
    if not dry_run:
        for path, text in new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return [path for path, _ in new]
