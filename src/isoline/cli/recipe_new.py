"""``isoline recipe new``: the first recipe of a model, from what the catalog knows."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from isoline.errors import InputError
from isoline.settings import find_project


def new(
    model: Annotated[str, typer.Option(help="Model: catalog key, alias or hub id.")],
    engine: Annotated[str, typer.Option(help="Engine.")],
    sku: Annotated[str, typer.Option(help="SKU.")],
    precision: Annotated[
        str, typer.Option(help="Precision of the weights: nvfp4, mxfp4, fp8-block, bf16, …")
    ],
    variant: Annotated[str | None, typer.Option(help="Last word of the file's name.")] = None,
    kv: Annotated[str | None, typer.Option(help="Precision of the KV cache.")] = None,
    image: Annotated[str | None, typer.Option(help="A channel, or an image reference.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="config.json of a model that the catalog does not know.")
    ] = None,
    owner: Annotated[str, typer.Option(help="Who answers for the recipe.")] = "isoline",
    out: Annotated[Path | None, typer.Option(help="Folder instead of the project's recipes/.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the files; write nothing.")] = False,
) -> None:
    """Write a recipe of at most 40 lines that passes `recipe check`; comments say what was assumed."""
    from isoline.catalog.documents import NAME
    from isoline.catalog.facts import OWN, catalog_of, load_catalog
    from isoline.recipes.channels import load_channels
    from isoline.recipes.imports.common import problem_of, write
    from isoline.recipes.new import Wish, skeleton

    if variant is not None and not re.match(NAME, variant):
        raise InputError(
            f"{variant!r} cannot be part of a file's name",
            where="--variant",
            remedy="lower-case letters, digits, - and _",
        )
    project = find_project()
    with catalog_of(project) as known:
        entry: tuple[str, dict[str, Any]] | None = None
        key = known.resolve("model", model)
        if key is None:
            entry = _entry(model, config, precision)
            key = entry[0]
        engine_key, sku_key = _key("engine", engine), _key("sku", sku)
        exact = known.resolve("precision", precision) or precision
    with _catalog_with(project, entry) as models_text:
        catalog = load_catalog()
        exact = catalog.models[key].precision_of(exact) or exact
        wish = Wish(key, engine_key, sku_key, exact, variant, kv, image, owner)
        draft = skeleton(wish, load_channels(project))
        problem = problem_of(draft)
    if problem is not None:
        raise InputError(problem, where=draft.recipe_id)
    folder = out or project / "recipes"
    fresh = write([draft], folder, dry_run=True)
    if dry_run:
        typer.echo(f"{models_text or ''}{draft.text()}", nl=False)
        return
    if models_text is not None:
        path = project / OWN / "models.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(models_text, encoding="utf-8")
        typer.echo(f"written: {path}")
    write([draft], folder)
    path = folder / f"{draft.recipe_id}.yaml"
    typer.echo(
        f"{'written' if fresh else 'already there'}: {path}; next: isoline recipe check {draft.recipe_id}"
    )


@contextmanager
def _catalog_with(project: Path, entry: tuple[str, dict[str, Any]] | None) -> Iterator[str | None]:
    """Inside, the catalog has one more model; yields the text of the project's own models with it.

    It is tried in a folder of its own first, so that a wrong entry leaves nothing behind.
    """
    from isoline.catalog.facts import OWN, catalog_of
    from isoline.recipes.model_entry import with_entry

    if entry is None:
        with catalog_of(project):
            yield None
        return
    own = project / OWN
    present = own / "models.yaml"
    text = with_entry(present.read_text(encoding="utf-8") if present.exists() else None, *entry)
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder)
        if own.is_dir():
            shutil.copytree(own, stage / OWN)
        (stage / OWN).mkdir(parents=True, exist_ok=True)
        (stage / OWN / "models.yaml").write_text(text, encoding="utf-8")
        with catalog_of(stage):
            yield text


def _key(kind: Literal["engine", "sku"], name: str) -> str:
    from isoline.catalog.documents import nearest
    from isoline.catalog.facts import load_catalog

    catalog = load_catalog()
    found = catalog.resolve(kind, name)
    if found is None:
        known = catalog.engines if kind == "engine" else catalog.skus
        raise InputError(f"unknown {kind} {name!r}", where=f"--{kind}", remedy=nearest(name, known))
    return found


def _entry(model: str, config: Path | None, precision: str) -> tuple[str, dict[str, Any]]:
    """(key, catalog entry) of an unknown model."""
    from isoline.catalog.documents import nearest
    from isoline.catalog.facts import load_catalog
    from isoline.recipes.model_entry import key_of, model_entry

    if config is None:
        hint = nearest(model, load_catalog().models)
        raise InputError(
            f"unknown model {model!r}",
            where="--model",
            remedy=f"{hint}{' Or' if hint.endswith('?') else ', or'} give its --config config.json",
        )
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(config)) from None
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where=str(config)) from None
    if not isinstance(content, Mapping):
        raise InputError("not a JSON object", where=str(config))
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    return key_of(model), model_entry(model, content, precision, today=today)
