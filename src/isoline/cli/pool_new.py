"""``isoline pool new``: look at the machine and write its pool file."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from isoline.errors import InputError
from isoline.settings import find_project


def new(
    name: Annotated[
        str | None, typer.Option(help="Name of the pool and its file; default: SKU and what starts servers.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A machine by its ssh name instead of this one; may be repeated."),
    ] = None,
    sku: Annotated[str | None, typer.Option(help="The SKU, where the tool's name says none.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file; write nothing.")] = False,
) -> None:
    """Detect devices, driver, container runtime, memory, disks and rails, and write runners/NAME.yaml."""
    from isoline.catalog.documents import must_know
    from isoline.catalog.facts import catalog_of, load_catalog
    from isoline.catalog.pools import NODE
    from isoline.results.bundles.bundle import write_file
    from isoline.runners.machine.detect import look
    from isoline.runners.machine.hosts import Host, this_host
    from isoline.runners.machine.pool_file import Wish, checked, pool_text

    project = find_project()
    hosts = tuple(host or ())
    for item in hosts:
        if not re.match(NODE, item):
            raise InputError(f"{item!r} is no name of a machine", where="--host")
    with catalog_of(project):
        if sku is not None:
            try:
                must_know(sku, load_catalog().skus, "SKU")
            except ValueError as error:
                raise InputError(str(error), where="--sku") from None
        facts = look(Host(hosts[0], hosts[0]) if hosts else this_host())
        found, text = pool_text(facts, Wish(name, sku, hosts))
        path = project / "runners" / f"{found}.yaml"
        pool = checked(text, f"runners/{found}.yaml")
    if dry_run:
        typer.echo(text, nl=False)
        return
    if path.exists():
        raise InputError(
            "there is a pool of this name", where=f"runners/{found}.yaml", remedy="name another with --name"
        )
    try:
        write_file(path, text.encode())
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    typer.echo(f"written: runners/{found}.yaml ({pool.description}, launcher {pool.launcher})")
    typer.echo(f"next: isoline pool check {found}; isoline recipe list --fits {found}")
