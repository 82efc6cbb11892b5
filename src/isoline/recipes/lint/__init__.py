"""The lint of recipes: what can be said of a recipe without a machine. :data:`RULES`, one row each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isoline.catalog.documents import DocumentError
from isoline.errors import InputError
from isoline.recipes.lint import arguments, coverage, danger, names, references, shape
from isoline.recipes.lint.base import Context, Finding, Project, Rule, split_place
from isoline.recipes.load import read_recipe, stray_files

_SCHEMA = Rule("schema", "error", "the file is YAML, of the schema, and fits the catalog; its base too")

_STRAY = Rule("stray", "error", "no file under recipes/ looks like a recipe and is not seen as one")

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        _SCHEMA,
        _STRAY,
        *references.RULES,  # first: others use the scenarios that these could read
        *names.RULES,
        *shape.RULES,
        *arguments.RULES,
        *coverage.RULES,
        *danger.RULES,
    )
}
"""All rules by name, in the order in which they run."""


def schema_findings(error: InputError) -> list[Finding]:
    """Why a recipe cannot be read, as findings."""
    problems = error.problems if isinstance(error, DocumentError) else [(error.where, error.what)]
    found = []
    for where, what in problems:
        said, _, mend = what.partition("; ")
        mend = mend or "see docs/schema/recipe.json for the form of a recipe"
        found.append(Finding("schema", "error", *split_place(where), said, mend))
    return found


def stray_findings(project: Project) -> list[Finding]:
    """Files that somebody wrote as recipes and nobody reads."""
    what, mend = "nobody reads this file", "a recipe is recipes/<model>/<name>.yaml: rename or move it"
    return [Finding("stray", "error", path, None, what, mend) for path in stray_files(project.root)]


def check(project: Project, recipe_ids: Iterable[str], also: Iterable[str] = ()) -> list[Finding]:
    """All findings about recipes, by file and line.

    :param recipe_ids: those that are asked about, and are there.
    :param also: others that rules over several recipes compare them with; nothing else is said of them.
    """
    findings: list[Finding] = []
    contexts: dict[str, Context] = {}
    asked = list(dict.fromkeys(recipe_ids))
    for recipe_id in asked:
        try:
            contexts[recipe_id] = Context(project, read_recipe(project.root, recipe_id))
        except InputError as error:
            findings += schema_findings(error)
    for context in contexts.values():
        for rule in RULES.values():
            if rule.run is not None:
                findings += rule.run(context)
    others = _others(project, [item for item in also if item not in asked])
    # A lock makes the points of its recipe, on purpose.
    every = [*others, *(item for item in contexts.values() if item.recipe.locked is None)]
    for rule in RULES.values():
        if rule.run_all is not None:
            mine = {context.file for context in contexts.values()}
            findings += [item for item in rule.run_all(every) if item.file in mine]
    return ordered(findings)


def _others(project: Project, recipe_ids: Sequence[str]) -> list[Context]:
    """Contexts of recipes that are only compared with; one that cannot be read is told elsewhere."""
    found = []
    for recipe_id in recipe_ids:
        try:
            context = Context(project, read_recipe(project.root, recipe_id))
        except InputError:
            continue
        list(references.scenario(context))
        found.append(context)
    return found


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """By file and line, errors first on one line; each once, though a base is in several recipes."""
    rank = {"error": 0, "warning": 1, "note": 2}
    unique = dict.fromkeys(findings)
    return sorted(
        unique, key=lambda item: (item.file, item.line or 0, rank[item.severity], item.rule, item.what)
    )


__all__ = ["RULES", "Context", "Finding", "Project", "Rule", "check", "ordered", "stray_findings"]
