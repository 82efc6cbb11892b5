"""What the imports share: names, files and the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from isoline.catalog.documents import DocumentError
from isoline.errors import InputError
from isoline.recipes.imports.common import (
    Draft,
    Imported,
    Line,
    UnknownName,
    image_ref,
    read_tree,
    unique_id,
    weights_of,
    write,
)


def test_images_are_spelled_the_common_way() -> None:
    """enroot writes the registry with a #."""
    assert image_ref("nvcr.io#nvidia/x:1") == "nvcr.io/nvidia/x:1"
    assert image_ref("docker://vllm/x:1") == "vllm/x:1"
    assert image_ref("vllm/x:1") == "vllm/x:1"


def test_ids_are_unique() -> None:
    """The first number that nobody has goes behind."""
    assert unique_id("a", []) == "a"
    assert unique_id("a", ["a", "a-2"]) == "a-3"


def test_a_hub_id_says_model_checkpoint_and_precision() -> None:
    """The vague precision of the source agrees with the checkpoint's, or another checkpoint is meant."""
    found = weights_of("nvidia/MiniMax-M3-NVFP4", "fp4")
    assert (found.model, found.precision, found.checkpoint) == (
        "minimax-m3", "nvfp4", "nvidia/MiniMax-M3-NVFP4",
    )  # fmt: skip
    assert weights_of("deepseek-ai/DeepSeek-R1-0528", "fp8").checkpoint is None


def test_a_precision_that_no_checkpoint_has_is_unknown() -> None:
    """An FP8 label on a model whose weights are FP4 only joins no curve by accident."""
    with pytest.raises(UnknownName, match="no checkpoint of minimax-m3 is int4"):
        weights_of("nvidia/MiniMax-M3-NVFP4", "int4")


def test_a_bad_draft_is_left_out_with_the_reason() -> None:
    """What would not load is never written."""
    done = Imported()
    done.add(Draft("a/b", {"schema_version": 1}), "source", 3)
    assert done.drafts == []
    assert done.lines[0].kind == "left_out"
    assert "is missing" in done.lines[0].what
    assert done.losses == 1


def test_files_that_are_there_stay(tmp_path: Path) -> None:
    """The same content is no change; another content is refused before anything is written."""
    first, second = Draft("m/a", {"x": 1}), Draft("m/b", {"x": 2})
    assert write([first], tmp_path, dry_run=True) == [tmp_path / "m/a.yaml"]
    assert not (tmp_path / "m").exists()
    assert len(write([first], tmp_path)) == 1
    assert write([first, second], tmp_path) == [tmp_path / "m/b.yaml"]
    (tmp_path / "m/b.yaml").write_text("mine\n")
    with pytest.raises(InputError, match="another content is there"):
        write([Draft("m/c", {"x": 3}), second], tmp_path)
    assert not (tmp_path / "m/c.yaml").exists()
    assert (tmp_path / "m/b.yaml").read_text() == "mine\n"


def test_duplicate_keys_of_foreign_files_are_errors(tmp_path: Path) -> None:
    """Their own tool takes the last one silently."""
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\nb: 2\na: 3\n")
    with pytest.raises(DocumentError, match=r"x\.yaml:3: .*duplicate key"):
        read_tree(path)


def test_counts_are_by_kind() -> None:
    """What the last line of the command says."""
    done = Imported(
        lines=[Line("duplicate", "s", "x"), Line("imported", "s", ""), Line("duplicate", "s", "y")]
    )
    assert done.counts == {"imported": 1, "duplicate": 2}
    assert done.losses == 2
