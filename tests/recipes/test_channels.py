"""Channels: one image for a name in a whole run, overrides for one run, and bumps that keep comments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.documents import DocumentError, UnknownNameError
from isoline.errors import InputError
from isoline.recipes.channels import (
    Channel,
    architecture_of,
    images_for,
    load_channels,
    parse_override,
    read_channels,
    resolve_channels,
    version_in,
)
from isoline.recipes.channels_edit import bumped
from isoline.recipes.schema import Recipe

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


def channel(**changes: Any) -> Channel:
    """One channel."""
    fields = {"image": "vllm/x:{version}", "version": "v1", "source": "here", "dated": "2026-12-01"}
    return Channel.model_validate(fields | changes)


def recipe(sku: str = "b200", **image: str) -> Recipe:
    """A recipe on a channel."""
    return Recipe.model_validate(
        {
            "schema_version": 1,
            "model": "minimax-m3",
            "engine": "vllm",
            "sku": sku,
            "precision": {"weights": "nvfp4", "kv": "fp8"},
            "image": image or {"channel": "c"},
            "topologies": [{"aggregated": {"tp": 8}}],
            "scenarios": {"8k1k": {"concurrency": [1]}},
            "status": "unverified",
            "owner": "isoline",
            "upstream": "test",
        }
    )


def asked(answers: dict[tuple[str, str], str]) -> tuple[Any, list[tuple[str, str]]]:
    """A registry that knows some digests, and what it was asked."""
    questions: list[tuple[str, str]] = []

    def digest_of(ref: str, arch: str) -> str | None:
        questions.append((ref, arch))
        return answers.get((ref, arch))

    return digest_of, questions


def test_the_projects_channels_are_right(project_root: Path) -> None:
    """Every channel of the project is an image with its source and date."""
    channels = read_channels(project_root)
    assert {"vllm-release", "vllm-nightly", "sglang-release", "trtllm-release", "atom-release"} <= set(
        channels
    )
    for item in channels.values():
        assert item.source
        assert item.version in item.ref


def test_a_channel_is_resolved_once_for_each_architecture() -> None:
    """Many recipes, one question for each CPU architecture among them; the answer is pinned by digest."""
    digest_of, questions = asked({("vllm/x:v1", "amd64"): DIGEST, ("vllm/x:v1", "arm64"): OTHER})
    recipes = [recipe(), recipe("h200"), recipe("gb300-nvl72"), recipe("gb200-nvl72")]
    found = resolve_channels(recipes, {"c": channel()}, {}, digest_of)
    assert found == {"c": {"amd64": f"vllm/x:v1@{DIGEST}", "arm64": f"vllm/x:v1@{OTHER}"}}
    assert sorted(questions) == [("vllm/x:v1", "amd64"), ("vllm/x:v1", "arm64")]
    assert images_for(found, "gb300-nvl72") == {"c": f"vllm/x:v1@{OTHER}"}
    assert images_for(found, "b200") == {"c": f"vllm/x:v1@{DIGEST}"}


def test_without_a_registry_only_the_tag_is_known() -> None:
    """Nothing is made up: the reference stays without a digest, which makes the launch unresolved."""
    digest_of, _ = asked({})
    assert resolve_channels([recipe()], {"c": channel()}, {}, digest_of) == {"c": {"amd64": "vllm/x:v1"}}


def test_a_recorded_digest_is_not_asked_for() -> None:
    """What the file pins is taken from there."""
    digest_of, questions = asked({})
    found = resolve_channels([recipe()], {"c": channel(digests={"amd64": DIGEST})}, {}, digest_of)
    assert found["c"]["amd64"].endswith(DIGEST)
    assert questions == []


def test_an_override_counts_for_this_run() -> None:
    """A release candidate on all recipes of a channel; recipes with their own image are not touched."""
    digest_of, questions = asked({("me/x:rc", "amd64"): DIGEST})
    recipes = [recipe(), recipe(ref="vllm/x:v7")]
    found = resolve_channels(recipes, {"c": channel(digests={"amd64": OTHER})}, {"c": "me/x:rc"}, digest_of)
    assert found == {"c": {"amd64": f"me/x:rc@{DIGEST}"}}
    assert questions == [("me/x:rc", "amd64")]


def test_an_override_by_digest_is_not_asked_for() -> None:
    """It names one image already."""
    digest_of, questions = asked({})
    ref = f"me/x@{DIGEST}"
    assert resolve_channels([recipe()], {"c": channel()}, {"c": ref}, digest_of) == {"c": {"amd64": ref}}
    assert questions == []


def test_an_override_that_no_recipe_uses_is_a_mistake() -> None:
    """It would silently change nothing."""
    with pytest.raises(InputError, match="no selected recipe uses channel 'd'; known: c"):
        resolve_channels([recipe()], {"c": channel()}, {"d": "me/x:rc"}, lambda ref, arch: None)


def test_an_unknown_channel_is_told_with_the_nearest(tmp_path: Path) -> None:
    """In a plan and in the lint."""
    with pytest.raises(InputError, match="unknown channel 'c'; did you mean 'cc'"):
        resolve_channels([recipe()], {"cc": channel()}, {}, lambda ref, arch: None)
    with pytest.raises(UnknownNameError, match="no such channel"):
        load_channels(tmp_path)["c"]


def test_skus_with_arm_hosts() -> None:
    """Grace and Vera hosts are Arm, the others are not."""
    assert [architecture_of(sku) for sku in ("gb300-nvl72", "vr200-nvl72", "b300", "mi355x")] == [
        "arm64", "arm64", "amd64", "amd64",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "c", "c=", "=x/y:1", "c=x/y", "c=x y:1", "c=https://x/y:1", "c=x/y:1;rm"]
)
def test_wrong_overrides_are_refused(text: str) -> None:
    """CHANNEL=REF, and REF is an image with a tag or digest."""
    with pytest.raises(InputError):
        parse_override(text)


def test_a_right_override() -> None:
    """The name and the reference."""
    assert parse_override("c=ghcr.io/x/y:pr-1") == ("c", "ghcr.io/x/y:pr-1")


@pytest.mark.parametrize(
    "changes",
    [
        {"image": "vllm/x:latest"},
        {"image": "{version}/x:y"},
        {"image": "vllm/x:{version}-{version}"},
        {"version": "a b"},
        {"version": "../x"},
        {"digests": {"amd64": "sha256:1"}},
        {"digests": {"z80": DIGEST}},
        {"dated": "today"},
    ],
)
def test_wrong_channels_are_refused(changes: dict[str, Any]) -> None:
    """A pattern without version, a version that is no tag, a digest that is none."""
    with pytest.raises(ValueError):
        channel(**changes)


TEXT = """\
# Head.
schema_version: 1
channels:
  c:                      # the release
    image: "vllm/x:{version}"
    version: v1           # see the notes
    digests: {amd64: null}
    source: here
    dated: "2026-01-01"
  # Another one.
  d:
    image: "vllm/y:{version}-cu130"
    version: v9
    source: there
    dated: "2026-01-02"
"""


def test_a_bump_changes_version_and_date_alone() -> None:
    """Comments, quotes and the other channel stay; digests of the old version go."""
    after = bumped(TEXT, "c", channel(), "v2", today="2026-12-24")
    gone = [line for line in TEXT.splitlines() if line not in after.splitlines()]
    new = [line for line in after.splitlines() if line not in TEXT.splitlines()]
    assert [line.split()[0] for line in gone] == ["version:", "digests:", "dated:"]
    assert [line.strip() for line in new] == ["version: v2           # see the notes", 'dated: "2026-12-24"']


def test_a_bump_to_the_same_version_changes_nothing() -> None:
    """Byte for byte."""
    assert bumped(TEXT, "c", channel(), "v1", today="2026-12-24") == TEXT


def test_a_bump_to_a_reference_takes_its_version() -> None:
    """Where it fits the pattern."""
    assert version_in(channel(image="vllm/y:{version}-cu130"), "vllm/y:v10-cu130") == "v10"
    for ref in ("vllm/z:v10-cu130", "vllm/y:v10", "vllm/y:-cu130", f"vllm/y@{DIGEST}"):
        with pytest.raises(InputError):
            version_in(channel(image="vllm/y:{version}-cu130"), ref)


def test_a_bump_to_what_is_no_version_writes_nothing() -> None:
    """The new file is validated before anybody sees it."""
    with pytest.raises(DocumentError):
        bumped(TEXT, "c", channel(), "v 2", today="2026-12-24")
