"""The circuit breaker: what each start of a launch says about its image, and when the rest is held. Pure.

Everything is read off sealed bundles, so that a restarted run knows what the killed one knew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from isoline.results.bundles.records import LaunchRecord, PlanLaunch, PointRecord, ReasonNote
from isoline.results.identity import digest
from isoline.results.judging.reasons import REASONS, SEVERITY, Verdict

ALIKE = 2
"""So many launches of one image × SKU that fail alike hold the rest of it."""


@dataclass(frozen=True)
class Told:
    """What one start says. ``signature`` is "" unless it failed for a reason that is not the machine's.

    ``says``: ``good`` the image serves; ``bad``; ``nothing`` (the machine failed, a person stopped it).
    """

    launch_id: str
    launch_digest: str
    at: str
    says: Literal["good", "bad", "nothing"]
    signature: str = ""


@dataclass(frozen=True)
class Hold:
    """Why an image is held: the signature, the launches that show it, where their logs lie."""

    signature: str
    launches: tuple[str, ...]
    evidence: tuple[str, ...]

    def line(self) -> str:
        """The reason in one line."""
        return f"launches {', '.join(self.launches)} of this image failed alike: {self.signature}"


@dataclass(frozen=True)
class ImageState:
    """What a run knows of one image on its SKU."""

    is_proven: bool = False
    hold: Hold | None = None


def image_key(launch: PlanLaunch) -> str:
    """``<image> on <sku>`` of a launch, short and the same for all that share both.

    An image of another digest, or other package versions, is another key.
    """
    brought = {
        item for command in launch.identity.get("commands") or () for item in command.get("packages") or ()
    }
    image: Mapping[str, Any] = launch.identity.get("image") or {}
    sku = launch.identity.get("sku", "")
    named = image.get("ref") or " ".join(image.get("packages") or ()) or "no image"
    if brought:
        image = {**image, "brought": sorted(brought)}
        named = f"{named} with {', '.join(sorted(brought))}"
    return f"{named} [{digest(dict(image))[:6]}] on {sku}"


_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?")


def signature_of(note: ReasonNote) -> str:
    """What two failures have in common when they are the same: the code, and the words without numbers."""
    words = " ".join(_NUMBERS.sub("#", note.detail).split())[:160]
    return f"{note.code}: {words}" if words else note.code


def _blaming(reasons: Iterable[ReasonNote]) -> ReasonNote | None:
    """The first of the worst reasons that are neither the machine's nor a person's; None without one."""
    found = [note for note in reasons if REASONS[note.code].verdict is Verdict.INVALID]
    return found[0] if found else None


def judge_start(record: LaunchRecord, points: Sequence[PointRecord]) -> Told:
    """What a sealed start says about its image.

    :param points: the attempts that were made on it.
    """
    said: Literal["good", "bad", "nothing"] = "nothing"
    signature = ""
    note = _blaming(record.reasons)
    verdicts = {point.verdict for point in points}
    if verdicts & {Verdict.VALID, Verdict.PARTIAL}:
        said = "good"
    elif SEVERITY.index(record.verdict) > SEVERITY.index(Verdict.INVALID):
        said = "nothing"
    elif note is not None and not points:
        # What the server's log proves says more than how the start ended.
        proven = record.cause if record.cause and not record.cause.retry else None
        said, signature = "bad", f"{proven.code} ({proven.name})" if proven else signature_of(note)
    elif verdicts == {Verdict.INVALID}:
        # Details of points hold their own numbers: the codes alone say whether it is the same.
        first = _blaming(points[0].reasons)
        said, signature = "bad", first.code if first else "invalid"
    return Told(record.launch_id, record.launch_digest, record.ended_at, said, signature)


def image_state(told: Iterable[Told], opened_at: str = "") -> ImageState:
    """What the starts of one image say together.

    :param opened_at: when a person asked to try again (UTC, ISO 8601); failures before do not count.
    """
    rows = sorted(told, key=lambda item: (item.at, item.launch_id))
    alike: dict[str, dict[str, str]] = {}
    for item in rows:
        if item.says == "bad" and item.at > opened_at:
            alike.setdefault(item.signature, {})[item.launch_digest] = item.launch_id
    is_proven = any(item.says == "good" for item in rows)
    for signature, launches in alike.items():
        if len(launches) >= ALIKE:
            names = tuple(launches.values())
            evidence = tuple(f"_launch/{name}/server.log" for name in names)
            return ImageState(is_proven, Hold(signature, names, evidence))
    return ImageState(is_proven)
