"""`recipe import`, `recipe new` and `recipe bump` as a person types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from isoline.cli.main import run
from isoline.recipes.load import load_recipe

MASTER = """\
a-config:
  image: lmsysorg/sglang:v0.5.16-cu130
  model: deepseek-ai/DeepSeek-R1-0528
  model-prefix: dsr1
  runner: {runner}
  precision: fp8
  framework: sglang
  multinode: false
  scenarios:
    fixed-seq-len:
    - isl: 8192
      osl: 1024
      search-space:
      - {{ tp: 8, conc-start: 4, conc-end: 16 }}
"""

CONFIG = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def copy(tmp_path: Path, project_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without recipes, and the folder that the test stands in."""
    root = tmp_path / "project"
    for folder in ("sweeps", "runners", "datasets"):
        shutil.copytree(project_root / folder, root / folder)
    (root / "recipes").mkdir()
    shutil.copy(project_root / "recipes/channels.yaml", root / "recipes/channels.yaml")
    monkeypatch.chdir(root)
    monkeypatch.setenv("ISOLINE_PROJECT", str(root))
    return root


def inferencex(folder: Path, runner: str = "b200") -> list[str]:
    """The files, and the command line without --out."""
    (folder / "m.yaml").write_text(MASTER.format(runner=runner))
    (folder / "runners.yaml").write_text("labels:\n  b200: [b200-x_0]\n")
    return ["recipe", "import", "inferencex", "--master", "m.yaml", "--runners", "runners.yaml"]


def test_an_import_writes_recipes_that_load(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 when everything was taken over; the recipe is one of the project."""
    assert run([*inferencex(copy), "--out", "recipes", "--rev", "abc1234"]) == 0
    shown = capsys.readouterr()
    assert "1 recipe(s), 1 written to recipes; 1 imported" in shown.err
    loaded = load_recipe(copy, "deepseek-r1-0528/sglang-b200-fp8-block-a-config")
    assert loaded.recipe.scenarios["8k1k"].all == [4, 8, 16]
    assert "abc1234" in loaded.recipe.upstream


def test_an_import_with_losses_ends_in_three(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And says how many; a dry run writes nothing."""
    words = [*inferencex(copy, "b300-elsewhere"), "--out", "new", "--dry-run", "--format", "json"]
    assert run(words) == 3
    shown = capsys.readouterr()
    rows = json.loads(shown.out)
    assert {row["kind"] for row in rows} == {"unknown_label", "unknown_name"}
    assert "2 line(s) say what was left out or is not known" in shown.err
    assert not (copy / "new").exists()


def test_a_file_that_cannot_be_read_does_not_stop_the_others(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other file is imported, the bad one is told with its line."""
    good = {
        "name": "w", "gpu": "H200", "num_gpus": 8,
        "vllm": {"model": "deepseek-ai/DeepSeek-V4-Pro", "serve_args": "--tensor-parallel-size 8"},
        "vllm_bench": {"configs": [{"input_len": 8192, "output_len": 1024, "max_concurrency": 8}]},
    }  # fmt: skip
    (copy / "good.yaml").write_text(json.dumps(good))
    (copy / "bad.yaml").write_text("name: x\nname: y\n")
    assert run(["recipe", "import", "perf-eval", "good.yaml", "bad.yaml", "--out", "recipes"]) == 3
    shown = capsys.readouterr()
    assert "bad.yaml:2" in shown.out
    assert (copy / "recipes/deepseek-v4-pro/vllm-h200-mxfp4-perf-eval.yaml").is_file()


def test_a_project_can_name_what_the_catalog_does_not_know(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The alias that the report asks for makes the next import complete."""
    words = [*inferencex(copy), "--out", "recipes"]
    (copy / "m.yaml").write_text(
        MASTER.format(runner="b200").replace("framework: sglang", "framework: turbo")
    )
    assert run(words) == 3
    assert "engines: {turbo: KEY}" in capsys.readouterr().out
    (copy / "recipes/_catalog").mkdir()
    alias = 'schema_version: 1\nengines: {turbo: sglang}\nsource: here\ndated: "2026-12-01"\n'
    (copy / "recipes/_catalog/aliases.yaml").write_text(alias)
    assert run(words) == 0


def test_a_new_recipe_passes_the_lint(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four words are enough, names in any spelling; at most 40 lines, and `recipe check` is content."""
    words = [
        "--model",
        "MiniMaxAI/MiniMax-M3-MXFP8",
        "--engine",
        "vllm",
        "--sku",
        "B300",
        "--precision",
        "mxfp8",
    ]
    assert run(["recipe", "new", *words]) == 0
    path = copy / "recipes/minimax-m3/vllm-b300-mxfp8.yaml"
    assert len(path.read_text().splitlines()) <= 40
    capsys.readouterr()
    assert run(["recipe", "check", "minimax-m3/vllm-b300-mxfp8"]) == 0, capsys.readouterr()


def test_an_unknown_model_becomes_an_entry_and_a_recipe(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """config.json is all that is needed; both files pass the lint."""
    (copy / "config.json").write_text(json.dumps(CONFIG))
    words = ["--model", "some/Brand-New-8B", "--engine", "vllm", "--sku", "h100", "--precision", "bf16"]
    assert run(["recipe", "new", *words]) == 1
    assert "give its --config config.json" in capsys.readouterr().err
    assert run(["recipe", "new", *words, "--config", "config.json"]) == 0
    assert "brand-new-8b:" in (copy / "recipes/_catalog/models.yaml").read_text()
    capsys.readouterr()
    assert run(["recipe", "check", "brand-new-8b/vllm-h100-bf16"]) == 0, capsys.readouterr()


def test_a_dry_run_prints_both_files_and_writes_none(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What would be written, and nothing is."""
    (copy / "config.json").write_text(json.dumps(CONFIG))
    before = sorted(copy.rglob("*"))
    words = ["--model", "some/Brand-New-8B", "--engine", "vllm", "--sku", "h100", "--precision", "bf16"]
    assert run(["recipe", "new", *words, "--config", "config.json", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "models:" in shown
    assert "engine: vllm" in shown
    assert sorted(copy.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--model", "minimax-m3", "--engine", "vlm", "--sku", "b300", "--precision", "nvfp4"],
            "did you mean 'vllm'",
        ),
        (["--model", "minimax-m3", "--engine", "vllm", "--sku", "b3000", "--precision", "nvfp4"], "'b300'"),
        (["--model", "minimax-m3", "--engine", "vllm", "--sku", "b300", "--precision", "q4"], "only"),
        (["--model", "minimax-m4", "--engine", "vllm", "--sku", "b300", "--precision", "q4"], "'minimax-m3'"),
        (
            ["--model", "minimax-m4", "--engine", "vllm", "--sku", "b300", "--precision", "q4"],
            "? Or give its --config",
        ),
    ],
)
def test_a_wrong_word_is_told_with_the_nearest(
    copy: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 1, nothing written."""
    assert run(["recipe", "new", *words]) == 1
    assert message in capsys.readouterr().err
    assert not list((copy / "recipes").glob("*/*.yaml"))


def test_a_variant_stays_in_the_folder(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A variant is a word of the file's name, not a way to another folder."""
    words = ["--model", "minimax-m3", "--engine", "vllm", "--sku", "b300", "--precision", "nvfp4"]
    before = sorted(copy.rglob("*"))
    assert run(["recipe", "new", *words, "--variant", "../../x"]) == 1
    assert "--variant: '../../x' cannot be part of a file's name" in capsys.readouterr().err
    assert sorted(copy.rglob("*")) == before


def test_a_wrong_config_leaves_nothing_behind(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a catalog entry nor a recipe."""
    words = ["--model", "some/New", "--engine", "vllm", "--sku", "h100", "--precision", "bf16"]
    for text in ("{", "[]", '{"num_hidden_layers": 1}', json.dumps(CONFIG | {"num_attention_heads": 0})):
        (copy / "config.json").write_text(text)
        assert run(["recipe", "new", *words, "--config", "config.json"]) == 1
    assert run(["recipe", "new", *words, "--config", "absent.json"]) == 1
    assert not (copy / "recipes/_catalog").exists()


def test_a_bump_writes_the_change_and_counts_recipes(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The diff is printed; a dry run leaves the file as it was."""
    words = ["--model", "minimax-m3", "--engine", "vllm", "--sku", "b300", "--precision", "nvfp4"]
    assert run(["recipe", "new", *words]) == 0
    capsys.readouterr()
    file = copy / "recipes/channels.yaml"
    before = file.read_text()
    assert run(["recipe", "bump", "vllm-release", "--to", "v0.28.0", "--dry-run"]) == 0
    assert file.read_text() == before
    assert "would touch 1 recipe(s)" in capsys.readouterr().out
    assert run(["recipe", "bump", "vllm-release", "--to", "vllm/vllm-openai:v0.28.0"]) == 0
    shown = capsys.readouterr().out
    assert "+    version: v0.28.0" in shown
    assert "touches 1 recipe(s): minimax-m3/vllm-b300-nvfp4" in shown
    comments = [line for line in before.splitlines() if line.startswith("#")]
    assert [line for line in file.read_text().splitlines() if line.startswith("#")] == comments
    assert run(["recipe", "bump", "vllm-relaese", "--to", "v1"]) == 1
    assert "did you mean 'vllm-release'" in capsys.readouterr().err
