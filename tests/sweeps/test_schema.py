"""The schemas of scenarios and sweeps, and what a scenario's identity covers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.documents import DocumentError
from isoline.sweeps.planning.schema import Requests, Scenario, Selection, load_scenario, load_sweep

#: Fields that no number depends on, and why.
NOT_IDENTITY = {
    "schema_version": "the form of the file",
    "description": "words",
    "deadlines": "they can end a measurement, never change its numbers",
}
OTHER: dict[str, Any] = {
    "name": "another",
    "version": 2,
    "dataset": "other-data",
    "isl": 129,
    "osl": 49,
    "requests": {"minimum": 13, "per_concurrency": 3},
    "warmup_per_concurrency": 2,
    "ignore_eos": False,
    "cache": "allow",
    "max_failed_share": 0.02,
    "limits": {"ttft_ms": 2999.0},
    "deadlines": {"stall_s": 19.0},
    "canary_min_questions": 5,
    "description": "other words",
}


def test_every_field_that_can_change_a_number_is_in_the_identity(project: Any) -> None:
    """Each field of a scenario changes its identity, or is one of the few that change no number."""
    scenario = load_scenario(project.root, "demo-short")
    assert set(OTHER) | {"schema_version", "kind"} == set(Scenario.model_fields)
    for name, value in OTHER.items():
        changed = Scenario.model_validate({**scenario.model_dump(), name: value})
        assert (changed.identity() == scenario.identity()) is (name in NOT_IDENTITY), name
    kinds = {load_scenario(project.root, name).identity()["kind"] for name in ("demo-short", "demo-chat")}
    assert kinds == {"fixed_length", "trace"}


def test_spelling_is_not_identity(project: Any) -> None:
    """2000 and 2000.0, another order of keys and a comment are the same scenario."""
    before = load_scenario(project.root, "demo-chat").identity()
    new = "{tpot_ms: 60.0, ttft_ms: 2e3}  # x"
    project.edit("sweeps/scenarios/demo-chat.yaml", "{ttft_ms: 2000, tpot_ms: 60}", new)
    assert load_scenario(project.root, "demo-chat").identity() == before


def test_number_of_requests() -> None:
    """The larger of the minimum and the share of the concurrency."""
    rule = Requests(minimum=12, per_concurrency=3)
    assert [rule.at(c) for c in (1, 4, 5, 8)] == [12, 12, 15, 24]


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("scenarios/demo-short", "isl: 128", "ilen: 128", "unknown key 'ilen'"),
        ("scenarios/demo-short", "per_concurrency: 3", "percurrency: 3", "did you mean 'per_concurrency'?"),
        ("scenarios/demo-short", "stall_s: 20", "stal_s: 20", "unknown key 'stal_s'; did you mean"),
        ("scenarios/demo-short", "limits: {ttft_ms", "limits: {ttft", "limits.ttft"),
        ("scenarios/demo-short", "cache: forbid", "cache: never", "input should be 'forbid', 'allow' or"),
        ("scenarios/demo-short", "osl: 48", "osl: 1", "osl: input should be greater than or equal to 2"),
        ("scenarios/demo-short", "osl: 48", "osl: 48\nmax_failed_share: 0.5", "less than or equal to 0.05"),
        ("demo", "pool: local", "pol: local", "unknown key 'pol'; did you mean 'pool'?"),
        ("demo", "pool: local", "pool: []", "at least 1 item"),
        ("demo", "scenario: demo-short", "scenrio: demo-short", "did you mean 'scenario'?"),
        ("demo", "max_age_h: null", "maxage_h: null", "unknown key 'maxage_h'; did you mean 'max_age_h'?"),
        ("demo", "max_age_h: null", "max_age_h: 0", "greater than 0"),
        ("demo", "concurrency: [1, 2, 4, 8]", "concurrency: [1, 2, 2]", "each once"),
        ("demo", "concurrency: [1, 2, 4, 8]", "concurrency: []", "one or more numbers"),
        ("demo", "concurrency: [1, 2, 4, 8]", "concurrency: [1, 0]", "greater than or equal to 1"),
        ("demo", "concurrency: [1, 2, 4, 8]", "concurrency: some", "select.0.concurrency"),
        ("demo", "repetitions: {4: 2}", "repetitions: {4: 0}", "repetitions are 1 to 100, got 0"),
        ("demo", "repetitions: {4: 2}", "repetitions: 1000", "repetitions are 1 to 100, got 1000"),
        ("demo", "repetitions: {4: 2}", "repetitions: {four: 2}", "select.0.repetitions"),
        ("demo", "recipes: [smollm2-135m/llamacpp-cpu-q4_1]", "recipes: []", "at least 1 item"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(project: Any, file: str, old: str, new: str, words: str) -> None:
    """Each mistake in a sweep or a scenario is told with its file and line."""
    line = project.edit(f"sweeps/{file}.yaml", old, new) + new.count("\n")
    with pytest.raises(DocumentError) as caught:
        if "/" in file:
            load_scenario(project.root, file.split("/")[1])
        else:
            load_sweep(project.root, file)
    said = caught.value.line()
    assert said.startswith(f"sweeps/{file}.yaml:{line}: ")
    assert words in said


def test_lengths_belong_to_their_kind(project: Any) -> None:
    """A fixed length has isl, osl and requests; a trace has none of them; a stall ends before the load."""
    for file, old, new, words in (
        ("demo-short", "osl: 48\n", "", "a fixed_length scenario has isl, osl and requests"),
        ("demo-chat", "cache: expect", "cache: expect\nisl: 5", "leave out isl, osl and requests"),
        ("demo-chat", "stall_s: 20", "stall_s: 240", "stall_s must be below load_s"),
    ):
        path = f"sweeps/scenarios/{file}.yaml"
        was = (project.root / path).read_text()
        project.edit(path, old, new)
        with pytest.raises(DocumentError, match=words):
            load_scenario(project.root, file)
        project.write(path, was)


def test_sweeps_by_name_and_path(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep is found by name and by the path that a shell completes; a wrong name gets the nearest."""
    assert load_sweep(project.root, "demo") == load_sweep(project.root, "sweeps/demo.yaml")
    monkeypatch.chdir(project.root / "sweeps")
    assert load_sweep(project.root, "demo.yaml").name == "demo"
    with pytest.raises(DocumentError, match="no such sweep; did you mean 'demo'"):
        load_sweep(project.root, "dmo")
    with pytest.raises(DocumentError, match="this name is taken"):
        load_sweep(project.root, "reproduce")
    with pytest.raises(DocumentError, match="no such scenario"):
        load_scenario(project.root, "../demo")


def test_repetitions_by_concurrency() -> None:
    """A number is for all; a mapping names the concurrencies that have more than one."""
    fields = {"recipes": ["*"], "scenario": "s"}
    assert Selection(**fields, repetitions=3).repetitions_at(8) == 3
    some = Selection.model_validate({**fields, "repetitions": {"4": 2}})
    assert [some.repetitions_at(c) for c in (1, 4)] == [1, 2]


def test_every_file_of_the_project_loads(project_root: Path) -> None:
    """All sweeps and scenarios that the project ships are right."""
    for path in (project_root / "sweeps").glob("*.yaml"):
        assert load_sweep(project_root, path.stem).name == path.stem
    for path in (project_root / "sweeps" / "scenarios").glob("*.yaml"):
        assert load_scenario(project_root, path.stem).name == path.stem
