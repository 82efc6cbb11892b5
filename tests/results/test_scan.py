"""What must not be public is found in a text; what the tables hold in good faith is not."""

from __future__ import annotations

import pytest

from isoline.results.publishing.scan import Scanner

MARKED = "sk-" + "a1B2" * 8


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("see /mnt/somebody/logs/x.log", "a path of a machine"),
        ("weights in /mnt/nfs/models", "a path of a machine"),
        ("(/tmp)", "a path of a machine"),
        ("path=/weka/pool7/run", "a path of a machine"),
        ("~/bench/out", "a path of a machine"),
        ("D:\\bench\\somebody", "a path of a machine"),
        ("\\\\nas\\share", "a path of a machine"),
        ("file:///x", "a path of a machine"),
        ("ask some.body@company.example", "an e-mail address"),
        ("ran on 10.1.22.3", "a host"),
        ("http://node7.internal:8000/v1", "a host"),
        ("worker3.gpu.corp", "a host"),
        ("root@node1", "a host"),
        ("ip-10-2-3-4", "a host"),
        ("fe80::1ff:fe23:4567:890a", "a host"),
        ("00:1a:2b:3c:4d:5e", "a host"),
        ("the DGX-Seven was busy", "a host"),
        ("hf_" + "a1B2" * 6, "a secret"),
        (MARKED, "a secret"),
        ("ghp_" + "a1B2" * 6, "a secret"),
        ("AKIA" + "ABCD" * 4, "a secret"),
        ("HF_TOKEN: xyz12345", "a secret"),
        ("password=hunter22", "a secret"),
        ("Authorization: Bearer abcdefghijkl", "a secret"),
        ("https://me:hidden@x/y", "a secret"),
        ("eyJhbGciOi.eyJzdWIiOi.abc", "a secret"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "a secret"),
        ("aGVsbG8gd29ybGQgdGhpcyBpcyBhIHNlY3JldCBrZXkx", "a secret"),
    ],
)
def test_what_is_found(text: str, what: str) -> None:
    """Paths, hosts, addresses and secrets are found wherever they stand in a text."""
    assert what in {hit.what for hit in Scanner(["dgx-seven"]).hits(text)}


@pytest.mark.parametrize(
    "text",
    [
        "smollm2-135m.llamacpp-cpu-q4_1.tp1.demo-short.c1.r1.0cc8379521",
        "deepseek-r1-0528",
        "meta-llama/Llama-3.1-8B-Instruct",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8-Long-Name1",
        "vllm/vllm-openai@sha256:" + "ab" * 32,
        "ab" * 32,
        "20261201T020000Z-nightly-a1b2c3",
        "import-inferencex-sa_root",
        "0.13.0.dev1+g123abc",
        "2026-12-01T02:00:00Z",
        "p2xtp4-ep4_dtp8-ep8-dpa8",
        "tokens/s/user",
        "tokens: 128",
        "1/2 of the requests",
        "a / b",
        "its image is known by a tag only: nobody can say what answered",
        "accuracy not run here, and not passed at concurrency 4",
        "see https://github.com/owner/name/issues/3",
    ],
)
def test_what_is_no_find(text: str) -> None:
    """Ids, names, digests, times and sentences of the tables pass."""
    assert Scanner(["dgx-seven", "root", "abc"]).hits(text) == []


def test_versions_with_four_numbers_pass_as_versions() -> None:
    """1.2.3.4 is an address, except where a version stands."""
    assert Scanner().hits("1.2.3.4")
    assert not Scanner().hits("1.2.3.4", is_version=True)


def test_what_was_looked_at_is_allowed_by_itself_alone() -> None:
    """An allowed piece passes, the same text with another one does not."""
    scanner = Scanner(allowed=["node7.corp"])
    assert not scanner.hits("ran on node7.corp")
    assert [hit.text for hit in scanner.hits("ran on node7.corp and node8.corp")] == ["node8.corp"]


def test_a_secret_is_not_shown() -> None:
    """A message about a secret must not spread it."""
    (hit,) = Scanner().hits(MARKED)
    assert hit.shown == "sk-a… (35 characters)"
