"""Which files of a listing are sealed bundles of ours, and where these belong in a store. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from isoline.results.bundles.bundle import MANIFEST, SKIPPED, WORK
from isoline.results.bundles.tombstone import SUFFIX as TOMBSTONE
from isoline.results.identity import RUN_ID

_KEPT = re.compile(r"/imports/[0-9a-f]{64}(\.json)?$")


@dataclass(frozen=True)
class Place:
    """One bundle of a listing.

    :ivar root: its folder in the listing, "" where the listing is the bundle.
    :ivar run_id: "" where no folder above it has the form of one.
    :ivar target: its place in the run's folder.
    :ivar files: its files, relative to ``root``, the manifest included.
    :ivar tombstone: the tombstone beside it, as a path of the listing; None without.
    """

    root: str
    run_id: str
    target: str
    files: tuple[str, ...]
    tombstone: str | None = None

    @property
    def kind(self) -> str:
        """As a manifest says it."""
        first = self.target.split("/")[0]
        return {"_run": "run", "_launch": "launch", SKIPPED: "skipped"}.get(first, "point")

    @property
    def path(self) -> str:
        """For messages."""
        return f"{self.run_id or '?'}/{self.target}"

    @property
    def above(self) -> str:
        """The run's folder in the listing."""
        return self.root.removesuffix(self.target).rstrip("/")

    @property
    def order(self) -> tuple[str, int, str, int]:
        """As they were sealed: the plan, launches, then attempts one after the other."""
        rank = ("run", "launch", "point", "skipped").index(self.kind)
        folder, _, last = self.target.rpartition("/")
        number = int(last) if last.isascii() and last.isdecimal() and len(last) < 10 else 0
        return self.run_id, rank, folder if number else self.target, number


@dataclass
class Sorted:
    """A listing, sorted.

    :ivar kept: files of others as a store keeps them, with the notes beside them.
    :ivar others: further files outside every run.
    :ivar unsealed: how many are inside one, but in no sealed bundle.
    """

    bundles: list[Place] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    unsealed: int = 0


def sort_files(paths: Iterable[str], above: Sequence[str]) -> Sorted:
    """Tell bundles from what else is there.

    :param above: the folders that the listing itself lies in: a run's own folder may be named.
    """
    listed = set(paths)
    roots = {path.rpartition("/")[0] for path in listed if path.rpartition("/")[2] == MANIFEST}
    by_root: dict[str, list[str]] = defaultdict(list)
    found = Sorted()
    for path in sorted(listed):
        parts = path.split("/")
        # The outermost folder with a manifest is the bundle.
        root = next((top for n in range(len(parts)) if (top := "/".join(parts[:n])) in roots), None)
        if root is not None:
            by_root[root].append(path[len(root) + 1 if root else 0 :])
        elif any(RUN_ID.fullmatch(part) for part in (*above, *parts[:-1])):
            found.unsealed += not (path.endswith(TOMBSTONE) or WORK in parts)
        elif _KEPT.search(f"/{path}"):
            found.kept.append(path)
        elif not any(part.startswith(".") for part in parts) and not path.endswith(TOMBSTONE):
            found.others.append(path)
    for root, files in by_root.items():
        parts = [*above, *root.split("/")] if root else list(above)
        if WORK in parts:
            continue  # scratch of a run
        run_id, target = _place(parts)
        beside = root + TOMBSTONE
        stone = beside if root and beside in listed else None
        found.bundles.append(Place(root, run_id, target, tuple(files), stone))
    found.bundles.sort(key=lambda place: place.order)
    return found


def _place(parts: Sequence[str]) -> tuple[str, str]:
    """(run id, place in the run's folder) of a bundle, from the folders that it lies in."""
    runs = [index for index, part in enumerate(parts) if RUN_ID.fullmatch(part)]
    if runs:
        return parts[runs[-1]], "/".join(parts[runs[-1] + 1 :])
    return "", "/".join(parts[-1:] if parts and parts[-1] == "_run" else parts[-2:])
