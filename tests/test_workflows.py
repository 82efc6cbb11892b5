"""The GitHub workflows: each step is one call of make or of the CLI, and that call exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from isoline.cli import main as cli

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def load(path: Path) -> dict[str, Any]:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in load(path)["jobs"].values() for step in job["steps"]]


def make_targets(root: Path) -> set[str]:
    return set(re.findall(r"^([a-z]+):", (root / "Makefile").read_text(encoding="utf-8"), re.M))


def problem_of(line: str, root: Path) -> str | None:
    """Why a run line is not allowed, or None: it is one make target or one ``isoline`` command."""
    words = shlex.split(line)
    if "\n" in line.strip() or {";", "&&", "||", "|"} & set(words):
        return "more than one command"
    if words[0] == "make":
        return None if set(words[1:]) <= make_targets(root) and words[1:] else "no such make target"
    if words[0] != ".venv/bin/isoline":
        return "neither make nor isoline"
    command = cli.root_command()
    context = command.make_context("isoline", [], resilient_parsing=True)
    rest = words[1:]
    while hasattr(command, "list_commands") and rest:
        command = command.get_command(context, rest[0])
        if command is None:
            return f"no such command {rest[0]!r}"
        rest = rest[1:]
        context = command.make_context(command.name, [], parent=context, resilient_parsing=True)
    known = {name for param in command.params for name in param.opts}
    unknown = [word for word in rest if word.startswith("--") and word not in known]
    return f"unknown options {unknown}" if unknown else None


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_step_is_one_call_that_exists(path: Path, project_root: Path) -> None:
    """A run line is a make target or a command with known options; an action is pinned by its commit."""
    found = steps(path)
    assert found
    for step in found:
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
        else:
            assert problem_of(step["run"], project_root) is None, step["run"]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("make nothing", "make target"),
        ("make", "make target"),
        ("make setup && make test", "more than one"),
        ("apt-get install x", "neither"),
        (".venv/bin/isoline doktor", "no such command"),
        (".venv/bin/isoline doctor --formt json", "unknown options"),
    ],
)
def test_the_check_of_run_lines_can_fail(line: str, part: str, project_root: Path) -> None:
    """A wrong target, command, option, or two commands in one step are found."""
    assert part in (problem_of(line, project_root) or "")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_few_rights(path: Path) -> None:
    """A workflow may only read, ends in time, keeps no credentials, and a pull request sees no secret."""
    flow = load(path)
    assert flow["permissions"] == {"contents": "read"}
    assert all("permissions" not in job and job["timeout-minutes"] for job in flow["jobs"].values())
    assert "pull_request_target" not in path.read_text(encoding="utf-8")
    if "pull_request" in flow["on"]:
        assert "secrets." not in path.read_text(encoding="utf-8")
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_the_nightly_checkout_keeps_results() -> None:
    """On the machine of the fleet the checkout must not delete what earlier nights left."""
    checkout = next(step for step in steps(ROOT / ".github/workflows/nightly.yml") if "uses" in step)
    assert checkout["with"]["clean"] is False


def test_every_night_measures() -> None:
    """A nightly sweep starts a new run, or its sweep says how old a measurement may be."""
    lines = [step.get("run", "") for step in steps(ROOT / ".github/workflows/nightly.yml")]
    sweeps = [shlex.split(line) for line in lines if " sweep run " in line]
    assert sweeps
    for words in sweeps:
        age = load(ROOT / f"sweeps/{words[3]}.yaml").get("reuse", {}).get("max_age_h")
        assert "--new" in words or age, words


def test_ci_runs_what_people_run(project_root: Path) -> None:
    """.ci/run and the ci workflow call ``make test`` and nothing else."""
    lines = (project_root / ".ci/run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["exec make test"]
    assert [step["run"] for step in steps(ROOT / ".github/workflows/ci.yml") if "run" in step] == [
        "make test"
    ]
