"""Each rule has a bad recipe at least, and says where it is wrong and how to mend it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from isoline.recipes.lint import RULES, Finding

AGG = "deepseek-r1-0528/sglang-b200-fp8-block"
DISAGG = "gpt-oss-120b/vllm-h200-mxfp4-disagg"


class Bad(NamedTuple):
    """One line of a good recipe that is spoilt: what is said of it, and where (default: that line)."""

    rule: str
    recipe: str
    old: str
    new: str
    words: str
    severity: str = "error"
    at: str = ""  # where the finding is, when it is not in the first new line: text of that line


BAD = [
    Bad("schema", AGG, "kv: fp8}", "kv: fp8, kw: 1}", "unknown key 'kw'"),
    Bad("schema", AGG, "sku: b200", "sku: b20", "unknown SKU 'b20'"),
    Bad(
        "schema",
        AGG,
        "schema_version: 1\n",
        "schema_version: 1\nextends: a/b\n",
        "unknown recipe 'a/b'",
        at="extends",
    ),
    Bad("scenario", AGG, "long: {conc", "lang: {conc", "unknown scenario 'lang'"),
    Bad("dataset", AGG, "canary: facts", "canary: fact", "unknown dataset 'fact'"),
    Bad("dataset", AGG, "sums: {", "sum: {", "unknown dataset 'sum'"),
    Bad("channel", DISAGG, '{ref: "vllm/vllm-openai:v0.20.1"}', "{channel: vlm}", "unknown channel 'vlm'"),
    Bad("files", AGG, "files: [plain.jinja]", "files: [plane.jinja, plain.jinja]", "'plane.jinja' is not in"),
    Bad(
        "files",
        AGG,
        "files: [plain.jinja]",
        "files: [../x, plain.jinja]",
        "'../x' is not in the recipe's folder",
    ),
    Bad("files", AGG, "files: [plain.jinja]", "files: [plain.jinja, plain.jinja]", "is named twice"),
    Bad("ports", AGG, "{port.router}", "{port.rooter}", "{port.rooter} is a port that no sidecar leases"),
    Bad(
        "ports",
        AGG,
        '"{port.router}"',
        '"8000"',
        "port 'router' is leased and nothing uses it",
        "warning",
        "ports:",
    ),
    Bad("placeholders", AGG, "{url}", "{urls}", "{urls} is no placeholder"),
    Bad(
        "placeholders",
        AGG,
        "{file.plain.jinja}",
        "{file.plain.txt}",
        "is a file that this recipe does not have",
    ),
    Bad(
        "placeholders",
        AGG,
        '"{file.plain.jinja}"',
        "plain",
        "file 'plain.jinja' is listed and nothing uses it",
        "warning",
        "files:",
    ),
    Bad("placeholders", AGG, "{url}", "{url.decode}", "is the address of 'decode', which is not there"),
    Bad("placeholders", AGG, "{url}", "{url.aggregated.1}", "is the address of a worker that is not there"),
    Bad("placeholders", AGG, "{url}", "{host.store}", "is the address of 'store', which is not there"),
    Bad("path", AGG, "sku: b200", "sku: h200", "should begin with 'sglang-h200-fp8-block'", at="engine:"),
    Bad("image", AGG, "lmsysorg/sglang:", "lmsys/sglang:", "repository 'lmsys/sglang' is not on the list"),
    Bad(
        "image", AGG, "sglang:v0.5.16", "sglang:latest", "the tag of lmsysorg/sglang:latest moves", "warning"
    ),
    Bad(
        "packages",
        AGG,
        "ready: /health",
        "ready: /health\n    packages: [a-b]",
        "'a-b' is no one version",
        at="[a-b]",
    ),
    Bad(
        "packages",
        AGG,
        "ready: /health",
        'ready: /health\n    packages: [a-b==1, "a_b @ git+https://h/a@main", "a_b==2"]',
        "'a_b==2', and 'a-b==1' beside it: a launch has one image for all programs",
        at="[a-b==1",
    ),
    Bad(
        "schema", AGG, "ready: /health", "ready: /health\n    packages: [--pre]", "should match", at="[--pre"
    ),
    Bad("devices", AGG, "{tp: 8}", "{tp: 12}", "a worker takes 12 devices"),
    Bad(
        "devices",
        AGG,
        "{tp: 8}",
        "{workers: 2, tp: 8}",
        "the largest pool of b200 gives a launch 8",
        "warning",
    ),
    Bad(
        "divides", AGG, "{tp: 8}", "{tp: 6}", "128 attention heads of deepseek-r1-0528 cannot be split 6 ways"
    ),
    Bad(
        "divides",
        DISAGG,
        "decode: {tp: 4}",
        "decode: {tp: 8, dcp: 1, ep: 4}",
        "all 8 devices of a stage or none",
    ),
    Bad("divides", AGG, "ep: 8,", "ep: 6,", "256 experts of deepseek-r1-0528 do not divide by ep 6"),
    Bad("divides", AGG, "{tp: 8}", "{tp: 1, pp: 64}", "61 layers cannot make 64 pipeline stages"),
    Bad(
        "context",
        AGG,
        "context-length: 9416",
        "context-length: 9000",
        "a request takes 9216 tokens, the context has 9000",
    ),
    Bad(
        "context",
        DISAGG,
        "max-model-len: 9416",
        "max-model-len: 8k",
        "a request takes 9216 tokens, the context has 8000",
        at="max-model-len",
    ),
    Bad(
        "context",
        AGG,
        "sums: {",
        "big: {",
        "answers of accuracy task big take up to 20000",
        at="context-length",
    ),
    Bad("memory", AGG, "{tp: 8}", "{tp: 2}", "does not fit: weights 336"),
    Bad(
        "flags",
        AGG,
        "chunked-prefill-size: 16384",
        "chunked-prefil-size: 16384",
        "has no argument 'chunked-prefil-size'",
        "warning",
    ),
    Bad(
        "flags",
        AGG,
        "chunked-prefill-size: 16384",
        "chunked-prefill-size: many",
        "takes a whole number",
        "warning",
    ),
    Bad(
        "owned",
        AGG,
        "chunked-prefill-size: 32768",
        "tensor-parallel-size: 4",
        "says the topology a second time",
        at="tensor",
    ),
    Bad("owned", AGG, "chunked-prefill-size: 32768", "port: 4", "is set by Isoline itself", at="port: 4"),
    Bad(
        "kv-precision", AGG, "kv: fp8}", "kv: bf16}", "the server gets kv-cache-dtype fp8_e4m3", at="kv-cache"
    ),
    Bad("kv-precision", AGG, "fp8_e4m3", "fp7", "what kv-cache-dtype fp7 means is not known", "warning"),
    Bad("kv-precision", DISAGG, "kv: bf16}", "kv: auto}", "auto is no exact precision", "warning"),
    Bad(
        "acceptance",
        AGG,
        'SPEC_V2: "1"',
        'SPEC_V2: "1", SGLANG_SIMULATE_ACC_LEN: "3"',
        "SGLANG_SIMULATE_ACC_LEN forces",
    ),
    Bad(
        "acceptance",
        DISAGG,
        "{kv-cache-dtype: bfloat16,",
        "{speculative-config: {method: mtp, synthetic_acceptance_length: 2.4}, kv-cache-dtype: bfloat16,",
        "synthetic_acceptance_length forces the acceptance of drafts",
    ),
    Bad(
        "acceptance",
        AGG,
        "draft_tokens: 3}",
        "draft_tokens: 31, acceptance: pinned}",
        "no golden acceptance length",
    ),
    Bad(
        "acceptance",
        AGG,
        "draft_tokens: 3}",
        "draft_tokens: 3, acceptance: pinned, pinned_as: rate}",
        "no golden acceptance length for deepseek-r1-0528",
    ),
    Bad(
        "speculative",
        AGG,
        "speculative: {method: mtp, draft_tokens: 3}\n",
        "",
        "but the recipe says none",
        at="schema_version",
    ),
    Bad(
        "speculative", AGG, "draft_tokens: 3}", "draft_tokens: 2}", "draft_tokens is 2, the arguments draft 3"
    ),
    Bad(
        "speculative",
        DISAGG,
        "kv_transfer:",
        "speculative: {method: mtp, draft_tokens: 2}\nkv_transfer:",
        "no argument turns it on",
        at="speculative",
    ),
    Bad(
        "offload",
        AGG,
        "chunked-prefill-size: 16384",
        "enable-hierarchical-cache: true",
        "but kv_offload says none",
        at="schema_version",
    ),
    Bad(
        "slots",
        AGG,
        '"2 * concurrency"',
        "concurrency / 2",
        "16 requests are in flight, the server takes 8 at once: max-running-requests 8",
        "warning",
    ),
    Bad(
        "slots",
        DISAGG,
        "max(1, concurrency / dp)",
        "concurrency / 4",
        "8 requests are in flight, the server takes 2 at once: max-num-seqs 2",
        "warning",
    ),
    Bad("bands", AGG, "[16, max]", "[16, 32]", "concurrency 64 lies above the last band, 32"),
    Bad("bands", AGG, "[16, max]", "[2, max]", "no concurrency lies in the band 1 to 2", "warning"),
    Bad(
        "bands",
        DISAGG,
        'args: {max-num-seqs: {expr: "max(1, concurrency / dp)"}}',
        "args: {max-num-seqs: 8}\nlaunch_bands: [max]",
        "no argument depends on the concurrency",
        "warning",
        "launch_bands",
    ),
    Bad(
        "conditions",
        AGG,
        '--worker, "{url}"',
        '--worker, "{url}", {if: {concurrency: {from: 65}}, words: [--large]}',
        "this condition never holds",
        "warning",
    ),
    Bad(
        "expressions",
        AGG,
        '--worker, "{url}"',
        '--worker, "{url}", {expr: isl}',
        "'isl' has no value for tp8, chat at concurrency 4",
    ),
    Bad("conditions", AGG, "{from: 64}", "{from: 65}", "this condition never holds", "warning"),
    Bad(
        "expressions",
        AGG,
        '"2 * concurrency"',
        '"2 * isl"',
        "'2 * isl' has no value for tp8, chat at concurrency 4",
    ),
    Bad(
        "expressions",
        DISAGG,
        "max(1, concurrency / dp)",
        "concurrency - 8",
        "gives 0 for p2xtp2_dtp4, decode, long",
        "warning",
    ),
    Bad("expressions", DISAGG, "max(1, concurrency / dp)", "dram_gb / 2", "dram_gb is not known here"),
    Bad(
        "topologies",
        AGG,
        "long: {concurrency: [4, 16, 64]}\n  chat: {concurrency: [4]}",
        "long: {concurrency: {tp8: [4, 16, 64]}}",
        "no scenario lists a concurrency for topology tp8-ep8-dpa8",
        "warning",
        "dp_attention",
    ),
    Bad("danger", AGG, 'SPEC_V2: "1"', 'SPEC_V2: "$(id)"', "is shell syntax"),
    Bad("danger", AGG, "[vllm-router,", "[bash, -c,", "'bash' runs other programs"),
]


def expected_line(project: Any, bad: Bad, line: int) -> int:
    if not bad.at:
        return line
    text = project.read(bad.recipe)
    return text.count("\n", 0, text.index(bad.at)) + 1


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.rule}-{bad.words[:24]}")
def test_a_bad_recipe_is_told(lint_project: Any, bad: Bad) -> None:
    """Each spoilt line gives the finding of its rule with file, line, what is wrong and how to mend it."""
    if bad.new.startswith("big"):
        text = (lint_project.root / "datasets/sums.yaml").read_text()
        lint_project.write(
            "datasets/big.yaml", text.replace("name: sums", "name: big").replace("512", "20000")
        )
    line = lint_project.spoil(bad.recipe, bad.old, bad.new)
    found = [item for item in lint_project.lint() if item.rule == bad.rule and bad.words in item.what]
    assert found, [item.text() for item in lint_project.lint()]
    assert found[0].severity == bad.severity
    assert (found[0].file, found[0].line) == (
        f"recipes/{bad.recipe}.yaml",
        expected_line(lint_project, bad, line),
    )
    assert len(found[0].mend) > 5
    assert found[0].text().startswith(f"recipes/{bad.recipe}.yaml:{found[0].line}: ")
    assert (f": {bad.severity}: " in found[0].text()) == (bad.severity != "error")


def test_no_rule_is_without_a_bad_recipe() -> None:
    """A rule that no recipe breaks is a rule that nobody has seen work."""
    shown = {bad.rule for bad in BAD} | {
        "chat-template",
        "same-point",
        "stray",
    }  # those have tests of their own
    assert sorted(set(RULES) - shown) == []


def test_the_good_recipes_are_good(lint_project: Any) -> None:
    """Nothing is said of recipes that are right, but what their memory is estimated at."""
    assert lint_project.lint() == []
    notes = lint_project.all()
    assert {item.rule for item in notes} == {"memory"}
    assert any("weights 83.9 + KV 0.162 of 192 GB a device" in item.what for item in notes)


def test_every_rule_says_what_it_checks() -> None:
    """The table of rules reads well: each row has its name and a sentence."""
    for name, rule in RULES.items():
        assert rule.name == name
        assert len(rule.checks) > 20
        assert rule.severity in ("error", "warning")


def test_two_recipes_with_the_same_points(lint_project: Any) -> None:
    """Two files whose servers are equal make one point under two names: told once, at the scenario."""
    text = (
        lint_project.read(AGG)
        .replace("[4, 16, 64]", "[4, 16]")
        .replace("status: unverified", "status: verified")
    )
    lint_project.write(f"recipes/{AGG}-copy.yaml", text)
    found = [item for item in lint_project.lint() if item.rule == "same-point"]
    assert [(item.file, item.what) for item in found] == [
        (f"recipes/{AGG}-copy.yaml", f"the same points as {AGG}: long at concurrency 4, 16"),
        (f"recipes/{AGG}-copy.yaml", f"the same points as {AGG}: chat at concurrency 4"),
    ]
    # Asked about one file only, it is compared with all the others.
    assert [item.rule for item in lint_project.lint(AGG)] == ["same-point", "same-point"]
    assert lint_project.lint(DISAGG) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("context-length: 9416", "context-length: 9417"),
        ('SPEC_V2: "1"', 'SPEC_V2: "0"'),
        ("v0.5.16", "v0.5.15"),
        ('"{url}"', '"{url}", --x'),
        ("kv: fp8}", "kv: fp8}\nfeatures: {two_batch_overlap: true}"),
    ],
)
def test_what_makes_another_point(lint_project: Any, old: str, new: str) -> None:
    """Another argument, variable, image, sidecar or feature is another point."""
    lint_project.write(f"recipes/{AGG}-copy.yaml", lint_project.read(AGG).replace(old, new, 1))
    assert [item.text() for item in lint_project.lint() if item.rule == "same-point"] == []


def test_stray_files(lint_project: Any) -> None:
    """A file that somebody wrote as a recipe, and that is not read as one, is told."""
    lint_project.write("recipes/gpt-oss-120b/x.yml", lint_project.read(DISAGG))
    (found,) = lint_project.lint()
    assert (found.rule, found.where) == ("stray", "recipes/gpt-oss-120b/x.yml")
    assert lint_project.lint(DISAGG) == []


def test_chat_template(lint_project: Any) -> None:
    """Drafts are accepted as in use only behind a chat template: of the dataset, and of the model."""
    lint_project.edit("datasets/text.yaml", "aiperf-synthetic-chat-template", "plain-words")
    (found,) = lint_project.lint(AGG)
    assert (found.rule, found.severity) == ("chat-template", "error")
    assert "long sends prompts without a chat template" in found.what


def test_a_wrong_file_that_a_recipe_needs(lint_project: Any) -> None:
    """A mistake in a scenario, or in a dataset's bytes, is told in that file, once for all recipes."""
    line = lint_project.edit("sweeps/scenarios/long.yaml", "osl: 1024", "osl: many")
    (found,) = lint_project.lint()
    assert (found.rule, found.where) == ("scenario", f"sweeps/scenarios/long.yaml:{line}")
    lint_project.edit("sweeps/scenarios/long.yaml", "osl: many", "osl: 1024")
    (lint_project.root / "datasets/facts.jsonl").write_text("{}\n")
    (found,) = lint_project.lint()
    assert found.file == "datasets/facts.yaml"
    assert "has sha256" in found.what


def test_requests_that_must_wait_are_a_warning(lint_project: Any) -> None:
    """A server runs with fewer requests at once than are sent; at the smallest it must fit."""
    lint_project.spoil(DISAGG, "[8, 32]", "[8, 8192]")
    assert lint_project.lint(DISAGG) == []
    lint_project.spoil(DISAGG, "decode: {tp: 4}", "decode: {tp: 4}\n  - {prefill: {tp: 1}, decode: {tp: 2}}")
    lint_project.spoil(DISAGG, "[8, 8192]", "{p2xtp2_dtp4: [8], ptp1_dtp2: [8192]}")
    (found,) = lint_project.lint(DISAGG)
    assert (found.rule, found.severity) == ("memory", "warning")
    assert "not all requests fit at once" in found.what
    lint_project.spoil(DISAGG, "p2xtp2_dtp4: [8]", "p2xtp2_dtp4: [8192]")
    assert {item.severity for item in lint_project.lint(DISAGG)} == {"error"}


def test_unknown_memory_is_a_warning(lint_project: Any) -> None:
    """A SKU whose memory nobody has written down is no error: that it is unknown is said."""
    facts = "{name: New, vendor: Any, devices_per_node: 8}"
    lint_project.write("recipes/_catalog/skus.yaml", f"schema_version: 1\nskus:\n  new: {facts}\n")
    text = lint_project.read(AGG).replace("sku: b200", "sku: new")
    lint_project.write("recipes/deepseek-r1-0528/sglang-new-fp8-block.yaml", text)
    (found,) = lint_project.lint("deepseek-r1-0528/sglang-new-fp8-block")
    assert (found.rule, found.severity) == ("memory", "warning")
    assert "usable memory of the SKU unknown" in found.what
    assert "source" in found.mend


def test_each_mistake_is_told_once(lint_project: Any) -> None:
    """What is wrong for each of six launches is one line."""
    lint_project.spoil(AGG, "context-length: 9416", "context-length: 100")
    found = lint_project.lint(AGG)
    assert [item.rule for item in found] == ["context", "context"]  # the scenario and the accuracy task


def test_notes_are_no_findings(lint_project: Any) -> None:
    """A finding is a value: two equal ones are one, and its text is one line."""
    one = Finding("x", "error", "a", 1, "what\nis it", "mend")
    assert one == Finding("x", "error", "a", 1, "what\nis it", "mend")
    assert one.text() == "a:1: what is it; mend [x]"
