"""``isoline pool stage|pin|unpin``: bring what launches need before any device is allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoline.cli.options import PoolArgument
from isoline.cli.output import FormatOption, emit
from isoline.errors import InputError
from isoline.settings import Settings, load_settings

if TYPE_CHECKING:
    from isoline.catalog.pools import Pool
    from isoline.runners.staging.items import Item
    from isoline.runners.staging.place import Staged

ItemArgument = Annotated[str, typer.Argument(help="An item, by its name in `pool stage … --dry-run`.")]
COLUMNS = ["node", "item", "kind", "id", "revision", "state", "gb", "detail"]


def stage(
    pool: PoolArgument,
    sweep: Annotated[str, typer.Option("--sweep", help="The sweep whose launches are staged for.")],
    image: Annotated[
        list[str] | None, typer.Option("--image", help="CHANNEL=REF, as in `sweep run`; may be repeated.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="One recipe, as in `sweep run`.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is missing; bring nothing.")] = False,
    format: FormatOption = "table",
) -> None:
    """Bring images, weights, drafts, datasets and tokenizers of a sweep to the pool's machines.

    What is there whole is not fetched again; a download that was cut goes on. Exit code 4 when something
    could not be brought (3 for what no retry mends); with --dry-run 3 when something is missing.
    """
    from isoline.results.judging.reasons import REASONS, Verdict
    from isoline.runners.staging.place import inventory
    from isoline.runners.staging.pool import stage_pool
    from isoline.sweeps.execution.context import Stop, folder_is_usable

    settings = load_settings()
    wanted, items = _items(settings, pool, sweep, image or [], recipe)
    if dry_run:
        rows = inventory(settings, wanted, items)
        emit([_row(row) for row in rows], format, columns=COLUMNS)
        if any(row.state == "missing" for row in rows):
            raise typer.Exit(3)
        return
    stop = Stop()
    with stop.on_signals(), folder_is_usable(settings.state, "ISOLINE_STATE"):
        rows = stage_pool(
            settings, wanted, items, lambda line: typer.echo(line, err=True), should_stop=stop.why
        )
    emit([_row(row) for row in rows], format, columns=COLUMNS)
    failed = [row.code for row in rows if row.state == "failed"]
    if stop.why():
        raise typer.Exit(130)
    if failed:
        final = [code for code in failed if code in REASONS and REASONS[code].verdict is Verdict.INVALID]
        raise typer.Exit(3 if len(final) == len(failed) else 4)


def _items(
    settings: Settings, pool: str, sweep: str, images: list[str], recipe: str | None
) -> tuple[Pool, tuple[Item, ...]]:
    """The pool, and what the sweep's plan on it needs.

    :raises InputError: when the plan starts nothing there.
    """
    from isoline.catalog.facts import catalog_of
    from isoline.catalog.pools import load_pool
    from isoline.recipes.channels import parse_override
    from isoline.runners.staging.items import items_of_plan
    from isoline.sweeps.planning.prepare import Wishes, prepare
    from isoline.sweeps.planning.schema import load_sweep

    overrides = dict(parse_override(text) for text in images)
    document = load_sweep(settings.project, sweep)
    is_own = pool in (document.pool if isinstance(document.pool, list) else [document.pool])
    wishes = Wishes(pool=None if is_own and recipe is None else pool, images=overrides, recipe=recipe)
    prepared = prepare(settings, sweep, wishes)
    with catalog_of(settings.project):
        wanted = load_pool(settings.project, pool)
        items = items_of_plan(wanted, prepared.plan.launches, prepared.sources.datasets)
    if not any(launch.pool == wanted.name for launch in prepared.plan.launches):
        raise InputError(f"sweep {sweep!r} starts nothing on this pool", where=f"pool {pool}")
    return wanted, items


def _row(row: Staged) -> dict[str, Any]:
    return {
        "node": row.node,
        "item": row.item.name,
        "kind": row.item.kind,
        "id": row.item.id,
        "revision": row.item.revision,
        "state": row.state,
        "gb": None if row.bytes is None else round(row.bytes / 1e9, 3),
        "detail": row.detail or None,
    }


def pin(pool: PoolArgument, item: ItemArgument) -> None:
    """Keep an item on the pool's machines whatever the cap says."""
    _pin(pool, item, is_pinned=True)


def unpin(pool: PoolArgument, item: ItemArgument) -> None:
    """Let an item go again when room is needed."""
    _pin(pool, item, is_pinned=False)


def _pin(pool: str, item: str, *, is_pinned: bool) -> None:
    from isoline.catalog.facts import catalog_of
    from isoline.catalog.pools import load_pool
    from isoline.runners.staging.pool import set_pin

    settings = load_settings()
    with catalog_of(settings.project):
        nodes = set_pin(settings, load_pool(settings.project, pool), item, is_pinned)
    typer.echo(f"{item}: {'pinned' if is_pinned else 'not pinned'} on {', '.join(nodes)}")
