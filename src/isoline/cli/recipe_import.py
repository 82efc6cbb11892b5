"""``isoline recipe import``: recipes out of other people's configuration files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoline.cli.output import Format, FormatOption, emit
from isoline.errors import IncompleteError, InputError
from isoline.settings import find_project

if TYPE_CHECKING:
    from isoline.recipes.imports.common import Imported

app = typer.Typer(help="Make recipes from other people's configuration files; say what could not be.")

OutOption = Annotated[Path, typer.Option("--out", help="Folder for the recipes, such as recipes/.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only report; write nothing.")]
RevisionOption = Annotated[str | None, typer.Option("--rev", help="Commit of the files, for `upstream`.")]
OwnerOption = Annotated[str, typer.Option(help="Who answers for the recipes.")]
FilesArgument = Annotated[list[Path], typer.Argument(help="The files.")]


@app.command("inferencex")
def inferencex(
    master: Annotated[list[Path], typer.Option("--master", help="A master file; may be repeated.")],
    runners: Annotated[Path, typer.Option(help="The list of machines, runners.yaml.")],
    out: OutOption,
    rev: RevisionOption = None,
    owner: OwnerOption = "isoline",
    dry_run: DryRunOption = False,
    format: FormatOption = "table",
) -> None:
    """Topology, image and concurrencies of InferenceX's configs. Exit code 3 when something is left out."""
    from isoline.recipes.imports.common import read_tree
    from isoline.recipes.imports.inferencex import import_master

    names = [path.name for path in master]
    if len(set(names)) != len(names):
        raise InputError("two master files have the same name", where="recipe import inferencex")

    def make() -> Imported:
        masters = {path.name: read_tree(path) for path in master}
        return import_master(masters, read_tree(runners), revision=rev, owner=owner)

    _run(make, out, dry_run=dry_run, format=format)


@app.command("srt-slurm")
def srt_slurm(
    files: FilesArgument,
    out: OutOption,
    rev: RevisionOption = None,
    owner: OwnerOption = "isoline",
    dry_run: DryRunOption = False,
    format: FormatOption = "table",
) -> None:
    """Recipes of srt-slurm, with the arguments of each role. Exit code 3 when something is left out."""
    from isoline.recipes.imports.srt_slurm import import_recipes

    make = partial(_import_files, import_recipes, files, rev, owner)
    _run(make, out, dry_run=dry_run, format=format)


@app.command("perf-eval")
def perf_eval(
    files: FilesArgument,
    out: OutOption,
    rev: RevisionOption = None,
    owner: OwnerOption = "isoline",
    dry_run: DryRunOption = False,
    format: FormatOption = "table",
) -> None:
    """Workloads of vllm-project/perf-eval. Exit code 3 when something is left out."""
    from isoline.recipes.imports.perf_eval import import_workloads

    make = partial(_import_files, import_workloads, files, rev, owner)
    _run(make, out, dry_run=dry_run, format=format)


def _import_files(
    importer: Callable[..., Imported], files: list[Path], rev: str | None, owner: str
) -> Imported:
    """What an importer makes of the files that can be read, with a line for each that cannot."""
    trees, broken = _read(files)
    done = importer(trees, revision=rev, owner=owner)
    done.lines = [*broken, *done.lines]
    return done


def _read(files: list[Path]) -> tuple[Mapping[str, Mapping[str, Any]], list[Any]]:
    """(content by file, lines about files that cannot be read): one bad file does not stop the others."""
    from isoline.catalog.documents import DocumentError
    from isoline.recipes.imports.common import Line, read_tree

    trees: dict[str, Mapping[str, Any]] = {}
    broken = []
    for path in files:
        name = path.as_posix() if not path.is_absolute() else path.name
        try:
            trees[name] = read_tree(path)
        except DocumentError as error:
            broken.append(Line("left_out", name, error.line()))
    return trees, broken


def _run(make: Callable[[], Imported], out: Path, *, dry_run: bool, format: Format) -> None:
    """Import with the project's own catalog, write, print the report.

    :raises IncompleteError: when something was left out or is not known.
    """
    from isoline.catalog.facts import catalog_of
    from isoline.recipes.imports.common import write

    with catalog_of(find_project()):
        done = make()
    new = write(done.drafts, out, dry_run=dry_run)
    lines = sorted(done.lines, key=lambda line: line.kind == "imported")
    columns = ["kind", "source", "recipe_id", "points", "what"]
    emit([line.row() for line in lines], format, columns=columns)
    counts = ", ".join(f"{number} {kind}" for kind, number in done.counts.items())
    verb = "would be written" if dry_run else "written"
    typer.echo(f"{len(done.drafts)} recipe(s), {len(new)} {verb} to {out}; {counts}", err=True)
    if done.losses:
        raise IncompleteError(
            f"{done.losses} line(s) say what was left out or is not known", where="recipe import"
        )
