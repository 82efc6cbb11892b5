"""``isoline engine``: what is known of engines, and how more is learned."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isoline.cli.output import Format, FormatOption, emit
from isoline.settings import find_project

if TYPE_CHECKING:
    from isoline.catalog.facts import Catalog

app = typer.Typer(help="Known engines and their arguments.")


@app.command("list")
def list_(
    sku: Annotated[
        str | None, typer.Option(help="The readiness card of this SKU: what each engine has, or lacks.")
    ] = None,
    format: FormatOption = "table",
) -> None:
    """Engines of the catalog, and how many of their arguments are known; or how ready they are for a SKU."""
    from isoline.catalog.facts import load_catalog

    catalog = load_catalog(find_project())
    if sku is not None:
        _card(catalog, sku, format)
        return
    rows = []
    for key, engine in sorted(catalog.engines.items()):
        known = catalog.known_flags(key)
        rows.append(
            {
                "engine": key,
                "name": engine.name,
                "backend": engine.backend,
                "arguments": len(known.flags) if known else None,
                "versions": " to ".join(dict.fromkeys(known.versions)) if known else None,
                "complete": known.complete if known else None,
            }
        )
    emit(rows, format)


def _card(catalog: Catalog, sku: str, format: Format) -> None:
    """What each engine has for a SKU: recipes of this project, a public image, or what is missing."""
    from isoline.catalog.documents import nearest
    from isoline.catalog.facts import catalog_of
    from isoline.errors import InputError
    from isoline.recipes.load import load_recipe, recipe_ids

    found = catalog.skus.get(sku)
    if found is None:
        raise InputError(f"unknown SKU {sku!r}", where="--sku", remedy=nearest(sku, catalog.skus))
    project = find_project()
    counts: Counter[str] = Counter()
    with catalog_of(project):
        for name in recipe_ids(project):
            recipe = load_recipe(project, name).recipe
            counts[recipe.engine] += recipe.sku == sku
    rows = []
    for key in sorted({name for name, count in counts.items() if count} | found.readiness.keys()):
        said = found.readiness.get(key)
        rows.append(
            {
                "engine": key,
                "recipes": counts[key],
                "image": said.image if said else None,
                "missing": said.missing if said else None,
                "source": said.source if said else None,
                "dated": said.dated if said else None,
            }
        )
    if format == "table":
        typer.echo(f"{found.name}, {found.status}{f'; {found.note}' if found.note else ''}", err=True)
    emit(rows, format, columns=["engine", "recipes", "image", "missing", "source", "dated"])


@app.command()
def learn(
    engine: Annotated[str, typer.Argument(help="Engine, as the catalog names it.")],
    version: Annotated[str, typer.Option(help="Its version, as it prints it.")],
    help_file: Annotated[Path, typer.Option(help="What its server printed for --help.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written.")] = False,
) -> None:
    """Write the arguments of an engine's version, from a captured --help, for `recipe check`."""
    from datetime import UTC, datetime

    from isoline.catalog.documents import nearest
    from isoline.catalog.facts import OWN, load_catalog
    from isoline.catalog.learn import as_text, learned, write_flags
    from isoline.catalog.trees import read_text
    from isoline.errors import InputError

    project = find_project()
    catalog = load_catalog(project)
    if engine not in catalog.engines:
        raise InputError(
            f"unknown engine {engine!r}", where="engine learn", remedy=nearest(engine, catalog.engines)
        )
    before = catalog.known_flags(engine)
    found = learned(
        engine,
        catalog.engines[engine],
        version,
        read_text(help_file, str(help_file)),
        before=before,
        today=datetime.now(UTC).date(),
    )
    target = project / OWN / "args" / f"{engine}.yaml"
    new = [name for name in found.flags if before is None or name not in before.flags]
    gone = [name for name, flag in found.flags.items() if flag.seen and flag.seen[1] != found.versions[1]]
    if dry_run:
        typer.echo(as_text(found), nl=False)
    else:
        write_flags(target, found)
    verb = "would write" if dry_run else "wrote"
    typer.echo(
        f"{verb} {target.relative_to(project)}: {len(found.flags)} arguments, {len(new)} new, "
        f"{len(gone)} not in this version",
        err=dry_run,
    )
