"""Fixtures of the load tests: the oracle server, AIPerf, a tokenizer as a hub-cache entry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SUPPORT = Path(__file__).resolve().parents[1] / "support"
STATE_AIPERF = Path(__file__).resolve().parents[2] / ".isoline" / "envs" / "aiperf" / "bin" / "aiperf"


@dataclass
class FakeServer:
    """A running oracle server."""

    url: str

    def get(self, path: str) -> str:
        """The body of a GET."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as response:
            body: bytes = response.read()
        return body.decode()

    def seen(self) -> list[dict[str, Any]]:
        """Every generation request as the server lived it."""
        found: list[dict[str, Any]] = json.loads(self.get("/oracle"))
        return found


@pytest.fixture
def fake_openai() -> Iterator[Callable[..., FakeServer]]:
    """Start oracle servers: ``fake_openai(ttft_s=0.2, ...)``; ended after the test."""
    running: list[subprocess.Popen[str]] = []

    def start(**config: Any) -> FakeServer:
        argv = [sys.executable, str(SUPPORT / "fake_openai.py"), json.dumps(config)]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        running.append(child)
        assert child.stdout is not None
        return FakeServer(f"http://127.0.0.1:{int(child.stdout.readline())}")

    yield start
    for child in running:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


@pytest.fixture(scope="session")
def aiperf_bin() -> Path:
    """The AIPerf program: ``AIPERF_BIN``, or the one that `make setup` made."""
    path = Path(os.environ.get("AIPERF_BIN") or STATE_AIPERF)
    if not path.is_file():
        if os.environ.get("CI") == "true":
            pytest.fail(f"no AIPerf at {path}: run `make setup`")
        pytest.skip("no AIPerf: run `make setup` or set AIPERF_BIN")
    return path


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small byte-level tokenizer, trained here: the load tests need no model."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|s|>", "<|e|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    words = [path.read_text(encoding="utf-8") for path in sorted(SUPPORT.glob("*.py"))]
    tokenizer.train_from_iterator(words, trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def hf_home(tokenizer_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub cache with that tokenizer as ``local/tiny``."""
    home = tmp_path_factory.mktemp("hf")
    entry, revision = home / "hub" / "models--local--tiny", "0" * 40
    snapshot = entry / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text(revision)
    (snapshot / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|e|>",
        "chat_template": "{% for m in messages %}<|s|>{{ m['role'] }} {{ m['content'] }}<|e|>{% endfor %}"
        "{% if add_generation_prompt %}<|s|>assistant {% endif %}",
    }
    (snapshot / "tokenizer_config.json").write_text(json.dumps(config))
    return home
