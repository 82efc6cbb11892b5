"""Datasets: what a load replays or a check asks (``datasets/<name>.yaml``), and their digests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from isoline.catalog.documents import NAME, Document, DocumentError, load_named, locate
from isoline.results.identity import digest


class Dataset(Document):
    """One dataset.

    * ``synthetic``: prompts that the load generator makes from its own corpus, the scenario's
      lengths and the point's seed; it has no file.
    * ``multi_turn``: a JSON-lines file of sessions with turns, replayed with live answers.
    * ``questions``: a JSON-lines file of ``{id, question, answer}`` for canary and accuracy.
    * ``trace``: recorded sessions that lie on a hub (``hub_id``, ``revision``) and are fetched by
      staging; ``form`` is how they are written. Without a revision the dataset is unresolved.
    """

    schema_version: Literal[1]
    name: str = Field(pattern=NAME)
    kind: Literal["synthetic", "multi_turn", "questions", "trace"]
    description: str
    license: str
    made_by: str  # how it came to be: a command of the project, or a source
    file: str | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    generator: str | None = None  # for synthetic: who makes the text
    max_tokens: int | None = Field(default=None, ge=1)  # for questions: the longest answer
    sessions: int | None = Field(default=None, ge=1)  # for multi_turn
    turns: int | None = Field(default=None, ge=1)  # for multi_turn: user turns over all sessions
    hub_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")  # for trace
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")  # for trace
    form: Literal["weka_trace", "mooncake_trace"] | None = None  # for trace

    @model_validator(mode="after")
    def _file_belongs_to_kind(self) -> Dataset:
        if self.kind == "synthetic":
            if self.file or self.sha256 or not self.generator:
                raise ValueError("a synthetic dataset has a generator and no file")
        elif self.kind == "trace":
            if self.file or self.sha256 or not self.hub_id or not self.form:
                raise ValueError("a dataset of kind trace has a hub_id and a form, and no file")
        elif not self.file or not self.sha256:
            raise ValueError(f"a dataset of kind {self.kind} has a file and its sha256")
        if self.kind != "trace" and (self.hub_id or self.revision or self.form):
            raise ValueError("hub_id, revision and form belong to a dataset of kind trace")
        if self.kind == "questions" and self.max_tokens is None:
            raise ValueError("a dataset of kind questions has max_tokens")
        if self.kind == "multi_turn" and (self.sessions is None or self.turns is None):
            raise ValueError("a dataset of kind multi_turn has sessions and turns")
        if self.file and (Path(self.file).is_absolute() or ".." in Path(self.file).parts):
            raise ValueError(f"file {self.file!r} must lie beside the dataset's YAML")
        return self

    def identity(self) -> dict[str, str | int | None]:
        """What the dataset's digest covers: not its description or licence."""
        found: dict[str, str | int | None] = {
            "name": self.name,
            "kind": self.kind,
            "sha256": self.sha256,
            "generator": self.generator,
            "max_tokens": self.max_tokens,
        }
        if self.kind == "trace":
            found |= {"hub_id": self.hub_id, "revision": self.revision, "form": self.form}
        return found

    def digest(self) -> str:
        """SHA-256 (64 hex digits) of :meth:`identity`."""
        return digest(self.identity())


def load_dataset(project: Path, name: str) -> Dataset:
    """The dataset of that name, its file's content checked against its digest.

    :raises DocumentError: when it is absent or wrong, or the file is not the one that was described.
    """
    dataset = load_named(project, "datasets", name, "dataset", Dataset)
    if dataset.file:
        _check_file(dataset, project / "datasets")
    return dataset


def _check_file(dataset: Dataset, folder: Path) -> None:
    """Whether the file is the one that was described: its bytes and its counts."""
    path = folder / f"{dataset.name}.yaml"
    where = f"datasets/{dataset.name}.yaml"

    def wrong(what: str, *loc: str) -> DocumentError:
        return DocumentError([(locate(path, loc, where), what)])

    data = folder / str(dataset.file)
    if not data.resolve().is_relative_to(folder.resolve()):
        raise wrong(f"file {dataset.file!r} must lie beside the dataset's YAML", "file")
    if not data.is_file():
        raise wrong(f"its file {dataset.file!r} is not there", "file")
    content = data.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != dataset.sha256:
        raise wrong(f"{dataset.file} has sha256 {found}, but {dataset.sha256} is written here", "sha256")
    if dataset.kind == "multi_turn":
        # They decide how much is replayed, so they must follow from the bytes that have a digest.
        sessions, turns = count_turns(content)
        if (sessions, turns) != (dataset.sessions, dataset.turns):
            raise wrong(
                f"{dataset.file} has {sessions} sessions with {turns} user turns, "
                f"but {dataset.sessions} and {dataset.turns} are written here",
                "sessions" if sessions != dataset.sessions else "turns",
            )


def count_turns(content: bytes) -> tuple[int, int]:
    """(sessions, user turns) of a ``multi_turn`` file; lines that are no session count for nothing."""
    sessions = turns = 0
    for line in content.split(b"\n"):
        try:
            rows = json.loads(line)["turns"]
            users = sum(row.get("role") == "user" for row in rows)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        sessions += 1
        turns += users
    return sessions, turns


def dataset_path(project: Path, dataset: Dataset) -> Path:
    """The dataset's file.

    :raises ValueError: for a synthetic dataset, which has none.
    """
    if dataset.file is None:
        raise ValueError(f"dataset {dataset.name} has no file")
    return project / "datasets" / dataset.file
