"""The published JSON Schemas: what the program writes, and true of every document of the project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.trees import parse_yaml, to_plain
from isoline.cli.main import run
from isoline.cli.schemas import DIALECT, FOLDER, schemas

DOCUMENTS = {
    "recipe": "recipes/[!_]*/*.yaml",
    "channels": "recipes/channels.yaml",
    "pool": "runners/**/*.yaml",
    "sweep": "sweeps/*.yaml",
    "scenario": "sweeps/scenarios/*.yaml",
    "dataset": "datasets/*.yaml",
    "prices": "dashboard/prices/*.yaml",
    "catalog-models": "src/isoline/catalog/data/models.yaml",
    "catalog-engines": "src/isoline/catalog/data/engines.yaml",
    "catalog-skus": "src/isoline/catalog/data/skus.yaml",
    "catalog-precisions": "src/isoline/catalog/data/precisions.yaml",
    "catalog-acceptance": "src/isoline/catalog/data/acceptance.yaml",
    "catalog-aliases": "src/isoline/catalog/data/aliases.yaml",
    "catalog-environment": "src/isoline/catalog/data/environment.yaml",
    "catalog-args": "src/isoline/catalog/data/args/*.yaml",
}
TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def mistakes(value: Any, schema: dict[str, Any], root: dict[str, Any], place: str = "") -> Iterator[str]:
    """What a validator of these few keywords says; none of ours uses others that could refuse more."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        tried = [list(mistakes(value, item, root, place)) for item in schema["anyOf"]]
        if all(tried):
            yield min(tried, key=len)[0]
        return
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{place}: not {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: not among {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{place}: not {schema['const']}"
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        yield from (f"{place}: {name} is missing" for name in schema.get("required", []) if name not in value)
        for name, item in value.items():
            if name in known:
                yield from mistakes(item, known[name], root, f"{place}.{name}")
            elif more is False:
                yield f"{place}: unknown {name}"
            elif isinstance(more, dict):
                yield from mistakes(item, more, root, f"{place}.{name}")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from mistakes(item, schema["items"], root, f"{place}.{index}")


def test_the_folder_agrees_with_the_program(project_root: Path) -> None:
    """docs/schema holds exactly what `make docs` would write now."""
    there = {path.name: path.read_text() for path in (project_root / FOLDER).iterdir()}
    assert there == schemas()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_document_is_of_its_schema(project_root: Path, name: str) -> None:
    """What the program accepts an editor accepts too; a wrong key and a wrong value it marks."""
    schema = json.loads((project_root / FOLDER / f"{name}.json").read_text())
    assert schema["$schema"] == DIALECT
    files = sorted(project_root.glob(DOCUMENTS[name]))
    assert files
    for path in files[::4] if len(files) > 40 else files:
        tree = to_plain(parse_yaml(path.read_text(), path.name), path.name)
        assert list(mistakes(tree, schema, schema)) == [], path.name
        assert list(mistakes({**tree, "schema_version": "1"}, schema, schema)) or "schema_version" not in tree
        assert list(mistakes({**tree, "nobody_knows": 1}, schema, schema))


def test_there_is_one_for_each_kind(project_root: Path) -> None:
    """Each kind of document that this test knows, and no other, has a schema; each field of it is listed."""
    assert {f"{name}.json" for name in DOCUMENTS} == schemas().keys()
    recipe = json.loads(schemas()["recipe.json"])
    assert "if" in recipe["$defs"]["When"]["properties"]
    assert "if_" not in recipe["$defs"]["When"]["properties"]


def test_check_sees_an_old_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``reference --check`` exits with 2 for an old file and for one that nobody writes."""
    for folder in ("recipes", "sweeps", FOLDER):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert run(["reference"]) == 0
    assert run(["reference", "--check"]) == 0
    (tmp_path / FOLDER / "pool.json").write_text("{}")
    (tmp_path / FOLDER / "gone.json").write_text("{}")
    capsys.readouterr()
    assert run(["reference", "--check"]) == 2
    assert f"{FOLDER}/pool.json: differs from the program; run `make docs`" in capsys.readouterr().err
    assert run(["reference"]) == 0
    assert not (tmp_path / FOLDER / "gone.json").exists()
    assert run(["reference", "--check"]) == 0
