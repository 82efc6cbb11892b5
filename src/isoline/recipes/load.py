"""Finding and reading recipes: ``recipes/<model>/<engine>-<sku>-<precision>[-<variant>].yaml``."""

from __future__ import annotations

import fnmatch
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoline.catalog.documents import DocumentError, UnknownNameError, nearest, validate_text
from isoline.catalog.trees import parse_yaml, read_text
from isoline.errors import InputError
from isoline.recipes.extends import base_id, may_extend, validate_extended
from isoline.results.identity import digest

if TYPE_CHECKING:  # loaded to read a recipe, not to find one
    from isoline.recipes.schema import Recipe

LOCKED = re.compile(r"^locked:", re.MULTILINE)
_LOOSE_ID = re.compile(r"^[\w-][\w.-]*/[\w-][\w.-]*\Z")
_ID = re.compile(r"^[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*\Z")


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe with its id. ``content`` is resolved: base and defaults filled in; it loads as a recipe.

    ``lock_file``: the lock that it was read from, relative to the project; None for a recipe's own file.
    """

    recipe_id: str
    recipe: Recipe
    lock_file: str | None = None

    @property
    def file(self) -> str:
        """The file that it was read from, relative to the project."""
        return self.lock_file or file_of(self.recipe_id)

    @cached_property
    def content(self) -> dict[str, object]:
        return self.recipe.content()

    @cached_property
    def sorted_content(self) -> dict[str, object]:
        """The content, mappings in the order of their names: the same bytes however the file is ordered."""
        ordered: dict[str, object] = _sorted(self.content)
        return ordered

    @cached_property
    def recipe_digest(self) -> str:
        """For review and approval; never to decide whether a point was measured."""
        return digest(self.content)


def file_of(name: str) -> str:
    """The file of a recipe id, or of the path of a lock, relative to the project."""
    return name if name.endswith(".yaml") else f"recipes/{name}.yaml"


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def recipe_ids(project: Path) -> list[str]:
    """All recipe ids of the project, sorted. Folders that begin with ``_`` hold no recipes."""
    folder = project / "recipes"
    found: list[str] = []
    with suppress(FileNotFoundError, NotADirectoryError):  # no folder, no recipes
        for model in os.scandir(folder):
            if model.is_dir() and not model.name.startswith("_"):
                names = (file.name for file in os.scandir(model) if file.name.endswith(".yaml"))
                found += [f"{model.name}/{name.removesuffix('.yaml')}" for name in names]
    return sorted(found)


def stray_files(project: Path) -> list[str]:
    """Files under recipes/ that look like recipes and are not seen as such: too deep, or ``.yml``."""
    folder = project / "recipes"
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        is_known = parts == ("channels.yaml",) or (len(parts) == 2 and path.suffix == ".yaml")
        if path.suffix in (".yaml", ".yml") and not is_known and not parts[0].startswith("_"):
            found.append("/".join(("recipes", *parts)))
    return found


def recipe_id_of(project: Path, recipe_id: str) -> str:
    """The id of a recipe that is named by its id or its path, and is there; of a lock its path.

    :raises InputError: for a path outside recipes/ that is no lock.
    :raises DocumentError: when there is none of that id.
    """
    path = Path(recipe_id)
    if path.suffix == ".yaml":
        if (lock := lock_at(project, path)) is not None:
            return lock
        recipes = (project / "recipes").resolve()
        if not path.resolve().is_relative_to(recipes):
            raise InputError("a recipe lies under recipes/", where=recipe_id)
        recipe_id = path.resolve().relative_to(recipes).with_suffix("").as_posix()
    where = f"recipes/{recipe_id}.yaml"
    if _LOOSE_ID.match(recipe_id) and not _ID.match(recipe_id) and (project / where).is_file():
        raise DocumentError([(where, "a recipe is recipes/<model>/<name>.yaml in lower-case letters")])
    if not _ID.match(recipe_id) or not (project / where).exists():
        known = recipe_ids(project)
        words = f"no such recipe; {nearest(recipe_id, known)}"
        raise UnknownNameError([(where, words)], "recipe", recipe_id)
    return recipe_id


def lock_at(project: Path, path: Path) -> str | None:
    """The path of a lock, relative to the project where it lies in it; None where there is no lock.

    A file in a recipe's place is a recipe, whatever it holds.
    """
    whole, root = path.resolve(), project.resolve()
    inside = whole.relative_to(root) if whole.is_relative_to(root) else None
    is_recipe = inside is not None and len(inside.parts) == 3 and inside.parts[0] == "recipes"
    if is_recipe and inside is not None and not inside.parts[1].startswith("_"):
        return None
    if not whole.is_file() or not LOCKED.search(read_text(whole, str(path))):
        return None
    return inside.as_posix() if inside is not None else str(whole)


def read_lock(project: Path, file: str) -> LoadedRecipe:
    """The recipe of a lock, under the id of the recipe that was locked.

    :raises DocumentError: when it is wrong, was edited, or is no lock.
    """
    from isoline.recipes.schema import Recipe

    recipe = validate_text(read_text(project / file, file), Recipe, file)
    if recipe.locked is None:
        raise DocumentError([(file, "this is no lock: a recipe lies under recipes/<model>/")])
    return LoadedRecipe(recipe.locked.recipe_id, recipe, file)


def read_recipe(project: Path, recipe_id: str) -> LoadedRecipe:
    """The recipe of an id that is there, on its base if it extends one, or of the path of a lock.

    Its name is not looked at.

    :raises DocumentError: when it, or its base, is wrong.
    """
    if recipe_id.endswith(".yaml"):
        return read_lock(project, recipe_id)
    where = file_of(recipe_id)
    return parse_recipe(project, recipe_id, read_text(project / where, where))


def parse_recipe(project: Path, recipe_id: str, text: str) -> LoadedRecipe:
    """The recipe that a text is, on its base if it extends one. Its name is not looked at.

    :raises DocumentError: when it, or its base, is wrong.
    """
    from isoline.recipes.schema import Recipe

    where = file_of(recipe_id)
    if may_extend(text):
        tree = parse_yaml(text, where)
        if base_id(tree) is not None:
            return LoadedRecipe(recipe_id, validate_extended(project, recipe_id, tree, Recipe))
    return LoadedRecipe(recipe_id, validate_text(text, Recipe, where))


def name_problem(loaded: LoadedRecipe) -> str | None:
    """What is wrong with the file's name, given its content; None when they agree."""
    recipe = loaded.recipe
    return misnamed(loaded.recipe_id, recipe.engine, recipe.sku, recipe.precision.weights)


def misnamed(recipe_id: str, engine: str, sku: str, weights: str) -> str | None:
    """What is wrong with a recipe's name, given three of its fields; None when they agree."""
    expected = f"{engine}-{sku}-{weights}"
    name = recipe_id.split("/")[1]
    if name == expected or name.startswith(expected + "-"):
        return None
    return f"the file's name should begin with {expected!r}, as its content says"


def load_recipe(project: Path, recipe_id: str) -> LoadedRecipe:
    """One recipe by id, or by its path, or by the path of a lock.

    :raises InputError: for a path outside recipes/ that is no lock.
    :raises DocumentError: when there is none of that id, or it is wrong.
    """
    return load_matched(project, recipe_id_of(project, recipe_id))


def load_matched(project: Path, name: str) -> LoadedRecipe:
    """One recipe by what :func:`match_recipes` gave.

    :raises DocumentError: when it is wrong.
    """
    loaded = read_recipe(project, name)
    if (problem := name_problem(loaded)) is not None:
        raise DocumentError([(loaded.file, problem)])
    return loaded


def match_recipes(project: Path, patterns: list[str]) -> list[str]:
    """The ids that any pattern matches, sorted; ``*`` and ``?`` as in the shell.

    A pattern that is the path of a lock, relative to the project, gives that path.

    :raises UnknownNameError: for a pattern that matches none.
    """
    known = recipe_ids(project)
    found: set[str] = set()
    for pattern in patterns:
        if pattern.endswith(".yaml") and (lock := lock_at(project, project / pattern)) is not None:
            found.add(lock)
            continue
        hits = fnmatch.filter(known, pattern)
        if not hits:
            words = f"no recipe matches; {nearest(pattern, known)}"
            raise UnknownNameError([("recipes/", words)], "recipe", pattern)
        found.update(hits)
    return sorted(found)
