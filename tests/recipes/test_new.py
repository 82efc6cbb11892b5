"""Day-0 recipes: what the catalog knows is not asked, what was assumed is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from isoline.catalog.facts import load_catalog
from isoline.errors import InputError
from isoline.recipes.channels import load_channels
from isoline.recipes.imports.common import problem_of
from isoline.recipes.new import MAX_LINES, Wish, default_topology, skeleton
from isoline.sweeps.planning.lint import lint_recipes


@pytest.fixture
def channels(project_root: Path) -> dict[str, str]:
    """The project's channels."""
    return load_channels(project_root)


WISHES = [
    Wish(model, engine, sku, precision)
    for model, precision in (
        ("minimax-m3", "nvfp4"), ("deepseek-v4-pro", "mxfp4"), ("kimi-k3", "mxfp4"),
        ("llama-3.3-70b-instruct", "fp8"), ("gpt-oss-120b", "mxfp4"), ("qwen3.5-397b-a17b", "fp8-block"),
    )
    for engine, skus in (("vllm", ("h100", "b300", "mi355x")), ("sglang", ("h200",)), ("trtllm", ("b200",)))
    for sku in skus
]  # fmt: skip


@pytest.mark.parametrize("wish", WISHES, ids=lambda wish: f"{wish.model}-{wish.engine}-{wish.sku}")
def test_a_skeleton_is_short_and_right(wish: Wish, channels: dict[str, str]) -> None:
    """At most 40 lines, a recipe of the schema, and its name says what is in it."""
    draft = skeleton(wish, channels)
    assert problem_of(draft) is None
    assert len(draft.text().splitlines()) <= MAX_LINES
    assert draft.recipe_id == f"{wish.model}/{wish.engine}-{wish.sku}-{wish.precision}"
    assert draft.tree["status"] == "unverified"
    assert any(line.startswith("Topology: ") for line in draft.head)


def test_the_topology_is_the_smallest_that_holds_the_weights() -> None:
    """Weights over tp are at most the stated share of a device; half the devices would be too few."""
    catalog = load_catalog()
    model, sku = catalog.models["deepseek-v4-pro"], catalog.skus["h200"]
    checkpoint = next(iter(model.checkpoints_at("mxfp4").values()))
    choice = default_topology("vllm", "mxfp4", model, checkpoint, sku)
    size = checkpoint.bytes or (checkpoint.size_gb or 0) * 1e9
    memory = sku.memory_bytes or 0
    assert size / choice.role.tp <= memory * 0.85
    assert size / (choice.role.tp / 2) > memory * 0.85
    assert "smallest tp" in choice.why


def test_a_model_of_unknown_size_gets_one_node() -> None:
    """The assumption is said."""
    catalog = load_catalog()
    model = catalog.models["llama-3.3-70b-instruct"].model_copy(update={"parameters_total": None})
    choice = default_topology("vllm", "fp8", model, None, catalog.skus["b200"])
    assert choice.role.gpus == 8
    assert "one node" in choice.why
    assert "parameters unknown" in choice.why


def test_what_fits_no_node_is_spread_over_stages() -> None:
    """More nodes as pipeline stages, and why."""
    catalog = load_catalog()
    model = catalog.models["kimi-k3"].model_copy(update={"parameters_total": 10**13})
    choice = default_topology("vllm", "mxfp4", model, None, catalog.skus["h100"])
    assert choice.role.pp > 1
    assert "fit no single node" in choice.why


def test_the_kv_cache_is_told_to_the_engine(channels: dict[str, str]) -> None:
    """The precision stands in the arguments (or the configuration file), as the engine spells it."""
    asked = skeleton(Wish("minimax-m3", "vllm", "b300", "nvfp4", kv="fp8"), channels)
    assert asked.tree["precision"]["kv"] == "fp8"
    assert asked.tree["server"]["args"]["kv-cache-dtype"] in ("fp8", "fp8_e4m3")
    in_file = skeleton(Wish("minimax-m3", "trtllm", "b200", "nvfp4", kv="fp8"), channels)
    assert in_file.tree["server"]["config_files"]["config.yaml"] == {"kv_cache_config": {"dtype": "fp8"}}


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish("minimax-m3", "vllm", "b300", "q2"), "is not known at 'q2', only"),
        (Wish("minimax-m3", "vllm", "b300", "nvfp4", kv="q2"), "has no KV cache of q2; known"),
        (Wish("minimax-m3", "llm-d", "b300", "nvfp4"), "no channel is known for llm-d on b300"),
        (Wish("minimax-m3", "vllm", "vr200-nvl72", "nvfp4"), "no public statement of support was found"),
        (Wish("minimax-m3", "atom", "b300", "nvfp4"), "no channel is known for atom on b300"),
    ],
)
def test_what_is_not_known_is_told(wish: Wish, words: str, channels: dict[str, str]) -> None:
    """One line with what is missing and what to say."""
    with pytest.raises(InputError) as caught:
        skeleton(wish, channels)
    assert words in caught.value.line()


def test_an_image_can_be_asked_for(channels: dict[str, str]) -> None:
    """A channel by its name, anything else as a reference."""
    by_name = skeleton(Wish("minimax-m3", "vllm", "b300", "nvfp4", image="vllm-nightly"), channels)
    assert by_name.tree["image"] == {"channel": "vllm-nightly"}
    by_ref = skeleton(Wish("minimax-m3", "llm-d", "b300", "nvfp4", image="ghcr.io/llm-d/x:v1"), channels)
    assert by_ref.tree["image"] == {"ref": "ghcr.io/llm-d/x:v1"}


def test_amd_gets_the_rocm_channel(channels: dict[str, str]) -> None:
    """The image is that of the vendor."""
    draft = skeleton(Wish("gpt-oss-120b", "vllm", "mi355x", "mxfp4"), channels)
    assert draft.tree["image"] == {"channel": "vllm-release-rocm"}


def test_every_engine_on_every_sku_passes_the_whole_lint(project_root: Path, tmp_path: Path) -> None:
    """A skeleton of any engine for any SKU has no error in any rule; where there is none, it is said why."""
    for name in ("recipes/channels.yaml", "sweeps/scenarios/8k1k.yaml", "datasets"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        source = project_root / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
    shutil.copytree(project_root / "runners/examples", tmp_path / "runners")
    channels, catalog = load_channels(project_root), load_catalog()
    made: dict[str, Wish] = {}
    refused: dict[tuple[str, str], str] = {}
    for model, precision in (("qwen3.5-397b-a17b", "fp8-block"), ("llama-3.3-70b-instruct", "fp8")):
        for engine, facts in catalog.engines.items():
            for sku in catalog.skus:
                image = "ghcr.io/llm-d/llm-d-cuda:v0.5.0" if facts.backend else None
                try:
                    draft = skeleton(Wish(model, engine, sku, precision, image=image), channels)
                except InputError as error:
                    refused[engine, sku] = error.line()
                    continue
                made[draft.recipe_id] = Wish(model, engine, sku, precision)
                path = tmp_path / f"recipes/{draft.recipe_id}.yaml"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(draft.text(), encoding="utf-8")
                assert len(draft.text().splitlines()) <= MAX_LINES
    ids, findings = lint_recipes(tmp_path, [])
    assert sorted(ids) == sorted(made)
    assert [item.text() for item in findings if item.severity == "error"] == []
    assert len(made) > 100
    assert {why for why in refused.values() if "no channel is known" not in why} == set()
    ready = {(wish.engine, wish.sku) for wish in made.values()}
    assert {sku for engine, sku in ready if engine == "atom"} == {"mi300x", "mi325x", "mi355x"}
    assert not {"vr200-nvl72", "mi455x", "tpu-v7x"} & {
        sku for engine, sku in ready if engine in ("vllm", "trtllm")
    }
    assert "Rubin support is a preview" in refused["trtllm", "vr200-nvl72"]
