"""``isoline pool``: the machines. Each verb has its module; this one only registers them."""

from __future__ import annotations

import typer

from isoline.cli import pool_check, pool_new, pool_stage

app = typer.Typer(help="Check, set up and operate pools of machines.")
app.command("check")(pool_check.check)
app.command("new")(pool_new.new)
app.command("stage")(pool_stage.stage)
app.command("pin")(pool_stage.pin)
app.command("unpin")(pool_stage.unpin)
