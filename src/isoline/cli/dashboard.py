"""``isoline dashboard``: serve the page."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, help="Serve the dashboard.")


@app.command()
def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback show it to the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8050,
    public: Annotated[
        bool,
        typer.Option("--public", help="Others see it (a proxy is in front): leave out details of machines."),
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open a browser where there is one.")] = False,
) -> None:
    """Serve the dashboard until Ctrl-C. It only reads, and shows each ingest without a restart."""
    from isoline.dashboard.serve import serve as serve_dashboard
    from isoline.settings import load_settings

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    serve_dashboard(load_settings(), host, port, public=public, open_browser=open_browser, say=say)
