"""What rules are made of: findings, one recipe with its surroundings, and the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from isoline.catalog.engines import Engine
from isoline.catalog.facts import Catalog
from isoline.catalog.lines import Lines, quick_lines
from isoline.catalog.models import Model
from isoline.catalog.skus import Sku
from isoline.catalog.trees import Loc, line_of, parse_yaml, read_text
from isoline.recipes.extends import EXTENDS, merged_tree, place, read_base
from isoline.recipes.load import LoadedRecipe, file_of
from isoline.recipes.schema import Recipe
from isoline.recipes.server import Condition, Parts, When
from isoline.recipes.topology import Role, RoleName, Topology

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One mistake, or (``note``) one figure that a person may want: where, what, how to mend it.

    ``line`` counts from 1; null where a file as a whole is wrong.
    """

    rule: str
    severity: Severity
    file: str
    line: int | None
    what: str
    mend: str

    @property
    def where(self) -> str:
        """``file:line``, or the file."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def text(self) -> str:
        """The whole of it on one line; an error needs no word that says so."""
        kind = "" if self.severity == "error" else f"{self.severity}: "
        return " ".join(f"{self.where}: {kind}{self.what}; {self.mend} [{self.rule}]".split())


def split_place(where: str) -> tuple[str, int | None]:
    """(file, line) of ``file:line`` or ``file``."""
    file, _, line = where.rpartition(":")
    return (file, int(line)) if file and line.isdigit() else (where, None)


@dataclass(frozen=True)
class ScenarioFacts:
    """What rules need of a scenario. Lengths are tokens, null for a trace.

    ``uses_chat_template``: None where its dataset does not say.
    """

    name: str
    isl: int | None = None
    osl: int | None = None
    uses_chat_template: bool | None = None


class Project(Protocol):
    """The surroundings of recipes. Each method but the properties raises ``DocumentError``."""

    @property
    def root(self) -> Path:
        """The project's folder."""

    @property
    def catalog(self) -> Catalog:
        """Facts, the project's own entries over those that ship."""

    @property
    def pools(self) -> Mapping[str, int]:
        """SKU -> the most accelerators that one launch may use in any pool of it."""

    def scenario(self, name: str) -> ScenarioFacts:
        """A scenario with its dataset, both checked."""

    def questions(self, name: str) -> int | None:
        """The longest answer, tokens, of a dataset of questions; None for a dataset of another kind."""

    def channel(self, name: str) -> str:
        """The image reference or pattern of a channel."""


@dataclass(frozen=True)
class Case:
    """One role of one topology in one scenario at one concurrency: what a launch is rendered for."""

    topology: Topology
    role_name: RoleName
    role: Role
    scenario: ScenarioFacts
    concurrency: int  # of the load
    sized_for: int  # the top of its launch band

    @property
    def label(self) -> str:
        """``tp8, decode, 8k1k at 64`` for messages."""
        role = "" if self.role_name == "aggregated" else f", {self.role_name}"
        return f"{self.topology.label()}{role}, {self.scenario.name} at concurrency {self.concurrency}"

    def meets(self, condition: Condition) -> bool:
        """Whether a condition of a recipe holds for it."""
        return condition.holds(
            concurrency=self.sized_for, scenario=self.scenario.name, topology=self.topology.label()
        )


@dataclass
class Context:
    """One recipe that was read, and what is around it."""

    project: Project
    loaded: LoadedRecipe
    scenarios: dict[str, ScenarioFacts] = field(default_factory=dict)  # those that could be read
    memo: dict[str, Any] = field(default_factory=dict)  # what rules share, by name

    @property
    def recipe(self) -> Recipe:
        return self.loaded.recipe

    @property
    def engine(self) -> Engine:
        return self.project.catalog.engines[self.recipe.engine]

    @property
    def model(self) -> Model:
        return self.project.catalog.models[self.recipe.model]

    @property
    def sku(self) -> Sku:
        return self.project.catalog.skus[self.recipe.sku]

    @property
    def file(self) -> str:
        """The recipe's file, relative to the project."""
        return self.loaded.file

    @property
    def folder(self) -> Path:
        """The recipe's folder; of a lock that of the recipe that was locked."""
        return (self.project.root / file_of(self.loaded.recipe_id)).parent

    @cached_property
    def _lines(self) -> tuple[Any, str]:
        """(the tree that knows lines, base or ""): read only when there is something to say."""
        text = read_text(self.project.root / self.file, self.file)
        if not EXTENDS.search(text):
            return quick_lines(text, self.file), ""
        tree = parse_yaml(text, self.file)
        base, below = read_base(self.project.root, self.loaded.recipe_id, tree)
        return merged_tree(below, tree), base

    def place(self, loc: Loc) -> tuple[str, int]:
        """(file, line) of a value, in the base's file where it is from there."""
        tree, base = self._lines
        if isinstance(tree, Lines):
            return self.file, tree.line_of(loc)
        file, _, line = place(line_of(tree, loc), self.loaded.recipe_id, base).rpartition(":")
        return file, int(line)

    def finding(self, rule: str, severity: Severity, loc: Loc, what: str, mend: str) -> Finding:
        """A finding at a place of this recipe."""
        file, line = self.place(loc)
        return Finding(rule, severity, file, line, what, mend)

    def levels(self) -> Iterator[tuple[Topology, ScenarioFacts, list[int]]]:
        """Each topology with each scenario that could be read, and its concurrencies there, if any."""
        for topology in self.recipe.topologies:
            for name, use in self.recipe.scenarios.items():
                if name in self.scenarios and (levels := use.at(topology.label())):
                    yield topology, self.scenarios[name], levels

    @cached_property
    def cases(self) -> list[Case]:
        """Everything that this recipe may be rendered for."""
        from isoline.recipes.resolve import band_top

        return [
            Case(
                topology,
                name,
                role,
                scenario,
                level,
                band_top(level, self.recipe.launch_bands, max(levels)),
            )
            for topology, scenario, levels in self.levels()
            for level in levels
            for name, role in topology.roles.items()
        ]

    def layers(
        self, role: RoleName | None = None
    ) -> Iterator[tuple[tuple[str | int, ...], Parts, When | None]]:
        """(place, part, condition) of all parts, or of those that a role gets, in the order of merging."""
        roles = {name: part for name, part in self.recipe.roles.items() if role in (None, name)}
        yield ("server",), self.recipe.server, None
        for name, part in roles.items():
            yield ("roles", name), part, None
        for index, item in enumerate(self.recipe.server.when):
            yield ("server", "when", index), item, item
        for name, part in roles.items():
            for index, item in enumerate(part.when):
                yield ("roles", name, "when", index), item, item


Check = Callable[[Context], Iterable[Finding]]
ProjectCheck = Callable[[list[Context]], Iterable[Finding]]


@dataclass(frozen=True)
class Rule:
    """One rule. ``severity`` is its usual one; ``run`` looks at one recipe, ``run_all`` at all together."""

    name: str
    severity: Severity
    checks: str
    run: Check | None = None
    run_all: ProjectCheck | None = None


class Said:
    """What a rule says: the same thing once, however many launches it is true of."""

    def __init__(self, context: Context, rule: str, severity: Severity) -> None:
        self._context, self._rule, self._severity = context, rule, severity
        self._found: dict[tuple[object, ...], Finding] = {}

    def add(
        self, loc: Loc, what: str, mend: str, *, key: object = None, severity: Severity | None = None
    ) -> None:
        """Say it, unless it was said of the same place (or ``key``)."""
        mark = (tuple(loc), key)
        if mark not in self._found:
            self._found[mark] = self._context.finding(self._rule, severity or self._severity, loc, what, mend)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found.values())
