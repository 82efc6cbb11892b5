"""Datasets: a digest that covers what is replayed, and files that are what they say."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.catalog.documents import DocumentError
from isoline.datasets.schema import Dataset, count_turns, dataset_path, load_dataset

NAMES = ("demo-chat", "canary-smollm2", "arithmetic-mini", "synthetic-text")


def test_all_datasets_load(project: Any) -> None:
    """Each dataset of the project is whole, and no two have one digest."""
    found = [load_dataset(project.root, name) for name in NAMES]
    assert len({item.digest() for item in found}) == len(NAMES)
    assert dataset_path(project.root, found[0]) == project.root / "datasets" / "demo-chat.jsonl"
    with pytest.raises(ValueError, match="has no file"):
        dataset_path(project.root, found[3])


def test_words_about_a_dataset_are_not_its_digest(project: Any) -> None:
    """Description, licence and comments change no digest; what is asked or replayed does."""
    before = load_dataset(project.root, "canary-smollm2").digest()
    project.edit("datasets/canary-smollm2.yaml", "twelve facts", "# no comment\n  a dozen facts")
    project.edit("datasets/canary-smollm2.yaml", "description: # no comment\n ", "description:")
    project.edit("datasets/canary-smollm2.yaml", "license: ", "license: still ")
    assert load_dataset(project.root, "canary-smollm2").digest() == before
    project.edit("datasets/canary-smollm2.yaml", "max_tokens: 16", "max_tokens: 17")
    assert load_dataset(project.root, "canary-smollm2").digest() != before


def refused(project: Any, name: str) -> str:
    """The line that a dataset is refused with."""
    with pytest.raises(DocumentError) as caught:
        load_dataset(project.root, name)
    return caught.value.line()


def test_a_changed_byte_is_refused_with_both_digests(project: Any) -> None:
    """A file that is not the one that was described is refused, at the line of the digest."""
    was = load_dataset(project.root, "demo-chat")
    project.edit("datasets/demo-chat.jsonl", "night operator", "right operator")
    line = project.edit("datasets/demo-chat.yaml", "sha256: ", "sha256: ")
    said = refused(project, "demo-chat")
    assert said.startswith(f"datasets/demo-chat.yaml:{line}: demo-chat.jsonl has sha256 ")
    assert str(was.sha256) in said
    assert len([word for word in said.replace(",", "").split() if len(word) == 64]) == 2


@pytest.mark.parametrize(("key", "was", "now"), [("sessions", 6, 3), ("turns", 24, 12)])
def test_counts_must_be_those_of_the_file(project: Any, key: str, was: int, now: int) -> None:
    """How much is replayed follows from the bytes: another number beside them is refused."""
    line = project.edit("datasets/demo-chat.yaml", f"{key}: {was}", f"{key}: {now}")
    said = refused(project, "demo-chat")
    assert said.startswith(f"datasets/demo-chat.yaml:{line}: demo-chat.jsonl has 6 sessions with 24")


def test_a_file_lies_beside_its_yaml(project: Any) -> None:
    """Absolute paths, ``..`` and links that lead out of the folder are refused."""
    (project.root / "secret.jsonl").write_text("{}\n")
    (project.root / "datasets" / "link.jsonl").symlink_to(project.root / "secret.jsonl")
    for file in ("../secret.jsonl", str(project.root / "secret.jsonl"), "link.jsonl"):
        project.edit("datasets/canary-smollm2.yaml", "file: canary-smollm2.jsonl", f"file: {file}")
        assert "must lie beside the dataset's YAML" in refused(project, "canary-smollm2")
        project.edit("datasets/canary-smollm2.yaml", f"file: {file}", "file: canary-smollm2.jsonl")


def test_a_missing_file_and_a_missing_dataset(project: Any) -> None:
    """A file that is gone, and a dataset that never was, are told; the nearest name is offered."""
    (project.root / "datasets" / "demo-chat.jsonl").unlink()
    assert "its file 'demo-chat.jsonl' is not there" in refused(project, "demo-chat")
    assert "did you mean 'demo-chat'" in refused(project, "demo-chatt")
    assert "no such dataset" in refused(project, "../recipes/channels")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "synthetic"}, "a synthetic dataset has a generator and no file"),
        ({"file": None}, "has a file and its sha256"),
        ({"sha256": None}, "has a file and its sha256"),
        ({"max_tokens": None}, "has max_tokens"),
        ({"kind": "multi_turn"}, "has sessions and turns"),
    ],
)
def test_fields_belong_to_their_kind(changes: dict[str, Any], words: str) -> None:
    """What a kind needs must be there, what it cannot have must not."""
    fields = {
        "schema_version": 1,
        "name": "d",
        "kind": "questions",
        "description": "d",
        "license": "Apache-2.0",
        "made_by": "hand",
        "file": "d.jsonl",
        "sha256": "0" * 64,
        "max_tokens": 8,
    }
    assert Dataset.model_validate(fields).name == "d"
    with pytest.raises(ValueError, match=words):
        Dataset.model_validate({**fields, **changes})


def test_count_turns_passes_over_what_is_no_session() -> None:
    """Only lines with a list of turns are sessions, and only the user's turns are counted."""
    lines = [b'{"turns": [{"role": "system"}, {"role": "user"}, {"role": "user"}]}', b"", b"[1]", b"x",
             b'{"turns": 3}', b'{"turns": [{"role": "user"}]}']  # fmt: skip
    assert count_turns(b"\n".join(lines)) == (2, 3)


TRACE = {
    "schema_version": 1,
    "name": "trace",
    "kind": "trace",
    "description": "sessions",
    "license": "see the page",
    "made_by": "somebody",
    "hub_id": "someone/sessions",
    "form": "weka_trace",
}


def test_a_trace_lies_on_a_hub() -> None:
    """A trace has a hub id and a form and no file; its revision is part of the digest."""
    one = Dataset.model_validate(TRACE)
    pinned = Dataset.model_validate(TRACE | {"revision": "0" * 40})
    assert one.digest() != pinned.digest()
    for wrong in ({"hub_id": None}, {"form": None}, {"file": "x.jsonl", "sha256": "0" * 64}):
        with pytest.raises(ValueError, match="a dataset of kind trace has a hub_id and a form, and no file"):
            Dataset.model_validate(TRACE | wrong)
    with pytest.raises(ValueError, match="belong to a dataset of kind trace"):
        Dataset.model_validate(TRACE | {"kind": "synthetic", "generator": "g", "form": None})
