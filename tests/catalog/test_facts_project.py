"""A project's own entries: they win by key, and their mistakes have a line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isoline.catalog.documents import DocumentError
from isoline.catalog.facts import Catalog, catalog_of, load_catalog, merged


def write(project: Path, name: str, text: str) -> Path:
    """One file of a project's own catalog."""
    path = project / "recipes" / "_catalog" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


NEW_MODEL = """schema_version: 1
models:
  tiny-1b:
    name: Tiny
    hub_id: someone/Tiny-1B
    source: its config.json
    dated: "2026-12-01"
  glm-5.2:
    license: other
    checkpoints:
      nvfp4: {revision: 0123456789abcdef0123456789abcdef01234567}
      own: {hub_id: someone/GLM-5.2-OWN, precision: fp8, source: made here, dated: "2026-12-01"}
"""


def test_own_entries_are_added_and_win(tmp_path: Path) -> None:
    """A new model is there, a field of a shipped one is another, and all else of it is as it ships."""
    write(tmp_path, "models.yaml", NEW_MODEL)
    mine, shipped = load_catalog(tmp_path).models, load_catalog().models
    assert mine["tiny-1b"].hub_id == "someone/Tiny-1B" and "tiny-1b" not in shipped
    assert mine["glm-5.2"].license == "other" and shipped["glm-5.2"].license == "MIT"
    assert mine["glm-5.2"].checkpoints["nvfp4"].revision == "0123456789abcdef0123456789abcdef01234567"
    assert mine["glm-5.2"].checkpoints["nvfp4"].hub_id == shipped["glm-5.2"].checkpoints["nvfp4"].hub_id
    assert set(mine["glm-5.2"].checkpoints) == {*shipped["glm-5.2"].checkpoints, "own"}
    assert mine["kimi-k3"] == shipped["kimi-k3"]
    assert load_catalog(tmp_path).resolve_checkpoint("someone/glm-5.2-own") == ("glm-5.2", "own")


def test_own_aliases_and_flags(tmp_path: Path) -> None:
    """A project names a label of its fleet, and keeps flags that it learned."""
    write(
        tmp_path,
        "aliases.yaml",
        'schema_version: 1\nsource: our fleet\ndated: "2026-12-01"\nskus: {attic: b200, b200-xx: b200}\n',
    )
    write(
        tmp_path,
        "args/vllm.yaml",
        'schema_version: 1\nengine: vllm\ncomplete: true\nversions: ["9.0.0"]\nsource: a captured --help\n'
        'dated: "2026-12-01"\nflags:\n  only-this: {takes: int}\n',
    )
    mine = load_catalog(tmp_path)
    assert mine.resolve("sku", "attic") == "b200" and mine.resolve("sku", "gb200") == "gb200-nvl72"
    assert mine.resolve("sku", "cluster:b200-xx_3") == "b200" and mine.resolve("sku", "b200-yy_3") is None
    flags = mine.known_flags("vllm")
    assert flags is not None and flags.complete and set(flags.flags) == {"only-this"}
    assert load_catalog().resolve("sku", "attic") is None


def test_mistakes_have_the_projects_line(tmp_path: Path) -> None:
    """A wrong value, an unknown key and a wrong date are told at their line of the project's file."""
    write(tmp_path, "models.yaml", NEW_MODEL.replace("hub_id: someone/Tiny-1B", "hub_id: Tiny"))
    with pytest.raises(DocumentError) as error:
        _ = load_catalog(tmp_path).models
    assert error.value.lines()[0].startswith("recipes/_catalog/models.yaml:5: models.tiny-1b.hub_id")
    write(tmp_path, "models.yaml", NEW_MODEL.replace("license: other", "licence: other"))
    with pytest.raises(DocumentError) as error:
        _ = load_catalog(tmp_path).models
    assert "models.yaml:9: unknown key 'licence'; did you mean 'license'?" in error.value.lines()[0]


def test_a_file_of_another_name_is_a_mistake(tmp_path: Path) -> None:
    """A file that nobody would read is told, with the nearest name."""
    write(tmp_path, "model.yaml", "schema_version: 1\n")
    with pytest.raises(DocumentError, match="did you mean 'models'"):
        load_catalog(tmp_path)


def test_a_backend_that_is_not_there_is_told(tmp_path: Path) -> None:
    """An engine that builds on an unknown one, or on one that builds on another, is refused."""
    for backend in ("nothing", "dynamo-vllm"):
        write(
            tmp_path,
            "engines.yaml",
            f"schema_version: 1\nengines:\n  mine: {{name: Mine, backend: {backend}, source: mine here, "
            'dated: "2026-12-01"}\n',
        )
        with pytest.raises(DocumentError, match=f"mine: backend '{backend}'"):
            _ = Catalog(tmp_path).engines


def test_changed_files_are_read_again(tmp_path: Path) -> None:
    """A catalog is kept while its files are the same, and read again after a change."""
    path = write(tmp_path, "models.yaml", NEW_MODEL)
    first = load_catalog(tmp_path)
    assert load_catalog(tmp_path) is first
    path.write_text(NEW_MODEL.replace("name: Tiny", "name: Small"), encoding="utf-8")
    os.utime(path, ns=(1, 1))
    assert load_catalog(tmp_path).models["tiny-1b"].name == "Small"


def test_validators_see_the_projects_catalog(tmp_path: Path) -> None:
    """Inside the context the catalog without arguments is the project's, outside it is what ships."""
    write(tmp_path, "models.yaml", NEW_MODEL)
    with catalog_of(tmp_path) as catalog:
        assert load_catalog() is catalog
        assert "tiny-1b" in load_catalog().models
    assert "tiny-1b" not in load_catalog().models


def test_merging_is_deep_in_mappings_only() -> None:
    """Mappings are merged by key, lists and values are taken as a whole, and nothing is changed in place."""
    base = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    assert merged(base, {"a": {"c": [3]}, "e": None}) == {"a": {"b": 1, "c": [3]}, "d": 1, "e": None}
    assert base == {"a": {"b": 1, "c": [1, 2]}, "d": 1}
