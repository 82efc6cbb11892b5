"""``isoline engine``: what is known of engines, and how more is learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isoline.cli.output import FormatOption, emit
from isoline.settings import find_project

app = typer.Typer(help="Known engines and their arguments.")


@app.command("list")
def list_(format: FormatOption = "table") -> None:
    """Engines of the catalog, and how many of their arguments are known."""
    from isoline.catalog.facts import load_catalog

    catalog = load_catalog(find_project())
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
