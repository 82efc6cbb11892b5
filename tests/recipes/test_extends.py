"""A recipe that says only what differs from another one."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.catalog.documents import DocumentError
from isoline.recipes.extends import keeps_null, merged_tree
from isoline.recipes.load import load_recipe
from isoline.recipes.schema import Recipe
from isoline.recipes.shown import as_yaml, differences, shown

BASE = "smollm2-135m/llamacpp-cpu-q4_1"
OWN = f"{BASE}-small"
FILE = f"recipes/{OWN}.yaml"


def child(project: Any, text: str) -> None:
    project.write(FILE, f"schema_version: 1\nextends: {BASE}\n{text}")


def test_own_values_lie_on_the_base(project: Any) -> None:
    """A mapping is merged, a list replaced, null removes; what is not said is the base's."""
    child(
        project,
        "server: {args: {parallel: 4, threads: null}}\n"
        "scenarios: {demo-chat: null, demo-short: {concurrency: [1]}}\n",
    )
    base, own = load_recipe(project.root, BASE).recipe, load_recipe(project.root, OWN).recipe
    assert own.server.args == {**{k: v for k, v in base.server.args.items() if k != "threads"}, "parallel": 4}
    assert list(own.scenarios) == ["demo-short"]
    assert own.scenarios["demo-short"].all == [1]
    assert (own.model, own.topologies, own.extends) == (base.model, base.topologies, None)


def test_nothing_own_is_the_base(project: Any) -> None:
    """A recipe that says nothing of its own resolves to its base, byte for byte, and so to its digest."""
    child(project, "")
    assert load_recipe(project.root, OWN).recipe_digest == load_recipe(project.root, BASE).recipe_digest


def test_null_of_a_role_stays() -> None:
    """For a role, null takes away what every role gets, so the merge leaves it there."""
    from isoline.catalog.trees import parse_yaml, to_plain

    base = parse_yaml("roles: {decode: {args: {a: 1, b: {c: 1}}}}\nserver: {args: {a: 1}}\n", "base")
    own = parse_yaml(
        "extends: x/y\nroles: {decode: {args: {a: null, b: {c: null}}}}\nserver: {args: {a: null}}\n", "own"
    )
    assert to_plain(merged_tree(base, own)) == {
        "roles": {"decode": {"args": {"a": None, "b": {}}}},
        "server": {"args": {}},
    }
    assert keeps_null(("roles", "decode", "env", "X"))
    assert not keeps_null(("server", "args", "a"))


def test_an_expression_is_a_value() -> None:
    """An expression replaces a value and is replaced as a whole, never merged key by key."""
    from isoline.catalog.trees import parse_yaml, to_plain

    base = parse_yaml('a: {x: {expr: "1 + 1"}, y: {z: 1}}\n', "base")
    own = parse_yaml('a: {x: {k: 2}, y: {expr: "concurrency"}}\n', "own")
    assert to_plain(merged_tree(base, own)) == {"a": {"x": {"k": 2}, "y": {"expr": "concurrency"}}}


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("sever: {}\n", f"{FILE}:3", "unknown key 'sever'"),
        ("server: {args: {port: 1}}\n", f"{FILE}:3", "set by Isoline itself"),
        ("precision: {kv: q8_0}\n", f"{FILE}:3", "precision.kv is 'q8_0'"),
        ("topologies: null\n", f"{FILE}:1", "'topologies' is missing"),
    ],
)
def test_mistakes_are_told_where_they_stand(project: Any, text: str, where: str, words: str) -> None:
    """A mistake of the own file has a line of the own file."""
    child(project, text)
    with pytest.raises(DocumentError) as caught:
        load_recipe(project.root, OWN)
    assert caught.value.problems[0][0] == where
    assert words in caught.value.problems[0][1]


def test_mistakes_of_the_base_are_told_there(project: Any) -> None:
    """A mistake that is in the base has the base's file and line."""
    line = project.edit(f"recipes/{BASE}.yaml", "status: verified", "status: good")
    child(project, "owner: me\n")
    with pytest.raises(DocumentError) as caught:
        load_recipe(project.root, OWN)
    assert caught.value.problems[0][0] == f"recipes/{BASE}.yaml:{line}"


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("smollm2-135m/llamacpp-cpu-q4", "did you mean 'smollm2-135m/llamacpp-cpu-q4_1'"),
        ("../sweeps/demo", "unknown recipe"),
        (OWN, "a recipe cannot extend itself"),
        (f"{BASE}-second", "one level is all there is"),
    ],
)
def test_bases_that_cannot_be(project: Any, base: str, words: str) -> None:
    """A base that is not there, is the recipe itself, or has a base of its own is refused at its line."""
    project.write(f"recipes/{BASE}-second.yaml", f"extends: {BASE}\n")
    project.write(FILE, f"schema_version: 1\nextends: {base}\n")
    with pytest.raises(DocumentError) as caught:
        load_recipe(project.root, OWN)
    where, what = caught.value.problems[0]
    assert where == f"{FILE}:2"
    assert words in what


def test_no_base_is_left_out_in_silence() -> None:
    """A document that still names a base is no recipe: somebody forgot to lay it on the base."""
    with pytest.raises(ValueError, match="the base 'a/b' was not read"):
        Recipe.model_validate({"schema_version": 1, "extends": "a/b"})


def test_show_names_the_origin_of_each_value(project: Any) -> None:
    """Each value says the file and line that it is from, or that it is a default or the catalog's."""
    child(project, "server: {args: {parallel: 4}}\n")
    found = shown(project.root, load_recipe(project.root, OWN))
    lines = (project.root / f"recipes/{BASE}.yaml").read_text().splitlines()
    sku = next(number for number, line in enumerate(lines, 1) if line.startswith("sku:"))
    assert found.origins["server", "args", "parallel"] == f"{FILE}:3"
    assert found.origins["sku",] == f"recipes/{BASE}.yaml:{sku}"
    assert found.origins["features", "two_batch_overlap"] == "default"
    assert found.origins["revision",] == "catalog: gguf-b179c9523d0e"
    text = as_yaml(found)
    assert f"sku: cpu  # recipes/{BASE}.yaml:{sku}" in " ".join(text.split()).replace("cpu #", "cpu  #")


def test_what_show_prints_is_a_recipe(project: Any) -> None:
    """The printed YAML, read again, is the resolved recipe with nothing left to resolve."""
    from isoline.catalog.documents import validate_text

    child(project, "server: {args: {parallel: 4, note: 'a # default'}}\n")
    loaded = load_recipe(project.root, OWN)
    again = validate_text(as_yaml(shown(project.root, loaded)), Recipe, "shown")
    assert again == loaded.recipe


def test_diff_says_what_differs_and_of_what_kind(project: Any) -> None:
    """Only what differs is listed, with both values, and whether a point is another one for it."""
    child(
        project,
        "server: {args: {parallel: 4, keep: 1}}\nowner: me\nscenarios: {demo-short: {concurrency: [1]}}\n",
    )
    rows = differences(load_recipe(project.root, BASE), load_recipe(project.root, OWN))
    assert rows == [
        {"path": "server.args.parallel", "a": 8, "b": 4, "kind": "identity"},
        {"path": "scenarios.demo-short.concurrency", "a": [1, 2, 4, 8], "b": [1], "kind": "annotation"},
        {"path": "owner", "a": "isoline", "b": "me", "kind": "annotation"},
        {"path": "server.args.keep", "a": None, "b": 1, "kind": "identity"},
    ]
    assert differences(load_recipe(project.root, BASE), load_recipe(project.root, BASE)) == []
