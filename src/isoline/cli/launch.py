"""``isoline launch``: start one server of a recipe and keep it."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

import typer

from isoline.errors import InputError
from isoline.settings import load_settings

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST_S = 30 * 24 * 3600.0
"""Who wants a server for longer wants a service."""


def seconds(text: str) -> float:
    """``90s``, ``30m``, ``2h``, ``1h30m`` as seconds.

    :raises InputError: for anything else, no time at all, or more than :data:`LONGEST_S`.
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InputError(f"no length of time: {text!r}", where="--hold", remedy="such as 30m or 2h")
    found = sum(float(number) * UNITS[unit] for number, unit in parts)
    if not 0 < found <= LONGEST_S:
        raise InputError(f"{text} is too {'long' if found else 'short'}", where="--hold", remedy="up to 720h")
    return found


def launch(
    recipe: Annotated[str, typer.Argument(help="Recipe id (its path under recipes/) or path.")],
    concurrency: Annotated[int, typer.Option(min=1, help="The concurrency that the server is sized for.")],
    hold: Annotated[str, typer.Option(help="How long it is kept: 30m, 2h.")] = "1h",
    pool: Annotated[str | None, typer.Option(help="The pool; default: the only one of its SKU.")] = None,
    scenario: Annotated[str | None, typer.Option(help="One scenario; default: the recipe's first.")] = None,
    topology: Annotated[str | None, typer.Option(help="One topology, by its label.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command; start nothing.")] = False,
) -> None:
    """Start one server and keep it: prints URL, log and command. Ctrl-C ends it.

    Measure on it with `isoline sweep run SWEEP --attach LAUNCH_ID`, as often as you like.
    """
    from isoline.sweeps.execution.context import Stop
    from isoline.sweeps.execution.hold import Wanted, planned
    from isoline.sweeps.execution.hold import hold as hold_launch

    settings = load_settings()
    hold_s = seconds(hold)
    wanted = Wanted(recipe, concurrency, pool, scenario, topology)
    _, found = planned(settings, wanted)
    typer.echo(f"{found.recipe_id} {found.topology}, launch {found.launch_digest[:10]}")
    for command in found.identity["commands"]:
        typer.echo(f"  {command['name']}: {shlex.join(command['argv'])}")
    if dry_run:
        return

    def say(line: str) -> None:
        typer.echo(line)

    held = hold_launch(settings, wanted, hold_s, Stop(), say)
    typer.echo(f"{held.launch_id} is stopped")
