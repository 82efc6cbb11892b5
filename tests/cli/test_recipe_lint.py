"""`isoline recipe check`, `recipe show` and `engine learn` as a person types them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from isoline.cli.main import run

RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"
RECIPE = f"recipes/{RECIPE_ID}.yaml"


@pytest.fixture
def copy(tmp_path: Path, project_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the demo's recipe alone, and the folder that the test stands in."""
    for folder in ("sweeps", "runners", "datasets"):
        shutil.copytree(project_root / folder, tmp_path / folder)
    (tmp_path / RECIPE).parent.mkdir(parents=True)
    shutil.copy(project_root / RECIPE, tmp_path / RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ISOLINE_PROJECT", str(tmp_path))
    return tmp_path


def test_all_recipes_of_the_project_pass_in_seconds(project_root: Path) -> None:
    """The whole lint, cold, as one process: no error in any recipe, in 3 seconds (a busy machine: 9)."""
    began = time.monotonic()
    code = (
        "import sys; from isoline.cli.main import run; sys.exit(run(['recipe', 'check', '--format', 'json']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project_root, capture_output=True, text=True, check=False
    )
    took_s = time.monotonic() - began
    errors = [row for row in json.loads(done.stdout) if row["severity"] == "error"]
    assert errors == []
    assert done.returncode == 0, done.stderr
    assert took_s < 9


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_good_recipe_is_fine(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All recipes are checked where none is named; the exit code is 0 and the last line counts them."""
    assert run(["recipe", "check"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 1 recipe(s) are fine"
    assert run(["recipe", "check", "--all"]) == 0
    assert run(["recipe", "check", RECIPE, "--all"]) == 1


def test_a_wrong_recipe_ends_with_1(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error is one line with file, line, what and how to mend it; the exit code is 1."""
    text = (copy / RECIPE).read_text()
    (copy / RECIPE).write_text(text.replace("ctx-size: 8192 ", "ctx-size: 1000 "))
    line = text.count("\n", 0, text.index("ctx-size")) + 1
    assert run(["recipe", "check", RECIPE]) == 1
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith(f"{RECIPE}:{line}: a request takes 176 tokens, the context has 125")
    assert run(["recipe", "check", "--format", "json"]) == 1
    rows = said(capsys)
    assert next((row["file"], row["line"], row["rule"]) for row in rows) == (RECIPE, line, "context")
    assert all(row["mend"] for row in rows)


def test_a_warning_ends_with_0(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning is printed and counted, and stops nobody."""
    text = (copy / RECIPE).read_text()
    (copy / RECIPE).write_text(
        text.replace("launch_bands", "").replace("readiness:", "launch_bands: [max]\nreadiness:")
    )
    assert run(["recipe", "check"]) == 0
    seen = capsys.readouterr()
    assert "warning: no argument depends on the concurrency" in seen.err
    assert seen.out == "1 of 1 recipe(s) are fine, 1 warning(s)\n"


def test_an_unknown_argument_of_a_covered_version_is_an_error(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The embedded engine's arguments are all known, so a misspelt one is an error with the nearest name."""
    text = (copy / RECIPE).read_text()
    (copy / RECIPE).write_text(text.replace("threads-batch: 2", "threads-bach: 2"))
    assert run(["recipe", "check"]) == 1
    out = capsys.readouterr().err
    assert "yaml:16: llamacpp has no argument 'threads-bach'" in out
    assert "did you mean 'threads-batch'" in out


def test_the_rules_are_listed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--rules prints the table of rules."""
    assert run(["recipe", "check", "--rules", "--format", "json"]) == 0
    assert {"rule", "severity", "checks"} == set(said(capsys)[0])


def test_show_and_diff(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """show prints values with origins; --diff only what differs; both as JSON too."""
    own = f"{RECIPE_ID}-small"
    (copy / f"recipes/{own}.yaml").write_text(f"extends: {RECIPE_ID}\nserver: {{args: {{parallel: 4}}}}\n")
    assert run(["recipe", "show", own]) == 0
    out = capsys.readouterr().out
    assert f"# recipes/{own}.yaml:2" in out
    assert f"# {RECIPE}:" in out
    assert run(["recipe", "show", own, "--format", "json"]) == 0
    assert {"path": "server.args.parallel", "value": 4, "origin": f"recipes/{own}.yaml:2"} in said(capsys)
    assert run(["recipe", "show", RECIPE_ID, "--diff", own, "--format", "json"]) == 0
    assert said(capsys) == [{"path": "server.args.parallel", "a": 8, "b": 4, "kind": "identity"}]


def test_learning_an_engine_s_arguments(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A captured --help becomes a flag file of the project, which the lint then goes by."""
    help_file = copy / "help.txt"
    help_file.write_text("  --parallel N\n  --only-new TEXT  something\n")
    command = ["engine", "learn", "llamacpp", "--version", "2027.1.1", "--help-file", str(help_file)]
    target = copy / "recipes/_catalog/args/llamacpp.yaml"
    assert run([*command, "--dry-run"]) == 0
    assert not target.exists()
    capsys.readouterr()
    assert run(command) == 0
    assert "1 new" in capsys.readouterr().out
    text = (copy / RECIPE).read_text()
    (copy / RECIPE).write_text(text.replace("threads-batch: 2", "threads-batch: 2\n    only-new: x"))
    assert run(["recipe", "check"]) == 0
    assert run(["engine", "learn", "llamacp", *command[3:]]) == 1
    assert "did you mean 'llamacpp'" in capsys.readouterr().err
    assert run(["engine", "list", "--format", "json"]) == 0
    row = next(row for row in said(capsys) if row["engine"] == "llamacpp")
    assert (row["versions"], row["complete"]) == ("2026.10.11549 to 2027.1.1", True)
