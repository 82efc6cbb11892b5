"""``isoline recipe render``: exactly what would be executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from isoline.cli.output import FormatOption, emit
from isoline.errors import InputError
from isoline.settings import find_project

if TYPE_CHECKING:
    from isoline.catalog.pools import Pool
    from isoline.recipes.render import RenderedLaunch
    from isoline.recipes.schema import Recipe

As = Literal["docker", "podman", "slurm", "process", "plain"]


def render(
    recipe: Annotated[str, typer.Argument(help="Recipe id (its path under recipes/) or path.")],
    pool: Annotated[
        str | None, typer.Option(help="The pool; default: the first in runners/ with the recipe's SKU.")
    ] = None,
    topology: Annotated[str | None, typer.Option(help="One topology, by its label; default: all.")] = None,
    scenario: Annotated[str | None, typer.Option(help="One scenario; default: the recipe's first.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="The concurrency; default: the highest that the recipe lists.")
    ] = None,
    as_: Annotated[
        As | None, typer.Option("--as", help="How it is printed; default: as the pool starts it.")
    ] = None,
    twin: Annotated[bool, typer.Option("--twin", help="The accuracy twin: acceptance is real.")] = False,
    format: FormatOption = "table",
) -> None:
    """Print exactly what would be executed; {placeholders} are filled in when it is."""
    from isoline.catalog.documents import nearest
    from isoline.recipes.load import load_recipe
    from isoline.sweeps.sources import inputs_of, shape_of

    project = find_project()
    loaded = load_recipe(project, recipe)
    document = loaded.recipe
    where = _pool(document, pool)
    labels = {item.label(): item for item in document.topologies}
    if topology is not None and topology not in labels:
        raise InputError(
            f"no topology {topology!r}", where=loaded.recipe_id, remedy=nearest(topology, labels)
        )
    name = scenario or next(iter(document.scenarios))
    if name not in document.scenarios:
        remedy = nearest(name, document.scenarios)
        raise InputError(f"no scenario {name!r} in this recipe", where=loaded.recipe_id, remedy=remedy)
    from isoline.recipes.render import render as render_launch

    rows: list[tuple[str, int, RenderedLaunch]] = []
    for label, item in labels.items():
        if topology not in (None, label):
            continue
        level = concurrency or max(document.scenarios[name].at(label) or document.scenarios[name].all)
        rendered = render_launch(
            loaded, item, where, shape_of(project, name), level, inputs_of(project, loaded), is_twin=twin
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
            f"# {loaded.recipe_id} {label} {name} c{level}: {rendered.deployment.gpus} accelerator(s), "
            f"launch {rendered.launch_digest[:10]}, {document.status}{mark}"
        )
        typer.echo(_text(rendered, where, as_), nl=False)


def _pool(recipe: Recipe, name: str | None) -> Pool:
    """The named pool, else the first one of the recipe's SKU, in runners/ or its examples."""
    from isoline.catalog.pools import load_pool, pools_of

    project = find_project()
    if name is not None:
        return load_pool(project, name)
    found = [pool for pool in pools_of(project) if pool.sku == recipe.sku]
    if not found:
        raise InputError(f"no pool has SKU {recipe.sku!r}", where="runners/", remedy="name one with --pool")
    return found[0]


def _row(recipe_id: str, scenario: str, label: str, level: int, rendered: RenderedLaunch) -> dict[str, Any]:
    return {
        "recipe_id": recipe_id,
        "topology": label,
        "scenario": scenario,
        "concurrency": level,
        "gpus": rendered.deployment.gpus,
        "launch_digest": rendered.launch_digest,
        "is_resolved": rendered.is_resolved,
        "image": rendered.deployment.image,
        "commands": [
            {"name": item.name, "gpus_per_worker": item.gpus, **item.identity()}
            for item in rendered.deployment.commands
        ],
    }


def _text(rendered: RenderedLaunch, pool: Pool, as_: As | None) -> str:
    from isoline.recipes.renderers import text

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
        return text.slurm_script(rendered.deployment, pool)
    return text.plain(rendered.deployment)
