"""``isoline recipe bump``: change a channel's version in ``recipes/channels.yaml``."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from typing import Annotated

import typer

from isoline.errors import InputError
from isoline.settings import find_project


def bump(
    channel: Annotated[str, typer.Argument(help="Name of a channel.")],
    to: Annotated[str, typer.Option("--to", help="The new version, or a reference that has it.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the change only.")] = False,
) -> None:
    """Write another version into a channel; print the change and how many recipes it touches."""
    from isoline.catalog.documents import nearest
    from isoline.catalog.facts import catalog_of
    from isoline.recipes.channels import FILE, read_channels, recipes_of
    from isoline.recipes.channels_edit import bumped

    project = find_project()
    channels = read_channels(project)
    if channel not in channels:
        raise InputError(f"unknown channel {channel!r}", where=FILE, remedy=nearest(channel, channels))
    path = project / FILE
    before = path.read_text(encoding="utf-8")
    after = bumped(before, channel, channels[channel], to, today=f"{datetime.now(UTC):%Y-%m-%d}")
    for line in difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"a/{FILE}", f"b/{FILE}", lineterm="", n=1
    ):
        typer.echo(line)
    with catalog_of(project):
        touched = recipes_of(project, channel)
    if before == after:
        typer.echo(f"nothing changes; {len(touched)} recipe(s) use {channel}")
        return
    if not dry_run:
        path.write_text(after, encoding="utf-8")
    verb = "would touch" if dry_run else "touches"
    typer.echo(f"{verb} {len(touched)} recipe(s){': ' + ', '.join(touched) if touched else ''}")
