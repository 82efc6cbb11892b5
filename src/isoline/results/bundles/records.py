"""The files of Isoline as types: plan.json, point.json, launch.json, lock.json, MANIFEST.json.

Frozen pydantic models at the border; everything is JSON with ``schema_version``. Unknown keys are
refused, so that a file of a newer version is never half read.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from isoline.results.judging.reasons import Verdict

METRICS_VERSION = 2
"""2: energy and power (rows that version 1 does not have)."""


class Record(BaseModel):
    """Base of all file types."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


# --- plan.json (DESIGN 5.9) -------------------------------------------------------------------


class PlanPoint(Record):
    """One expected point.

    ``identity`` is what ``point_digest`` is the digest of: the launch digest, the scenario in full,
    the dataset digest, the concurrency and the load generator. ``curve`` holds the fields of
    :data:`isoline.results.identity.CURVE_FIELDS`.
    """

    point_id: str
    point_digest: str
    scenario: str
    concurrency: int
    repetition: int
    seed: int
    accuracy: list[str]  # tasks to check at this point, by dataset name
    estimate_s: float
    curve: dict[str, Any]
    curve_key: str
    series_key: str
    identity: dict[str, Any]


class PlanLaunch(Record):
    """One expected server start.

    ``argv`` and ``env`` hold placeholders (``{port}``, ``{host}``, ``{model_path}``, ``{scratch}``).
    ``identity`` is what ``launch_digest`` is the digest of: model, weights, engine, packages or
    image, launcher, SKU, topology, argv, env.
    """

    launch_digest: str
    recipe_id: str
    recipe_digest: str
    topology: str
    gpus: int
    pool: str
    argv: list[str]
    env: dict[str, str]
    twin_of: str | None
    estimate_s: float
    identity: dict[str, Any]
    recipe: dict[str, Any]  # resolved content, for review and the lock; not identity
    points: list[PlanPoint]


class Excluded(Record):
    """What was not planned, and why."""

    what: str
    why: str


class Reused(Record):
    """A point that has a counting attempt in another run: the one that measured it."""

    point_id: str
    run_id: str
    attempt: int
    accuracy: list[str]
    curve_key: str = ""


class Addition(Record):
    """A curve of another run to which this plan only adds concurrencies (DESIGN 5.8).

    The curve in this run is its points of ``launches``, which are ``point_ids``, and those of
    ``reused`` with its key, which are all that ``base_run_id`` has of it.
    """

    curve_key: str
    base_run_id: str
    point_ids: list[str]


class Plan(Record):
    """The expected set of a run; deterministic in order and bytes."""

    schema_version: Literal[1] = 1
    plan_digest: str
    sweep: str
    created_from: dict[str, Any]  # {rev, dirty}; not part of plan_digest
    channels: dict[str, str]
    launches: list[PlanLaunch]
    reused: list[Reused]
    excluded: list[Excluded]
    shards: int
    budget: dict[str, Any]
    additions: list[Addition] = []
    parts: list[str] = []  # curves of which it has only a part: the run never stands in for them
    publish: bool = True  # False: a try-out; its points are never official and in no snapshot


# --- bundles (DESIGN 5.5) ---------------------------------------------------------------------


class ReasonNote(Record):
    """One reason code with what was seen, in one line."""

    code: str
    detail: str = ""


class CauseLine(Record):
    """A line of a server's log; ``number`` counts from 1, null where the log was too long to count."""

    log: str  # the file's name
    number: int | None
    text: str


class CauseRecord(Record):
    """Why a launch or a server failed, as its log proves it (:mod:`isoline.runners.causes`)."""

    name: str
    code: str  # a reason code
    lines: list[CauseLine]
    retry: bool  # whether trying again makes sense
    remedy: str


class MetricRow(Record):
    """One number. ``value`` is null where the metric has none (never 0 in its place)."""

    name: str
    window: Literal["full", "steady"]
    value: float | None
    unit: str
    n: int | None = None
    note: str = ""
    metrics_version: int = METRICS_VERSION


class WindowSpan(Record):
    """A measurement window, epoch nanoseconds."""

    start_ns: int
    end_ns: int
    completions: int


class PhaseRow(Record):
    """One phase of an attempt: when it began (UTC, ISO 8601) and how long it took (monotonic)."""

    name: str
    started_at: str
    duration_s: float
    outcome: str = "ok"


class AccuracyResult(Record):
    """One accuracy check. ``state`` is one of DESIGN 5.4's accuracy states."""

    task: str
    dataset_digest: str
    n: int
    correct: int
    unparsed: int
    reference: float | None
    interval_low: float | None
    interval_high: float | None
    state: str
    concurrency: int


class Counts(Record):
    """Requests of the measured phase."""

    asked: int
    completed: int
    failed: int


class PointRecord(Record):
    """point.json: one attempt at one point, in full."""

    schema_version: Literal[1] = 1
    run_id: str
    point_id: str
    attempt: int
    launch_id: str
    point_digest: str
    launch_digest: str
    started_at: str
    ended_at: str
    verdict: Verdict
    reasons: list[ReasonNote]
    accuracy_state: str
    accuracy: list[AccuracyResult]
    canary: dict[str, Any] | None
    phases: list[PhaseRow]
    counts: Counts
    windows: dict[str, WindowSpan | None]
    metrics: list[MetricRow]
    client: dict[str, Any]  # name, version, profile, tick rate, cpu seconds, saturation evidence
    cause: CauseRecord | None = None  # why the server ended under it, where its log tells


class LaunchRecord(Record):
    """launch.json: one start of a server."""

    schema_version: Literal[1] = 1
    run_id: str
    launch_id: str
    launch_digest: str
    recipe_id: str
    started_at: str
    ended_at: str
    verdict: Verdict
    reasons: list[ReasonNote]
    phases: list[PhaseRow]
    exit_code: int | None
    signal: int | None
    points: list[str]  # point ids that it served
    cause: CauseRecord | None = None  # why it failed, where its log tells
    compile_cache: dict[str, Any] | None = None  # {key, cold} of the folder it compiled into


class SkippedPoint(Record):
    """A planned point that a run left out. ``cause``: one of :data:`isoline.results.judging.reasons.SKIPPED`.

    ``evidence``: what shows it, relative to the run's folder.
    """

    point_id: str
    cause: str
    detail: str
    evidence: list[str] = []


class SkippedRecord(Record):
    """skipped.json: what a run had left out when it ended for the ``number``-th time, at ``at``."""

    schema_version: Literal[1] = 1
    run_id: str
    number: int
    at: str
    points: list[SkippedPoint] = Field(min_length=1)


class LockRecord(Record):
    """lock.json: everything resolved; enough to run the point again.

    ``launch`` is the plan's launch without its points, ``point`` the plan's point. ``resolved``
    holds what placeholders became, package versions, the client's version. ``fingerprint`` is
    the hardware and system. Publishing looks every key up in a registry; internal by default.
    """

    schema_version: Literal[1] = 1
    run_id: str
    sweep: str
    launch: dict[str, Any]
    point: dict[str, Any]
    resolved: dict[str, Any]
    fingerprint: dict[str, Any]
    created_from: dict[str, Any]


class ManifestFile(Record):
    """One file of a bundle."""

    path: str
    sha256: str
    bytes: int


class Manifest(Record):
    """MANIFEST.json, written last. No manifest = not sealed = never ingested."""

    schema_version: Literal[1] = 1
    kind: Literal["run", "launch", "point", "skipped"]
    id: str
    sealed_at: str
    files: list[ManifestFile] = Field(min_length=1)
