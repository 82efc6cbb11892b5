"""What people decided about results: ``results/*.yaml``, reviewed like code (DESIGN 3, 4).

This form applies ``overrides.yaml``. The other files are read and checked, so that a mistake in
them is seen on the day that it is made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from isoline.catalog.documents import Document, load_document
from isoline.errors import InputError
from isoline.results.bundles.tombstone import NEEDED
from isoline.results.identity import RUN_ID

# A launch's telemetry is a table, that of an attempt is evidence: there the kind of bundle decides.
_ALWAYS = frozenset().union(*NEEDED.values()) - {"telemetry.parquet"}


IMPORT = "import-"
"""How the runs of other people's files begin."""


class Override(Document):
    """One decision about a run or a point that stays in the store as it was measured or imported."""

    run_id: str = Field(pattern=rf"{RUN_ID.pattern}|^{IMPORT}[a-z0-9._-]+$")
    point_id: str | None = None  # None: every point of the run
    action: Literal["withdraw", "annotate"]
    reason: str = Field(min_length=10)
    reviewer: str = Field(min_length=1)  # a role or a public handle
    dated: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")


class Overrides(Document):
    """``results/overrides.yaml``."""

    schema_version: Literal[1]
    overrides: list[Override] = Field(default_factory=list)

    @model_validator(mode="after")
    def _each_once(self) -> Overrides:
        seen = set()
        for item in self.overrides:
            key = (item.run_id, item.point_id, item.action)
            if key in seen:
                raise ValueError(f"{item.action} of {item.point_id or item.run_id} is there twice")
            seen.add(key)
        return self


class Baseline(Document):
    """A run that a series is compared with instead of its own history."""

    series_key: str
    run_id: str = Field(pattern=RUN_ID.pattern)
    reason: str = Field(min_length=10)
    dated: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")


class Baselines(Document):
    """``results/baselines.yaml``."""

    schema_version: Literal[1]
    baselines: list[Baseline] = Field(default_factory=list)


class AcceptedChange(Document):
    """A step that is known and wanted: the baseline of the curve starts anew from this run."""

    curve_key: str = Field(pattern=r"^[0-9a-f]{16}$")
    from_run_id: str = Field(pattern=RUN_ID.pattern)
    reason: str = Field(min_length=10)
    reviewer: str = Field(min_length=1)
    dated: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")


class AcceptedChanges(Document):
    """``results/accepted-changes.yaml``."""

    schema_version: Literal[1]
    accepted_changes: list[AcceptedChange] = Field(default_factory=list)


class RetentionClass(Document):
    """How long files of one class stay whole. ``days`` null is for ever."""

    what: str
    files: list[str] = Field(min_length=1)  # patterns inside a bundle
    days: int | None = Field(ge=1)


class Retention(Document):
    """``results/retention.yaml``."""

    schema_version: Literal[1]
    classes: dict[str, RetentionClass]

    @model_validator(mode="after")
    def _tables_stay(self) -> Retention:
        for name, rule in self.classes.items():
            if rule.days is not None and (needed := _ALWAYS.intersection(rule.files)):
                raise ValueError(
                    f"class {name} lets {min(needed)} go, from which the tables are made; its days are null"
                )
        return self


FILES: dict[str, type[Document]] = {
    "overrides.yaml": Overrides,
    "baselines.yaml": Baselines,
    "accepted-changes.yaml": AcceptedChanges,
    "retention.yaml": Retention,
}
"""Every decision file and its schema."""


def load_overrides(project: Path) -> list[Override]:
    """The overrides of a project; none when there is no file.

    :raises DocumentError: when the file is not of its schema: a withdrawal must not be lost.
    """
    path = project / "results" / "overrides.yaml"
    if not path.exists():
        return []
    return load_document(path, Overrides, root=project).overrides


def load_retention(project: Path) -> Retention:
    """How long files stay whole.

    :raises InputError: when there is no file: nothing is thinned by rules that nobody wrote.
    :raises DocumentError: when the file is not of its schema.
    """
    path = project / "results" / "retention.yaml"
    if not path.exists():
        raise InputError(
            "no rules of retention", where=str(path), remedy="write them, as in docs/warehouse.md"
        )
    return load_document(path, Retention, root=project)


def named_runs(project: Path) -> dict[str, str]:
    """Every run that a decision names, and the file that does."""
    found: dict[str, str] = {item.run_id: "overrides.yaml" for item in load_overrides(project)}
    folder = project / "results"
    if (path := folder / "baselines.yaml").exists():
        for base in load_document(path, Baselines, root=project).baselines:
            found.setdefault(base.run_id, path.name)
    if (path := folder / "accepted-changes.yaml").exists():
        for change in load_document(path, AcceptedChanges, root=project).accepted_changes:
            found.setdefault(change.from_run_id, path.name)
    return found


def check_decisions(project: Path) -> None:
    """Read every decision file that is there.

    :raises DocumentError: for the first that is not of its schema.
    """
    for name, schema in FILES.items():
        path = project / "results" / name
        if path.exists():
            load_document(path, schema, root=project)
