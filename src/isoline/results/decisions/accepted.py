"""``results/accepted-changes.yaml``: steps that are known and wanted, as a reviewed file (DESIGN 5.10)."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError
from ruamel.yaml import YAML

from isoline.catalog.documents import load_document, validate_text
from isoline.errors import InputError
from isoline.results.decisions.documents import AcceptedChange, AcceptedChanges

FILE = "results/accepted-changes.yaml"

_EMPTY = "schema_version: 1\naccepted_changes: []\n"


def load_accepted(project: Path) -> list[AcceptedChange]:
    """The accepted changes of a project; none when there is no file.

    :raises DocumentError: when the file is not of its schema: an accepted change must not be lost.
    """
    path = project / FILE
    if not path.exists():
        return []
    return load_document(path, AcceptedChanges, root=project).accepted_changes


def starts_of(changes: Iterable[AcceptedChange], curve_key: str) -> list[str]:
    """The run ids from which on the baseline of a curve starts anew, oldest first."""
    return sorted({change.from_run_id for change in changes if change.curve_key == curve_key})


def accept_change(project: Path, change: dict[str, str], *, dry_run: bool = False) -> str:
    """Add one accepted change to the file; its comments stay.

    :param change: the fields of :class:`isoline.results.decisions.documents.AcceptedChange`.
    :param dry_run: write nothing.
    :returns: the text of the file with it.
    :raises InputError: for a change that is not of the schema, or that is there already.
    """
    try:
        new = AcceptedChange.model_validate(change)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            where="accept-change",
            remedy="a reason has at least 10 characters, a run id is as `isoline history` shows it",
        ) from None
    for known in load_accepted(project):
        if (known.curve_key, known.from_run_id) == (new.curve_key, new.from_run_id):
            raise InputError(
                f"a change of this curve is accepted from {new.from_run_id} on already", where=FILE
            )
    path = project / FILE
    yaml = YAML()  # round trip: the comments of people stay
    yaml.width = 100
    yaml.indent(mapping=2, sequence=4, offset=2)
    document = yaml.load(path.read_text(encoding="utf-8") if path.exists() else _EMPTY)
    listed = document["accepted_changes"]
    if not listed:
        document["accepted_changes"] = listed = []
    listed.append(new.model_dump())
    out = io.StringIO()
    yaml.dump(document, out)
    text = out.getvalue()
    validate_text(text, AcceptedChanges, FILE)
    if not dry_run:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".yaml.new")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    return text
