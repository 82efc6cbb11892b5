"""``isoline pool``: the machines. Each verb has its module; this one only registers them."""

from __future__ import annotations

import typer

from isoline.cli import pool_check, pool_new, pool_nodes, pool_stage

app = typer.Typer(help="Check, set up and operate pools of machines.")
app.command("list")(pool_nodes.list_pools)
app.command("status")(pool_nodes.status)
app.command("drain")(pool_nodes.drain)
app.command("quarantine")(pool_nodes.quarantine)
app.command("release")(pool_nodes.release)
app.command("gc")(pool_nodes.gc)
app.command("check")(pool_check.check)
app.command("new")(pool_new.new)
app.command("stage")(pool_stage.stage)
app.command("pin")(pool_stage.pin)
app.command("unpin")(pool_stage.unpin)
