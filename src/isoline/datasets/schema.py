"""Datasets: what a load replays or a check asks (``datasets/<name>.yaml``), and their digests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from isoline.catalog.documents import Document, DocumentError, load_document, nearest
from isoline.results.identity import digest


class Dataset(Document):
    """One dataset.

    * ``synthetic``: prompts that the load generator makes from its own corpus, the scenario's
      lengths and the point's seed; it has no file.
    * ``multi_turn``: a JSON-lines file of sessions with turns, replayed with live answers.
    * ``questions``: a JSON-lines file of ``{id, question, answer}`` for canary and accuracy.
    """

    schema_version: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    kind: Literal["synthetic", "multi_turn", "questions"]
    description: str
    license: str
    made_by: str  # how it came to be: a command of the project, or a source
    file: str | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    generator: str | None = None  # for synthetic: who makes the text
    max_tokens: int | None = Field(default=None, ge=1)  # for questions: the longest answer
    sessions: int | None = Field(default=None, ge=1)  # for multi_turn
    turns: int | None = Field(default=None, ge=1)  # for multi_turn: user turns over all sessions

    @model_validator(mode="after")
    def _file_belongs_to_kind(self) -> Dataset:
        if self.kind == "synthetic":
            if self.file or self.sha256 or not self.generator:
                raise ValueError("a synthetic dataset has a generator and no file")
        elif not self.file or not self.sha256:
            raise ValueError(f"a dataset of kind {self.kind} has a file and its sha256")
        if self.kind == "questions" and self.max_tokens is None:
            raise ValueError("a dataset of kind questions has max_tokens")
        if self.kind == "multi_turn" and (self.sessions is None or self.turns is None):
            raise ValueError("a dataset of kind multi_turn has sessions and turns")
        if self.file and (Path(self.file).is_absolute() or ".." in Path(self.file).parts):
            raise ValueError(f"file {self.file!r} must lie beside the dataset's YAML")
        return self

    def identity(self) -> dict[str, str | int | None]:
        """What the dataset's digest covers: not its description or licence."""
        return {
            "name": self.name,
            "kind": self.kind,
            "sha256": self.sha256,
            "generator": self.generator,
            "max_tokens": self.max_tokens,
        }

    def digest(self) -> str:
        """SHA-256 (64 hex digits) of :meth:`identity`."""
        return digest(self.identity())


def load_dataset(project: Path, name: str) -> Dataset:
    """The dataset of that name, its file's content checked against its digest.

    :raises DocumentError: when it is absent or wrong, or the file is not the one that was described.
    """
    folder = project / "datasets"
    where = f"datasets/{name}.yaml"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = [item.stem for item in folder.glob("*.yaml")]
        raise DocumentError([(where, f"no such dataset; {nearest(name, known)}")])
    dataset = load_document(path, Dataset, root=project)
    if dataset.name != name:
        raise DocumentError([(where, f"its name is {dataset.name!r}, which is not the file's")])
    if dataset.file:
        data = folder / dataset.file
        if not data.is_file():
            raise DocumentError([(where, f"its file {dataset.file!r} is not there")])
        found = hashlib.sha256(data.read_bytes()).hexdigest()
        if found != dataset.sha256:
            raise DocumentError(
                [(where, f"{dataset.file} has sha256 {found}, but {dataset.sha256} is written here")]
            )
    return dataset


def dataset_path(project: Path, dataset: Dataset) -> Path:
    """The dataset's file.

    :raises ValueError: for a synthetic dataset, which has none.
    """
    if dataset.file is None:
        raise ValueError(f"dataset {dataset.name} has no file")
    return project / "datasets" / dataset.file
