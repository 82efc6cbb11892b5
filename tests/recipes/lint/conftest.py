"""A project with two good recipes that use everything, to be spoilt one line at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from isoline.recipes.lint import Finding
from isoline.sweeps.planning.lint import lint_recipes

AGG = "deepseek-r1-0528/sglang-b200-fp8-block"
DISAGG = "gpt-oss-120b/vllm-h200-mxfp4-disagg"
TRT = "deepseek-v4-pro/trtllm-b200-nvfp4"

RECIPES = {
    AGG: """\
schema_version: 1
model: deepseek-r1-0528
engine: sglang
sku: b200
precision: {weights: fp8-block, kv: fp8}
image: {ref: "lmsysorg/sglang:v0.5.16"}
topologies:
  - aggregated: {tp: 8}
  - aggregated: {tp: 8, ep: 8, dp_attention: 8}
server:
  args:
    kv-cache-dtype: fp8_e4m3
    context-length: 9416
    chunked-prefill-size: 16384
    max-running-requests: {expr: "2 * concurrency"}
    chat-template: "{file.plain.jinja}"
    speculative-algorithm: EAGLE
    speculative-num-steps: 3
    speculative-eagle-topk: 1
    speculative-num-draft-tokens: 4
  env: {SGLANG_ENABLE_SPEC_V2: "1"}
  when:
    - if: {concurrency: {from: 64}}
      args: {chunked-prefill-size: 32768}
sidecars:
  - name: router
    command: [vllm-router, --port, "{port.router}", --worker, "{url}"]
    ports: [router]
    order: after
    is_entry: true
    ready: /health
files: [plain.jinja]
speculative: {method: mtp, draft_tokens: 3}
launch_bands: [16, max]
scenarios:
  long: {concurrency: [4, 16, 64]}
  chat: {concurrency: [4]}
canary: facts
accuracy:
  sums: {correct_share: 0.9, n: 32, source: a test}
status: unverified
owner: isoline
upstream: a test
""",
    DISAGG: """\
schema_version: 1
model: gpt-oss-120b
engine: vllm
sku: h200
precision: {weights: mxfp4, kv: bf16}
image: {ref: "vllm/vllm-openai:v0.20.1"}
topologies:
  - prefill: {workers: 2, tp: 2}
    decode: {tp: 4}
kv_transfer: {connector: nixl}
server:
  args: {kv-cache-dtype: bfloat16, max-model-len: 9416}
roles:
  prefill:
    args: {max-num-batched-tokens: 16384}
  decode:
    args: {max-num-seqs: {expr: "max(1, concurrency / dp)"}}
scenarios:
  long: {concurrency: [8, 32]}
status: unverified
owner: isoline
upstream: a test
""",
}

OTHERS = {
    "sweeps/scenarios/long.yaml": """\
schema_version: 1
name: long
version: 1
kind: fixed_length
dataset: text
isl: 8192
osl: 1024
requests: {minimum: 10}
cache: forbid
""",
    "sweeps/scenarios/chat.yaml": """\
schema_version: 1
name: chat
version: 1
kind: trace
dataset: sessions
cache: expect
""",
    "datasets/text.yaml": """\
schema_version: 1
name: text
kind: synthetic
description: prose
license: none
made_by: a test
generator: aiperf-synthetic-chat-template
""",
    "runners/big.yaml": """\
schema_version: 1
name: big
launcher: container
sku: b200
accelerators: 8
container: {device_profile: nvidia, model_cache: /srv/models, scratch: /srv/scratch}
""",
}


def _with_file(root: Path, name: str, kind: str, lines: list[dict[str, Any]], more: str) -> None:
    import hashlib

    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    (root / "datasets" / f"{name}.jsonl").write_bytes(data)
    (root / "datasets" / f"{name}.yaml").write_text(
        f"schema_version: 1\nname: {name}\nkind: {kind}\ndescription: made\nlicense: none\nmade_by: a test\n"
        f"file: {name}.jsonl\nsha256: {hashlib.sha256(data).hexdigest()}\n{more}\n"
    )


class Project:
    """A folder of good recipes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def edit(self, file: str, old: str, new: str) -> int:
        """Replace the first ``old``, which must be there; returns the line (from 1) where ``new`` ends."""
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        return text.count("\n", 0, text.index(old)) + 1

    def spoil(self, recipe_id: str, old: str, new: str) -> int:
        """An edit of a recipe; returns its line."""
        return self.edit(f"recipes/{recipe_id}.yaml", old, new)

    def write(self, file: str, text: str) -> Path:
        """A new file."""
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def read(self, recipe_id: str) -> str:
        return (self.root / f"recipes/{recipe_id}.yaml").read_text(encoding="utf-8")

    def lint(self, *names: str) -> list[Finding]:
        """Errors and warnings, without notes."""
        return [item for item in lint_recipes(self.root, names)[1] if item.severity != "note"]

    def all(self, names: Sequence[str] = ()) -> list[Finding]:
        """With notes."""
        return lint_recipes(self.root, names)[1]


@pytest.fixture
def lint_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project, and the folder that the test stands in."""
    project = Project(tmp_path / "project")
    for recipe_id, text in RECIPES.items():
        project.write(f"recipes/{recipe_id}.yaml", text)
    for file, text in OTHERS.items():
        project.write(file, text)
    project.write(f"recipes/{AGG.split('/')[0]}/plain.jinja", "{{ messages }}\n")
    ask = [{"id": "q1", "question": "2 + 2?", "answer": "4"}]
    _with_file(project.root, "facts", "questions", ask, "max_tokens: 16")
    _with_file(project.root, "sums", "questions", ask, "max_tokens: 512")
    turns = [{"turns": [{"role": "user", "content": "hello"}]}]
    _with_file(project.root, "sessions", "multi_turn", turns, "sessions: 1\nturns: 1")
    monkeypatch.chdir(project.root)
    return project
