"""Copies of the project's own YAML in a folder of the test, and edits of them.

Load it by path through a fixture (see ``tests/sweeps/conftest.py``).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"
RECIPE = f"recipes/{RECIPE_ID}.yaml"


@dataclass(frozen=True)
class Project:
    """A copy of what people edit, at ``root``."""

    root: Path

    def edit(self, file: str, old: str, new: str) -> int:
        """Replace the first ``old``, which must be there; returns its line (from 1)."""
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        return text.count("\n", 0, text.index(old)) + 1

    def write(self, file: str, text: str) -> Path:
        """A new file."""
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def copy(self, file: str, to: str) -> Path:
        """A second copy of a file of the project."""
        return self.write(to, (self.root / file).read_text(encoding="utf-8"))


def copy_project(source: Path, root: Path) -> Project:
    """Copy the demo's recipe, sweeps, pools and datasets. The other recipes have tests of their own."""
    (root / RECIPE).parent.mkdir(parents=True)
    shutil.copy(source / RECIPE, root / RECIPE)
    for name in ("sweeps", "runners", "datasets"):
        shutil.copytree(source / name, root / name)
    return Project(root)
