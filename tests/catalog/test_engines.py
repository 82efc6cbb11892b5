"""Engines: spellings of arguments, settings for speculation and acceptance, and what is inherited."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoline.catalog.engines import Settings
from isoline.catalog.facts import load_catalog
from isoline.catalog.topology import Layout
from isoline.errors import InputError

RECORDED = json.loads((Path(__file__).parent / "recorded_names.json").read_text())
PARALLEL = ["vllm", "sglang", "trtllm", "atom", "dynamo-trtllm", "dynamo-vllm", "llm-d", "sglang-disagg"]


@pytest.mark.parametrize(
    ("engine", "spelling", "name"),
    [
        ("sglang", "--tp", "tensor-parallel-size"),
        ("sglang", "--tp-size", "tensor-parallel-size"),
        ("sglang", "tp_size", "tensor-parallel-size"),
        ("sglang", "--model", "model-path"),
        ("sglang", "--ep", "expert-parallel-size"),
        ("vllm", "-tp", "tensor-parallel-size"),
        ("vllm", "--max_num_batched_tokens", "max-num-batched-tokens"),
        ("vllm", "--no-enable-prefix-caching", "no-enable-prefix-caching"),
        ("vllm", "--attention_config.use_fp4_indexer_cache", "attention-config.use_fp4_indexer_cache"),
        ("vllm", "-cc.pass_config.fuse_allreduce_rms", "compilation-config.pass_config.fuse_allreduce_rms"),
        ("trtllm", "--tp_size", "tp_size"),
        ("trtllm", "--extra_llm_api_options", "config"),
        ("atom", "-tp", "tensor-parallel-size"),
        ("atom", "--kv-cache-dtype", "kv_cache_dtype"),
        ("atom", "--no-enable-prefix-caching", "no-enable_prefix_caching"),
        ("dynamo-sglang", "dp-size", "data-parallel-size"),
        ("llamacpp", "--ctx-size", "ctx-size"),
    ],
)
def test_one_name_for_all_spellings(engine: str, spelling: str, name: str) -> None:
    """However an argument is spelled, it has one canonical name; that name is its own canonical name."""
    item = load_catalog().engines[engine]
    assert item.canonical(spelling) == name
    assert item.canonical(name) == name


def test_known_flags_are_canonical() -> None:
    """Every collected flag stands under its canonical name, or it would be missed when it is looked up."""
    catalog = load_catalog()
    for key in ("vllm", "sglang", "atom", "trtllm"):
        flags = catalog.known_flags(key)
        assert flags is not None
        for name, flag in flags.flags.items():
            assert flag.file or catalog.engines[key].canonical(name) == name


def test_flags_tell_the_releases_they_were_seen_in() -> None:
    """A flag has the first and last release of its use; a worker of Dynamo knows its engine's flags too."""
    catalog = load_catalog()
    vllm, dynamo = catalog.known_flags("vllm"), catalog.known_flags("dynamo-vllm")
    assert vllm is not None and dynamo is not None
    assert vllm.flags["block-size"].seen == ["0.20.1", "0.27.1"] and vllm.flags["block-size"].takes == "int"
    assert vllm.flags["speculative-config"].takes == "json"
    assert not vllm.complete
    assert set(dynamo.flags) == set(vllm.flags) | {
        "disaggregation-mode",
        "dyn-default-thinking-mode",
        "dyn-reasoning-parser",
        "dyn-tool-call-parser",
    }
    assert catalog.known_flags("llm-d") is vllm
    assert catalog.known_flags("nothing") is None


def test_recorded_layouts_are_read_as_declared() -> None:
    """The layouts of all recorded commands and workers come out of their arguments."""
    engines = load_catalog().engines
    assert len(RECORDED["layouts"]) > 100
    for row in RECORDED["layouts"]:
        spelling = engines[row["engine"]].topology
        assert spelling is not None
        assert list(spelling.read(row["args"])) == row["layout"], row


def test_recorded_layouts_are_written_as_recorded() -> None:
    """The arguments for a recorded layout are the recorded ones, but for those that say a default."""
    engines = load_catalog().engines
    for row in RECORDED["layouts"]:
        spelling = engines[row["engine"]].topology
        assert spelling is not None
        written = spelling.args(Layout(*row["layout"]))
        said = {
            name: value for name, value in row["args"].items() if value is True or value not in (1, 0, None)
        }
        implied = said.pop(spelling.ep_implied_by, None) if spelling.ep_implied_by else None
        if implied is not None and spelling.ep is not None:
            written.pop(spelling.ep, None)
            said.pop(spelling.ep, None)
        if written.get(spelling.tp) == 1:
            written.pop(spelling.tp)
        if row["layout"][0] == 1:
            said.pop(spelling.dp_switch, None)  # attention split one way is not split
        assert written == said, row


@given(
    engine=st.sampled_from(PARALLEL),
    tp=st.sampled_from([1, 2, 4, 8, 16]),
    pp=st.sampled_from([1, 2]),
    dp=st.sampled_from([1, 2, 4, 8]),
    ep=st.sampled_from([1, 2, 4, 8, 16]),
    dcp=st.sampled_from([1, 2]),
)
def test_what_is_written_is_read_back(engine: str, tp: int, pp: int, dp: int, ep: int, dcp: int) -> None:
    """A layout that an engine can be told comes back out of its arguments; any other one is refused."""
    spelling = load_catalog().engines[engine].topology
    assert spelling is not None
    if tp % dp:
        return
    layout = Layout(tp, pp, ep, dp, dcp)
    try:
        args = spelling.args(layout)
    except InputError:
        return
    assert spelling.read(args) == layout
    assert set(args) <= spelling.names


@pytest.mark.parametrize(
    ("engine", "layout", "what"),
    [
        ("vllm", Layout(8, ep=4), "spread over all 8"),
        ("sglang", Layout(8, dcp=2), "no argument for dcp 2"),
        ("trtllm", Layout(8, dp_attention=4), "as wide as tp"),
        ("atom", Layout(8, pp=2), "no argument for pp 2"),
    ],
)
def test_layouts_that_cannot_be_told_are_refused(engine: str, layout: Layout, what: str) -> None:
    """An engine that has no way to be told a layout is not told another one."""
    spelling = load_catalog().engines[engine].topology
    assert spelling is not None
    with pytest.raises(InputError, match=what):
        spelling.args(layout)


def test_sizes_that_are_no_numbers_are_refused() -> None:
    """A size that is text is an error, not 1."""
    spelling = load_catalog().engines["vllm"].topology
    assert spelling is not None
    with pytest.raises(InputError, match="not a number"):
        spelling.read({"tensor-parallel-size": "many"})


def test_attention_ranks_are_spelled_three_ways() -> None:
    """DP attention over 8 devices: vLLM is TP 1 x DP 8, SGLang TP 8 with a switch, TensorRT-LLM a switch."""
    engines = load_catalog().engines
    layout = Layout(8, ep=8, dp_attention=8)
    spelled = {key: engines[key].topology for key in ("vllm", "sglang", "trtllm")}
    args = {key: item.args(layout) for key, item in spelled.items() if item is not None}
    assert args["vllm"] == {
        "tensor-parallel-size": 1,
        "data-parallel-size": 8,
        "enable-expert-parallel": True,
    }
    assert args["sglang"] == {
        "tensor-parallel-size": 8,
        "expert-parallel-size": 8,
        "data-parallel-size": 8,
        "enable-dp-attention": True,
    }
    assert args["trtllm"] == {"tp_size": 8, "ep_size": 8, "enable_attention_dp": True}


def test_acceptance_is_pinned_in_the_engines_own_count() -> None:
    """vLLM, SGLang and ATOM count the target's token, TensorRT-LLM does not: 2.49 becomes 1.49 there."""
    engines = load_catalog().engines
    pinned = {key: engines[key].pinned(2.49) for key in ("vllm", "sglang", "trtllm", "atom", "llamacpp")}
    assert pinned["vllm"] == Settings(
        args={
            "speculative-config": {
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_length": 2.49,
            }
        }
    )
    assert pinned["sglang"] is not None and pinned["sglang"].env["SGLANG_SIMULATE_ACC_LEN"] == "2.49"
    assert pinned["trtllm"] == Settings(env={"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1.49"})
    assert pinned["atom"] == Settings(args={"spec-decode-acceptance-length": 2.49})
    assert pinned["llamacpp"] is None


def test_drafting_is_asked_for_in_the_engines_own_words() -> None:
    """Three drafted tokens: SGLang verifies four; a method that an engine lacks is None."""
    engines = load_catalog().engines
    sglang, vllm = engines["sglang"].speculative("mtp", 3), engines["vllm"].speculative("eagle3", 3, "a/b")
    assert sglang == Settings(
        args={
            "speculative-algorithm": "EAGLE",
            "speculative-num-steps": 3,
            "speculative-eagle-topk": 1,
            "speculative-num-draft-tokens": 4,
        }
    )
    assert vllm is not None
    assert vllm.args == {
        "speculative-config": {"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3}
    }
    assert engines["sglang"].speculative("dspark", 3) is None
    assert engines["llamacpp"].speculative("mtp", 1) is None


def test_placeholders_keep_types_and_text() -> None:
    """A value that is one placeholder keeps its type, one in a text is put in, an unknown one stays."""
    filled = Settings(
        args={"a": "{n}", "b": ["x{n}", {"c": "{n}"}], "d": "{other}"}, env={"E": "{n}"}
    ).filled({"n": 3})
    assert filled == Settings(args={"a": 3, "b": ["x3", {"c": 3}], "d": "{other}"}, env={"E": "3"})


def test_workers_inherit_what_they_do_not_say() -> None:
    """Dynamo's worker has its engine's spelling, metrics and reset, its own command, and no process start."""
    engines = load_catalog().engines
    worker = engines["dynamo-vllm"]
    assert worker.flag_style == engines["vllm"].flag_style
    assert worker.cache_reset == engines["vllm"].cache_reset
    assert worker.owned_args == engines["vllm"].owned_args
    assert worker.container is not None and worker.container.command[:3] == ["python3", "-m", "dynamo.vllm"]
    assert engines["dynamo-trtllm"].topology != engines["trtllm"].topology
    assert worker.process is None and engines["atom-disagg"].container is None


def test_owned_arguments_are_in_the_commands() -> None:
    """A command fills only the placeholders that launchers know."""
    known = {"model_path", "model_alias", "host", "port", "scratch", "file.config.yaml"}
    for engine in load_catalog().engines.values():
        commands = list(engine.container.commands.values()) if engine.container else []
        spread = engine.multi_node.command if engine.multi_node else None
        for words in [*commands, *([spread] if spread else [])]:
            assert {name for word in words for name in re.findall(r"\{([^}]+)\}", word)} <= known, engine.name
            assert words[0] in ("vllm", "python3", "mpirun", "trtllm-llmapi-launch")
