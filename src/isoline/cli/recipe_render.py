"""``isoline recipe render``: exactly what would be executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from isoline.cli.output import Format, FormatOption, emit
from isoline.errors import InputError
from isoline.settings import find_project

if TYPE_CHECKING:
    from isoline.catalog.pools import Pool
    from isoline.recipes.load import LoadedRecipe
    from isoline.recipes.render import RenderedLaunch
    from isoline.recipes.schema import Recipe

As = Literal["docker", "podman", "slurm", "process", "plain"]


def render(
    recipe: Annotated[str, typer.Argument(help="Recipe id (its path under recipes/) or path.")],
    pool: Annotated[
        str | None, typer.Option(help="The pool; default: the first in runners/ with the SKU and room.")
    ] = None,
    topology: Annotated[str | None, typer.Option(help="One topology, by its label; default: all.")] = None,
    scenario: Annotated[str | None, typer.Option(help="One scenario; default: the recipe's first.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="The concurrency; default: the highest that the recipe lists.")
    ] = None,
    as_: Annotated[
        As | None, typer.Option("--as", help="How it is printed; default: as the pool starts it.")
    ] = None,
    twin: Annotated[bool, typer.Option("--twin", help="The accuracy twin: acceptance is real.")] = False,
    lock: Annotated[
        Path | None,
        typer.Option(help="Write a lock of all its launches to this file (.yaml) instead of printing."),
    ] = None,
    format: FormatOption = "table",
) -> None:
    """Print exactly what would be executed; {placeholders} are filled in when it is."""
    from isoline.catalog.facts import catalog_of
    from isoline.recipes.load import load_recipe

    project = find_project()
    with catalog_of(project):
        loaded = load_recipe(project, recipe)
        where = _pool(loaded.recipe, pool, as_)
        if lock is None:
            _print(project, loaded, where, topology, scenario, concurrency, as_, format, is_twin=twin)
        elif topology or scenario or concurrency or as_ or twin:
            raise InputError(
                "a lock holds every launch of the recipe",
                where="--lock",
                remedy="name --pool alone",
            )
        else:
            _write_lock(project, loaded, where, lock)


def _print(
    project: Path,
    loaded: LoadedRecipe,
    where: Pool,
    topology: str | None,
    scenario: str | None,
    concurrency: int | None,
    as_: As | None,
    format: Format,
    *,
    is_twin: bool,
) -> None:
    from isoline.catalog.documents import nearest
    from isoline.recipes.render import render as render_launch
    from isoline.sweeps.planning.sources import inputs_of, shape_of

    document = loaded.recipe
    labels = {item.label(): item for item in document.topologies}
    if topology is not None and topology not in labels:
        raise InputError(
            f"no topology {topology!r}", where=loaded.recipe_id, remedy=nearest(topology, labels)
        )
    name = scenario or next(iter(document.scenarios))
    if name not in document.scenarios:
        remedy = nearest(name, document.scenarios)
        raise InputError(f"no scenario {name!r} in this recipe", where=loaded.recipe_id, remedy=remedy)
    rows: list[tuple[str, int, RenderedLaunch]] = []
    for label, item in labels.items():
        if topology not in (None, label):
            continue
        level = concurrency or max(document.scenarios[name].at(label) or document.scenarios[name].all)
        rendered = render_launch(
            loaded, item, where, shape_of(project, name), level, inputs_of(project, loaded), is_twin=is_twin
        )
        rows.append((label, level, rendered))
    if format != "table":
        emit([_row(loaded.recipe_id, name, *each) for each in rows], format)
        return
    for number, (label, level, rendered) in enumerate(rows):
        if number:
            typer.echo()
        mark = "" if rendered.is_resolved else ", unresolved: the image is known by its tag only"
        typer.echo(
            f"# {loaded.recipe_id} {label} {name} c{level}: {rendered.deployment.gpus} accelerator(s) "
            f"of pool {where.name}, launch {rendered.launch_digest[:10]}, {document.status}{mark}"
        )
        typer.echo(_text(rendered, where, as_), nl=False)


def _write_lock(project: Path, loaded: LoadedRecipe, pool: Pool, path: Path) -> None:
    from isoline.recipes.channels import read_channels
    from isoline.recipes.load import lock_at
    from isoline.recipes.lock import lock_text, pinned_image
    from isoline.runners.staging.registry import registry_digest
    from isoline.sweeps.planning.sources import git_state, inputs_of, shape_of

    folder = (project / "recipes").resolve()
    if path.suffix != ".yaml":
        raise InputError("a lock's name ends in .yaml", where=str(path))
    if path.resolve().parent.parent == folder and not path.resolve().parent.name.startswith("_"):
        raise InputError("a recipe would be seen here", where=str(path), remedy="write it to recipes/_locks/")
    if path.exists() and lock_at(project, path) is None:
        raise InputError("there is another file of this name", where=str(path), remedy="name another one")
    image = pinned_image(loaded.recipe, read_channels(project), registry_digest)
    state = git_state(project)
    rev = f"{state['rev']}{'-dirty' if state['dirty'] else ''}" if state["rev"] else None
    shapes = {name: shape_of(project, name) for name in loaded.recipe.scenarios}
    text = lock_text(project, loaded, pool, shapes, inputs_of(project, loaded), image, rev)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    typer.echo(f"{path}: locked on pool {pool.name}")
    if image is not None and "@" not in image:
        typer.echo(f"unresolved: nothing here can say the digest of {image}", err=True)


def _pool(recipe: Recipe, name: str | None, as_: As | None) -> Pool:
    """The named pool, else the first one that can serve the recipe as asked, in runners/ or its examples."""
    from isoline.catalog.pools import load_pool, pools_of

    project = find_project()
    if name is not None:
        return load_pool(project, name)
    is_bare = recipe.image.packages is not None
    found = [
        pool
        for pool in pools_of(project)
        if pool.sku == recipe.sku and (pool.launcher == "process") == is_bare
    ]
    if not found:
        raise InputError(f"no pool has SKU {recipe.sku!r}", where="runners/", remedy="name one with --pool")
    part = {"slurm": "slurm", "docker": "container", "podman": "container"}.get(as_ or "")
    found = [pool for pool in found if part is None or getattr(pool, part) is not None] or found
    most = max(topology.gpus for topology in recipe.topologies)
    return next((pool for pool in found if pool.total_accelerators >= most), found[0])


def _row(recipe_id: str, scenario: str, label: str, level: int, rendered: RenderedLaunch) -> dict[str, Any]:
    return {
        "recipe_id": recipe_id,
        "topology": label,
        "scenario": scenario,
        "concurrency": level,
        "gpus": rendered.deployment.gpus,
        "launch_digest": rendered.launch_digest,
        "is_resolved": rendered.is_resolved,
        "image": rendered.deployment.used_image,
        "commands": [
            {"name": item.name, "gpus_per_worker": item.gpus, **item.identity()}
            for item in rendered.deployment.commands
        ],
    }


def _text(rendered: RenderedLaunch, pool: Pool, as_: As | None) -> str:
    from isoline.recipes.renderers import slurm, text

    runtimes = {"container": pool.container.runtime if pool.container else "docker", "slurm": "slurm"}
    form: str = as_ or runtimes.get(pool.launcher, "plain")
    if form in ("docker", "podman"):
        if pool.container is None:
            raise InputError(f"pool {pool.name!r} has no part container", remedy="name another with --pool")
        runtime = pool.container.model_copy(update={"runtime": form})
        return text.containers(rendered.deployment, pool.model_copy(update={"container": runtime}))
    if form == "slurm":
        if pool.slurm is None:
            raise InputError(f"pool {pool.name!r} has no part slurm", remedy="name another with --pool")
        return slurm.slurm_script(rendered.deployment, pool)
    return text.plain(rendered.deployment)
