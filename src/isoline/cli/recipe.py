"""``isoline recipe``: list, show, check and render recipes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from isoline.cli.output import Format, FormatOption, emit
from isoline.errors import IncompleteError, InputError
from isoline.settings import find_project

app = typer.Typer(help="List, show, check and render recipes.")

RecipeArgument = Annotated[str, typer.Argument(help="Recipe id (its path under recipes/) or path.")]


@app.command("list")
def list_(format: FormatOption = "table") -> None:
    """All recipes of the project; one that cannot be read is listed with what is wrong."""
    from isoline.catalog.documents import DocumentError
    from isoline.recipes.load import load_recipe, recipe_ids

    project = find_project()
    rows: list[dict[str, Any]] = []
    broken = 0
    for recipe_id in recipe_ids(project):
        row: dict[str, Any] = {"recipe_id": recipe_id}
        try:
            recipe = load_recipe(project, recipe_id).recipe
        except DocumentError as error:
            broken += 1
            row["problem"] = error.line()
        else:
            row |= {
                "model": recipe.model,
                "engine": recipe.engine,
                "sku": recipe.sku,
                "weights": recipe.precision.weights,
                "kv": recipe.precision.kv,
                "topologies": " ".join(topology.label() for topology in recipe.topologies),
                "scenarios": " ".join(recipe.scenarios),
                "status": recipe.status,
            }
        rows.append(row)
    columns = ["recipe_id", "model", "engine", "sku", "weights", "kv", "topologies", "scenarios", "status"]
    emit(rows, format, columns=[*columns, "problem"] if broken else columns)
    if broken:
        raise IncompleteError(f"{broken} recipe(s) cannot be read", remedy="see the column problem")


@app.command()
def show(recipe: RecipeArgument) -> None:
    """A recipe with every default filled in, as YAML, and its digest."""
    from ruamel.yaml import YAML

    from isoline.recipes.load import load_recipe

    loaded = load_recipe(find_project(), recipe)
    typer.echo(f"# {loaded.recipe_id}\n# recipe_digest: {loaded.recipe_digest}")
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(loaded.content, sys.stdout)


@app.command()
def check(
    recipes: Annotated[list[str] | None, typer.Argument(help="Recipe ids or paths.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Check every recipe.")] = False,
) -> None:
    """Everything that can be said about recipes without a machine. Exit code 1 when one is wrong."""
    from isoline.recipes.load import recipe_ids, stray_files
    from isoline.sweeps.sources import check_recipe

    project = find_project()
    if bool(recipes) == all_:
        raise InputError("name recipes or say --all, one of both", where="recipe check")
    broken: list[str] = []
    ids = recipe_ids(project) if all_ else recipes or []
    for recipe_id in ids:
        problems = check_recipe(project, recipe_id)
        broken += [recipe_id] if problems else []
        for where, what in problems:
            typer.echo(f"{where}: {what}", err=True)
    stray = stray_files(project) if all_ else []
    for path in stray:
        typer.echo(f"{path}: nobody reads this; a recipe is recipes/<model>/<name>.yaml", err=True)
    typer.echo(f"{len(ids) - len(broken)} of {len(ids)} recipe(s) are fine")
    if broken or stray:
        raise typer.Exit(1)


@app.command()
def render(
    recipe: RecipeArgument,
    pool: Annotated[str, typer.Option(help="The pool that it would be started on.")] = "local",
    topology: Annotated[str | None, typer.Option(help="One topology, by its label; default: all.")] = None,
    format: FormatOption = "table",
) -> None:
    """Print exactly what would be executed; {placeholders} are filled in when it is."""
    from isoline.catalog.documents import nearest
    from isoline.catalog.pools import load_pool
    from isoline.recipes.load import load_recipe
    from isoline.recipes.render import render as render_launch
    from isoline.results.bundle import file_sha256
    from isoline.runners.engines import engine_adapter

    project = find_project()
    loaded = load_recipe(project, recipe)
    where = load_pool(project, pool)
    script = file_sha256(engine_adapter(loaded.recipe.engine).script())
    labels = {item.label(): item for item in loaded.recipe.topologies}
    if topology is not None and topology not in labels:
        raise InputError(
            f"no topology {topology!r}", where=loaded.recipe_id, remedy=nearest(topology, labels)
        )
    rows = []
    for label, item in labels.items():
        if topology in (None, label):
            rendered = render_launch(loaded, item, where, script)
            rows.append(
                {
                    "recipe_id": loaded.recipe_id,
                    "topology": label,
                    "gpus": item.gpus,
                    "launch_digest": rendered.launch_digest,
                    "env": rendered.env,
                    "argv": rendered.argv,
                }
            )
    _print_rendered(rows, format)


def shell_line(env: Mapping[str, str], argv: Sequence[str]) -> str:
    """A command as a shell reads it; a {placeholder} is no shell syntax and stands as it is."""
    words = [f"{name}={shlex.quote(value)}" for name, value in env.items()]
    words += [word if word.startswith("{") else shlex.quote(word) for word in argv]
    return " ".join(words)


def _print_rendered(rows: list[dict[str, Any]], format: Format) -> None:
    if format != "table":
        emit(rows, format)
        return
    for row in rows:
        typer.echo(
            f"# {row['recipe_id']} {row['topology']} gpus={row['gpus']} launch {row['launch_digest'][:10]}"
        )
        for name, value in row["env"].items():
            typer.echo(f"export {name}={shlex.quote(value)}")
        typer.echo(shell_line({}, row["argv"]))
