"""``isoline setup`` (called by ``make setup``): environments, weights and tokenizers for this machine."""

from __future__ import annotations

import compileall
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import isoline
from isoline.settings import Settings, load_settings

if TYPE_CHECKING:
    from isoline.catalog.facts import WeightFile

#: What is prepared in advance: recipes for this SKU, which every machine can serve as plain processes.
SKU = "cpu"


def setup() -> None:
    """Make the environments of AIPerf and the engine, fetch weights, make tokenizers.

    Safe to repeat: what is there is verified, not made again. Exit code 4 when the network, the
    package index or the disk fails; what was made until then stays.
    """
    settings = load_settings()
    steps = planned_steps(settings)
    started = time.monotonic()
    if sys.dont_write_bytecode:  # as in containers: each start would compile all that it imports
        compileall.compile_dir(Path(isoline.__file__).parent, quiet=2)
    for number, (name, action) in enumerate(steps, start=1):
        typer.echo(f"setup {number}/{len(steps)}: {name}")
        action()
    typer.echo(f"setup: ready in {time.monotonic() - started:.1f} s")


def planned_steps(settings: Settings) -> list[tuple[str, Callable[[], Any]]]:
    """The steps in order: a line for people and the action. Shared parts appear once."""
    from isoline.catalog.facts import load_catalog
    from isoline.recipes.load import load_recipe, recipe_ids
    from isoline.recipes.render import weights_of
    from isoline.runners.envs import AIPERF_VERSION, ensure_aiperf, ensure_engine

    models = load_catalog().models
    steps: dict[str, Callable[[], Any]] = {
        f"load generator AIPerf {AIPERF_VERSION}": partial(ensure_aiperf, settings, progress=_say)
    }
    for recipe_id in recipe_ids(settings.project):
        recipe = load_recipe(settings.project, recipe_id).recipe
        if recipe.sku != SKU:
            continue
        packages = recipe.image.packages
        entry = weights_of(recipe, models[recipe.model])
        if packages is None or entry is None:
            continue  # nothing that this machine could be set up for
        steps[f"engine {recipe.engine} ({', '.join(packages)})"] = partial(
            ensure_engine, settings, recipe.engine, packages, progress=_say
        )
        steps[f"weights and tokenizer {entry.file} ({entry.bytes / 1e6:.0f} MB)"] = partial(
            _ensure_model, settings, entry, recipe.model
        )
    return list(steps.items())


def _say(line: str) -> None:
    typer.echo(f"  {line}")


def _ensure_model(settings: Settings, entry: WeightFile, alias: str) -> None:
    from isoline.runners.staging.tokenizer import ensure_tokenizer
    from isoline.runners.staging.weights import ensure_weights

    ensure_tokenizer(settings, ensure_weights(settings, entry, progress=_say), alias)
