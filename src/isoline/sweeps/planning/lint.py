"""The project around recipes, for the lint: scenarios, datasets, channels, pools, each read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from isoline.catalog.documents import DocumentError, named_at
from isoline.catalog.facts import Catalog, catalog_of, load_catalog
from isoline.catalog.pools import load_pool
from isoline.datasets.schema import Dataset, load_dataset
from isoline.recipes.lint import Finding, check, ordered, stray_findings
from isoline.recipes.lint.base import ScenarioFacts
from isoline.recipes.load import recipe_id_of, recipe_ids
from isoline.sweeps.planning.kinds import check_kind, scenario_file
from isoline.sweeps.planning.schema import load_scenario

T = TypeVar("T")


class ProjectFiles:
    """:class:`isoline.recipes.lint.base.Project` over the files of one project."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._memo: dict[tuple[str, str], Any] = {}

    def _once(self, kind: str, name: str, read: Callable[[], T]) -> T:
        key = (kind, name)
        if key not in self._memo:
            try:
                self._memo[key] = read()
            except DocumentError as error:
                self._memo[key] = error
        found = self._memo[key]
        if isinstance(found, DocumentError):
            raise found
        result: T = found
        return result

    @property
    def root(self) -> Path:
        return self._root

    @cached_property
    def catalog(self) -> Catalog:
        return load_catalog(self._root)

    @cached_property
    def pools(self) -> Mapping[str, int]:
        largest: dict[str, int] = {}
        for path in sorted((self._root / "runners").glob("*.yaml")):
            try:
                pool = load_pool(self._root, path.stem)
            except DocumentError:
                continue  # `isoline pool check` is about pools
            largest[pool.sku] = max(largest.get(pool.sku, 0), pool.total_accelerators)
        return largest

    def scenario(self, name: str) -> ScenarioFacts:
        return self._once("scenario", name, lambda: self._scenario(name))

    def _scenario(self, name: str) -> ScenarioFacts:
        scenario = load_scenario(self._root, name)
        with named_at(self._root, scenario_file(name), "dataset"):
            dataset = self._once(
                "dataset", scenario.dataset, lambda: load_dataset(self._root, scenario.dataset)
            )
            check_kind(self._root, scenario, dataset)
        return ScenarioFacts(name, scenario.isl, scenario.osl, _has_template(dataset))

    def questions(self, name: str) -> int | None:
        dataset: Dataset = self._once("dataset", name, lambda: load_dataset(self._root, name))
        return dataset.max_tokens if dataset.kind == "questions" else None

    def channel(self, name: str) -> str:
        from isoline.recipes.channels import load_channels

        return self._once("channel", name, lambda: load_channels(self._root)[name])


def _has_template(dataset: Dataset) -> bool | None:
    """Whether prompts go through the chat template: sessions do, synthetic text says so by its generator."""
    if dataset.kind != "synthetic":
        return True
    return "chat-template" in (dataset.generator or "")


def lint_recipes(project: Path, names: Sequence[str] = ()) -> tuple[list[str], list[Finding]]:
    """(ids that were checked, findings) for recipes by id or path; for all where none is named.

    :raises InputError: for a name that is no recipe.
    """
    every = recipe_ids(project)
    ids = [recipe_id_of(project, name) for name in names] if names else every
    files = ProjectFiles(project)
    with catalog_of(project):
        found = check(files, ids, also=every)
    return ids, found if names else ordered([*stray_findings(files), *found])
