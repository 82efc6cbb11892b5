"""The fast reader of YAML gives exactly what the careful one gives, or says that it is not sure."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isoline.catalog.documents import Document, DocumentError, validate_text
from isoline.catalog.fastyaml import UNSURE, fast_parse
from isoline.catalog.trees import parse_yaml, to_plain

SAMPLE = """\
schema_version: 1
model: some-model   # a comment
image: {ref: "vllm/x:v1", other: vllm/x:v1.2, digest: 05cdca7b}
topologies:
  - aggregated: {workers: 1, tp: 8}
  - prefill: {tp: 4, ep: 4}
    decode: {workers: 2, tp: 8}
args: {a: 0.85, b: -1, c: [1, 2, 3], d: {expr: 2 * concurrency}, e: true, f: null, g: 1_000, h: 0.5.16}
text: >
  folded text
  in two lines

  and a third
more: |
  kept
  as it is
plain: words over
  two lines
8: eight
on: true
version: 1.2.3
date: 2026-12-01
hex: 0x10
shape: 8k1k
"""


def careful(text: str) -> object:
    """What the careful reader says: plain values, or the error."""
    try:
        return to_plain(parse_yaml(text, "f"), "f")
    except DocumentError as error:
        return error


def must_agree(text: str) -> bool:
    """Whether the fast reader was sure; if so, both must have read the same, types included."""
    found = fast_parse(text)
    if found is UNSURE:
        return False
    assert repr(found) == repr(careful(text)), text
    return True


def test_every_file_of_the_project_is_read_the_same(project_root: Path) -> None:
    """All YAML that people edit here is read by the fast reader, and as the careful one would."""
    paths = [
        path
        for folder in ("recipes", "sweeps", "runners", "datasets", "results", "src/isoline/catalog/data")
        for path in sorted((project_root / folder).rglob("*.yaml"))
    ]
    # The careful reader takes minutes for all of them: a sample.
    small = [path for path in paths if path.stat().st_size < 20_000]
    sure = [must_agree(path.read_text(encoding="utf-8")) for path in small[:: max(1, len(small) // 25)]]
    assert len(sure) >= 20
    # Expressions hold backslashes, which are left to the careful reader: these two are read once a process.
    unsure = {path.name for path in paths if fast_parse(path.read_text(encoding="utf-8")) is UNSURE}
    assert unsure == {"causes.yaml", "startup.yaml"}


PIECES = [
    *"{}[]:,#'\"-?|>&*!%@` \n01.eE_+~<=xob",
    ": ",
    "- ",
    "\n  ",
    "\n- ",
    " #",
    "''",
    "null",
    "1.0",
    "<<",
    "1:2",
]


def test_damaged_texts_are_read_the_same_or_not_at_all() -> None:
    """Pieces of a document with random damage: the fast reader is right whenever it is sure."""
    chance = random.Random(7)
    lines = SAMPLE.split("\n")
    sure = 0
    for _ in range(1500):
        start = chance.randrange(len(lines))
        text = "\n".join(lines[start : start + chance.randint(2, 7)])
        for _ in range(chance.choice([0, 1, 1, 2])):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(PIECES) + text[at + chance.choice([0, 0, 1]) :]
        sure += must_agree(text)
    assert sure > 300


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="01x.eE-+_:ob afT~<=", min_size=1, max_size=12))
def test_scalars_are_resolved_the_same(scalar: str) -> None:
    """What looks like a number, a date or a sign is never taken for something else."""
    must_agree(f"a: {scalar}\n")
    must_agree(f"a: [{scalar}, 1]\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1\na: 2\n",
        "a: &x 1\nb: *x\n",
        "a: !!str 1\n",
        "<<: {b: 1}\n",
        "a: 1\n---\nb: 2\n",
        "%YAML 1.1\na: 1\n",
        "a:\t1\n",
        "a: 99999999999999999999\n",
        'a: "\\x41"\n',
        "a: [b: c]\n",
        "? [1]\n: 2\n",
        "a: .inf\n",
        "a: 0o17\n",
        "true: 1\n",
        "a: " + "[" * 40 + "]" * 40 + "\n",
        "a: {b: 1\n",
        "a: yes\r\nb: 1\r\n",
    ],
)
def test_what_is_odd_is_left_to_the_careful_reader(text: str) -> None:
    """Duplicate keys, anchors, tags, merge keys, other line ends and the like are never decided here."""
    assert fast_parse(text) is UNSURE


class Small(Document):
    name: str
    count: int = 0


def test_a_good_document_needs_no_careful_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that is right is never parsed by ruamel."""

    def refuse(text: str, where: str) -> None:
        raise AssertionError("parsed by ruamel")

    monkeypatch.setattr("isoline.catalog.documents.parse_yaml", refuse)
    assert validate_text("name: x\ncount: 3\n", Small, "f").count == 3


def test_a_wrong_document_has_its_lines() -> None:
    """A document that is wrong is read again for the lines of its mistakes."""
    with pytest.raises(DocumentError) as caught:
        validate_text("name: x\n\ncount: many\nnmae: y\n", Small, "f.yaml")
    assert [where for where, _ in caught.value.problems] == ["f.yaml:3", "f.yaml:4"]
