"""``isoline recipe`` through the command line."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.facts import DATA
from isoline.cli.main import run

RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"
RECIPE = f"recipes/{RECIPE_ID}.yaml"


def test_list(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Every recipe with what it is; a broken one is listed with what is wrong, and the exit code is 3."""
    assert run(["recipe", "list", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["recipe_id"], row["sku"], row["weights"], row["topologies"]) == (
        RECIPE_ID,
        "cpu",
        "q4_1",
        "tp1",
    )
    project.write("recipes/m/llamacpp-cpu-q4_1.yaml", "- nothing\n")
    assert run(["recipe", "list", "--format", "json"]) == 3
    seen = capsys.readouterr()
    problems = {row["recipe_id"]: row["problem"] for row in json.loads(seen.out)}
    assert problems[RECIPE_ID] is None
    assert problems["m/llamacpp-cpu-q4_1"].startswith("recipes/m/llamacpp-cpu-q4_1.yaml:1: ")
    assert seen.err == "isoline: 1 recipe(s) cannot be read; see the column problem\n"


def test_show(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The recipe with every default, as YAML that is itself a recipe of the same digest."""
    from isoline.recipes.load import load_recipe

    digest = load_recipe(project.root, RECIPE_ID).recipe_digest
    assert run(["recipe", "show", RECIPE_ID]) == 0
    shown = capsys.readouterr().out
    assert f"# recipe_digest: {digest}\n" in shown
    assert "dp_attention: 1" in shown
    project.write(RECIPE, shown)
    assert load_recipe(project.root, RECIPE_ID).recipe_digest == digest


def test_check(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Good recipes are counted; each mistake is a line on the error stream, and the exit code is 1."""
    assert run(["recipe", "check", RECIPE_ID, RECIPE]) == 0
    assert capsys.readouterr().out == "2 of 2 recipe(s) are fine\n"
    line = project.edit(RECIPE, "engine: llamacpp", "engine: llamacp")
    second = project.edit(RECIPE, "owner: isoline", "ownr: isoline")
    assert run(["recipe", "check", "--all"]) == 1
    seen = capsys.readouterr()
    assert seen.out == "0 of 1 recipe(s) are fine\n"
    assert seen.err.splitlines() == [
        f"{RECIPE}:{line}: engine: unknown engine 'llamacp'; did you mean 'llamacpp'? [schema]",
        f"{RECIPE}:{second}: unknown key 'ownr'; did you mean 'owner'? [schema]",
    ]


def test_files_that_nobody_reads(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A recipe with another suffix or at another depth is told, not passed over."""
    project.copy(RECIPE, "recipes/m/llamacpp-cpu-q4_1.yml")
    project.copy(RECIPE, "recipes/m/deep/llamacpp-cpu-q4_1.yaml")
    project.copy(RECIPE, "recipes/_drafts/x.yml")
    project.write("recipes/channels.yaml", "{}")
    assert run(["recipe", "check", "--all"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[0] for line in told] == [
        "recipes/m/deep/llamacpp-cpu-q4_1.yaml",
        "recipes/m/llamacpp-cpu-q4_1.yml",
    ]


def test_render(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The exact command: for people as a shell line, for programs as an argument vector."""
    project.edit(RECIPE, "server:\n", "server:\n  env: {OMP_NUM_THREADS: '2 3'}\n")
    assert run(["recipe", "render", RECIPE_ID]) == 0
    head, role, command = capsys.readouterr().out.splitlines()
    assert head.startswith(f"# {RECIPE_ID} tp1 demo-short c8: 1 accelerator(s) of pool local, launch ")
    assert head.endswith(", verified")
    assert role == "# aggregated: 1 worker, 1 accelerator"
    assert command.startswith("OMP_NUM_THREADS='2 3' {python} {script} --model {model_path} ")
    assert run(["recipe", "render", RECIPE_ID, "--topology", "tp1", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    (only,) = row["commands"]
    assert only["env"] == {"OMP_NUM_THREADS": "2 3"}
    assert f"OMP_NUM_THREADS='2 3' {' '.join(only['argv'])}" == command
    assert (row["gpus"], row["scenario"], row["concurrency"], row["is_resolved"]) == (
        1,
        "demo-short",
        8,
        True,
    )
    assert row["launch_digest"][:10] in head


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["list", "--format", "yaml"], 1, "isoline recipe list: "),
        (["list", "extra"], 1, "isoline recipe list: "),
        (["show"], 1, "isoline recipe show: missing argument"),
        (["show", "smollm2-135m/lamacpp-cpu-q4_1"], 1, f"no such recipe; did you mean '{RECIPE_ID}'?"),
        (["show", "sweeps/demo.yaml"], 1, "a recipe lies under recipes/"),
        (["check", "--all", RECIPE_ID], 1, "recipe check: name recipes, or say --all"),
        (["check", "nothing"], 1, "no such recipe; "),
        (["render", RECIPE_ID, "--pool", "lokal"], 1, "no such pool; did you mean 'local'?"),
        (["render", RECIPE_ID, "--topology", "tp2"], 1, "no topology 'tp2'; did you mean 'tp1'?"),
        (["render", RECIPE_ID, "--scenario", "demo-shrt"], 1, "no scenario 'demo-shrt' in this recipe"),
        (["render", RECIPE_ID, "--concurrency", "-4"], 1, "--concurrency"),
        (["render", RECIPE_ID, "--as", "docker"], 1, "pool 'local' has no part container; name another with"),
        (["render", RECIPE_ID, "--as", "slurm"], 1, "pool 'local' has no part slurm; name another with"),
        (["render", RECIPE_ID, "--pool", "examples/h200-docker"], 1, "is for SKU 'cpu', pool 'h200-docker'"),
        (["render", RECIPE_ID, "--pol", "local"], 1, "did you mean --pool?"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line(
    project: Any, capsys: pytest.CaptureFixture[str], argv: list[str], code: int, said: str
) -> None:
    """A wrong name, option or format is one line that says what to do."""
    assert run(["recipe", *argv]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


BAD = {
    "empty": (b"", ":1: the file is empty"),
    "list at top": (b"- a\n", ":1: `key: value` lines are expected, not a list"),
    "tabs": (b"schema_version: 1\n\tmodel: x\n", ":2: not valid YAML: a tab"),
    "binary": (b"\x00\x01\x02", ":1: not valid YAML: special characters are not allowed"),
    "not UTF-8": (b"owner: \xe9\n", ":1: not UTF-8 text"),
    "huge": (b"#" * (1 << 20) + b"#", ": larger than 1048576 bytes"),
    "alias bomb": (b"a: &a [x]\nb: &b [*a, *a]\n", ":1: anchors and aliases"),
    "deep": (b"a: " + b"[" * 5000, ":1: nested more than 40 deep"),
    "no end": (b"a: [1,\n", ":2: not valid YAML"),
    "two": (b"a: 1\n---\nb: 2\n", ":2: not valid YAML: but found another document"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_recipe_at_all(project: Any, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Whatever lies in a recipe's place, it is one line with its place, exit code 1, and no report file."""
    data, said = BAD[name]
    (project.root / RECIPE).write_bytes(data)
    for argv in (["recipe", "check", RECIPE_ID], ["recipe", "show", RECIPE_ID], ["sweep", "plan", "demo"]):
        assert run(argv) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{RECIPE}{said}" in line
    assert not list(Path(project.root).glob(".isoline/reports/*"))


def test_a_folder_in_a_recipe_s_place(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder is told to be one."""
    (project.root / RECIPE).unlink()
    (project.root / RECIPE).mkdir()
    assert run(["recipe", "check", RECIPE_ID]) == 1
    assert capsys.readouterr().err.startswith(f"{RECIPE}: this is a folder, not a file; ")


def test_the_real_program(project: Any) -> None:
    """The installed command itself says the same: one line, exit code 1, nothing on the output."""
    line = project.edit(RECIPE, "sku: cpu", "sku: cpu\nsku: cpu") + 1
    done = subprocess.run(
        [Path(sys.executable).parent / "isoline", "recipe", "check", RECIPE_ID],
        cwd=project.root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={key: value for key, value in os.environ.items() if not key.startswith("ISOLINE_")},
    )
    (said,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert said.startswith(f'{RECIPE}:{line}: found duplicate key "sku"; ')


def test_a_channel_that_is_not_there(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Rendering a recipe of an unknown channel is an error at its line, not an unresolved launch."""
    project.edit("runners/local.yaml", "launcher: process", "launcher: simulated")
    line = project.edit(RECIPE, "packages: [xllamacpp==2026.10.11549]", "channel: vllm-relese")
    project.write(
        "recipes/channels.yaml",
        "schema_version: 1\nchannels:\n  vllm-release:\n    image: 'a/b:{version}'\n    version: v1\n"
        "    source: here\n    dated: '2026-12-01'\n",
    )
    assert run(["recipe", "render", RECIPE_ID]) == 1
    said = f"{RECIPE}:{line}: image.channel: unknown channel 'vllm-relese'; did you mean 'vllm-release'?"
    assert capsys.readouterr().err.splitlines() == [f"isoline: {said}"]


def test_models_of_the_project_s_own_catalog(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that only this project knows is known to list, show, check and render."""
    models = (DATA / "models.yaml").read_text()
    rows = models.partition("  smollm2-135m-instruct:\n")[2].splitlines()
    body = "\n".join(itertools.takewhile(lambda row: row.startswith("    "), rows))
    project.write("recipes/_catalog/models.yaml", f"schema_version: 1\nmodels:\n  our-model:\n{body}\n")
    text = (project.root / RECIPE).read_text().replace("model: smollm2-135m-instruct", "model: our-model")
    project.write("recipes/our-model/llamacpp-cpu-q4_1.yaml", text)
    name = "our-model/llamacpp-cpu-q4_1"
    for argv in (["list"], ["show", name], ["check", name], ["render", name]):
        assert run(["recipe", *argv]) == 0, capsys.readouterr().err
        seen = capsys.readouterr()
        assert "unknown model" not in seen.out + seen.err
