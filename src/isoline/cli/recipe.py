"""``isoline recipe``: list, show, check and render recipes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isoline.cli import recipe_bump, recipe_import, recipe_new, recipe_render
from isoline.cli.output import FormatOption, emit
from isoline.errors import IncompleteError, InputError
from isoline.settings import find_project

app = typer.Typer(help="List, show, check, render, make and import recipes.")
app.add_typer(recipe_import.app, name="import")
app.command("new")(recipe_new.new)
app.command("bump")(recipe_bump.bump)
app.command("render")(recipe_render.render)

RecipeArgument = Annotated[str, typer.Argument(help="Recipe id (its path under recipes/) or path.")]


@app.command("list")
def list_(
    fits: Annotated[
        str | None, typer.Option(metavar="POOL", help="Only recipes that this pool can start, by topology.")
    ] = None,
    sku: Annotated[str | None, typer.Option(help="Only recipes for this SKU.")] = None,
    format: FormatOption = "table",
) -> None:
    """All recipes of the project; one that cannot be read is listed with what is wrong."""
    from isoline.catalog.documents import DocumentError, must_know
    from isoline.catalog.facts import catalog_of
    from isoline.catalog.pools import load_pool
    from isoline.recipes.fits import fitting
    from isoline.recipes.load import load_recipe, recipe_ids

    project = find_project()
    rows: list[dict[str, Any]] = []
    broken = 0
    with catalog_of(project) as catalog:
        pool = load_pool(project, fits) if fits is not None else None
        if sku is not None:
            try:
                must_know(sku, catalog.skus, "SKU")
            except ValueError as error:
                what, _, mend = str(error).partition("; ")
                raise InputError(what, where="--sku", remedy=mend) from None
        for recipe_id in recipe_ids(project):
            row: dict[str, Any] = {"recipe_id": recipe_id}
            try:
                recipe = load_recipe(project, recipe_id).recipe
            except DocumentError as error:
                broken += 1
                row["problem"] = error.line()
            else:
                labels = [topology.label() for topology in recipe.topologies]
                if pool is not None:
                    labels = fitting(recipe, pool, catalog.engines[recipe.engine])
                if not labels or sku not in (None, recipe.sku):
                    continue
                row |= {
                    "model": recipe.model,
                    "engine": recipe.engine,
                    "sku": recipe.sku,
                    "weights": recipe.precision.weights,
                    "kv": recipe.precision.kv,
                    "topologies": " ".join(labels),
                    "scenarios": " ".join(recipe.scenarios),
                    "status": recipe.status,
                }
            rows.append(row)
    columns = ["recipe_id", "model", "engine", "sku", "weights", "kv", "topologies", "scenarios", "status"]
    emit(rows, format, columns=[*columns, "problem"] if broken else columns)
    if not rows:
        wanted = sku or (pool.sku if pool else None)
        more = f"; what is missing: isoline engine list --sku {wanted}" if wanted else ""
        typer.echo(f"no recipe{f' for {wanted}' if wanted else ''}{more}", err=True)
    if broken:
        raise IncompleteError(f"{broken} recipe(s) cannot be read", remedy="see the column problem")


@app.command()
def show(
    recipe: RecipeArgument,
    other: Annotated[
        str | None, typer.Option("--diff", help="Print only what differs from this recipe.")
    ] = None,
    format: FormatOption = "table",
) -> None:
    """A recipe as it is resolved: base and defaults filled in, and where each value comes from."""
    from isoline.catalog.facts import catalog_of
    from isoline.recipes.load import load_recipe
    from isoline.recipes.shown import as_yaml, differences, path_of, shown, values_of

    project = find_project()
    with catalog_of(project):
        loaded = load_recipe(project, recipe)
        if other is not None:
            rows = differences(loaded, load_recipe(project, other))
            emit(rows, format, columns=["path", "a", "b", "kind"])
            return
        found = shown(project, loaded)
    if format == "table":
        typer.echo(f"# {loaded.recipe_id}\n# recipe_digest: {loaded.recipe_digest}")
        typer.echo(as_yaml(found), nl=False)
        return
    rows = [
        {"path": path_of(loc), "value": value, "origin": found.origins[loc]}
        for loc, value in values_of(found.content)
    ]
    emit(rows, format, columns=["path", "value", "origin"])


@app.command()
def check(
    recipes: Annotated[
        list[str] | None, typer.Argument(help="Recipe ids or paths; none: all recipes.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Check every recipe, as without any name.")] = False,
    notes: Annotated[
        bool,
        typer.Option(
            "--notes", help="Print figures too, such as memory estimates; for one recipe they always are."
        ),
    ] = False,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules and stop.")] = False,
    format: FormatOption = "table",
) -> None:
    """Everything that can be said about recipes without a machine. Exit code 1 when one is wrong."""
    from isoline.recipes.lint import RULES
    from isoline.recipes.load import file_of
    from isoline.sweeps.planning.lint import lint_recipes

    if rules:
        emit([{"rule": r.name, "severity": r.severity, "checks": r.checks} for r in RULES.values()], format)
        return
    if recipes and all_:
        raise InputError("name recipes, or say --all, not both", where="recipe check")
    ids, found = lint_recipes(find_project(), recipes or [])
    said = [item for item in found if notes or item.severity != "note" or len(ids) == 1]
    if format == "table":
        for item in said:
            typer.echo(item.text(), err=True)
    else:
        columns = ["file", "line", "severity", "rule", "what", "mend"]
        emit([{name: getattr(item, name) for name in columns} for item in said], format, columns=columns)
    wrong = {item.file for item in found if item.severity == "error"}
    fine = sum(file_of(name) not in wrong for name in ids)
    warned = sum(item.severity == "warning" for item in found)
    more = f", {warned} warning(s)" if warned else ""
    typer.echo(f"{fine} of {len(ids)} recipe(s) are fine{more}", err=format != "table")
    if wrong:
        raise typer.Exit(1)
