"""Staging a pool: everything that launches need, on every machine, before any device is allocated.

What is done on a machine is :mod:`isoline.runners.machine.node`'s; here is who gets what.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from isoline.catalog.pools import Pool
from isoline.errors import InfraError, InputError, IsolineError
from isoline.results.bundles.records import PlanLaunch
from isoline.runners.envs import ensure_engine
from isoline.runners.machine.hosts import Host
from isoline.runners.machine.nodes import NodeJobError, run_job
from isoline.runners.ownership.orchestrators import this_orchestrator
from isoline.runners.staging.derive import build_image, make_words
from isoline.runners.staging.images import explained, find_image, image_file, import_words, pull_image
from isoline.runners.staging.items import Item, items_of_launch
from isoline.runners.staging.place import Look, Spot, Staged, is_there, look_at, model_path, spots_of
from isoline.runners.staging.weights import ensure_weights
from isoline.settings import Settings

DEFAULT_ENDPOINT = "https://huggingface.co"
PATIENCE_S = 3600.0
IMPORT_S = 7200.0
MAX_HOSTS = 8

Say = Callable[[str], None]


def stage_pool(
    settings: Settings,
    pool: Pool,
    items: Sequence[Item],
    say: Say = lambda line: None,
    *,
    should_stop: Callable[[], str | None] = lambda: None,
) -> list[Staged]:
    """Bring every item to every machine of its place. One that fails does not keep the others from it."""
    found: list[Staged] = []
    for place in ("pool", "client"):
        wanted = [item for item in items if item.place == place]
        spots = spots_of(settings, pool, place) if wanted else []
        if not spots:
            continue
        with ThreadPoolExecutor(min(len(spots), MAX_HOSTS)) as workers:
            one = partial(_stage_spot, settings, pool, wanted, say=say, should_stop=should_stop)
            parts = workers.map(one, spots)
            found += [row for part in parts for row in part]
    return found


def _stage_spot(
    settings: Settings,
    pool: Pool,
    items: Sequence[Item],
    spot: Spot,
    *,
    say: Say,
    should_stop: Callable[[], str | None],
) -> list[Staged]:
    try:
        spot.host.run(["mkdir", "-p", spot.cache])
        look = look_at(spot, items)
    except IsolineError as error:
        return [Staged(spot.node, item, "failed", code="infra", detail=error.line()) for item in items]
    keep = [item.name for item in items]
    rows = []
    for item in items:
        one = _One(settings, pool, spot, look, keep, item, say, should_stop)
        try:
            record = one.stage()
        except IsolineError as error:
            code = getattr(error, "code", "infra")
            rows.append(Staged(spot.node, item, "failed", item.bytes, code=code, detail=error.line()))
            say(f"{spot.node} {item.name}: {error.line()}")
        else:
            state = "staged" if record.get("downloaded") else "there"
            rows.append(Staged(spot.node, item, state, record.get("bytes"), record.get("downloaded")))
            say(f"{spot.node} {item.name}: {state}, {(record.get('bytes') or 0) / 1e9:.3f} GB")
    return rows


@dataclass(frozen=True)
class _One:
    """One item on its way to one machine."""

    settings: Settings
    pool: Pool
    spot: Spot
    look: Look
    keep: list[str]
    item: Item
    say: Say
    should_stop: Callable[[], str | None]

    def stage(self) -> Mapping[str, Any]:
        match self.item.kind:
            case "packages":
                engine, *packages = self.item.id.split()
                was_there = is_there(self.settings, self.pool, self.item, self.look)
                ensure_engine(self.settings, engine, packages, self.say)
                return {"downloaded": 0 if was_there else 1}
            case "image" if self.pool.launcher == "container":
                return self._pull()
            case "derived" if self.pool.launcher == "container":
                return self._build()
            case "image" | "derived":
                return self._import()
            case "weights" if self.item.place == "client":
                was_there = is_there(self.settings, self.pool, self.item, self.look)
                path = ensure_weights(self.settings, self._file(), self.say)
                size = path.stat().st_size
                return {"bytes": size, "downloaded": 0 if was_there else size}
            case "weights":
                return self._copy()
        return self._run(
            "repo",
            hub_kind="dataset" if self.item.kind == "dataset" else "model",
            revision=self.item.revision,
            endpoint=os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT,
            token=hub_token(),
            patience_s=PATIENCE_S,
            allow=list(self.item.allow),
            ignore=list(self.item.ignore),
            link=self.item.link,
        )

    def _run(self, job: str, **fields: Any) -> dict[str, Any]:
        common = {
            "job": job,
            "cache": self.spot.cache,
            "item": self.item.name,
            "kind": self.item.kind,
            "id": self.item.id,
            "cap_bytes": self.spot.cap_bytes,
            "keep": self.keep,
            "dead": self.look.dead,
        }
        found: dict[str, Any] = run_job(
            self.spot.host, {**common, **fields}, self._tell, should_stop=self.should_stop
        )
        return found

    def _tell(self, event: Mapping[str, Any]) -> None:
        self.say(f"{self.spot.node} {self.item.name}: {event_text(event)}")

    def _file(self) -> Any:
        if self.item.weights is None:
            raise InputError(f"{self.item.id} is not in the catalog any more", remedy="plan again")
        return self.item.weights

    def _pull(self) -> Mapping[str, Any]:
        return self._bring("pull", lambda host, runtime: pull_image(host, runtime, self.item.id))

    def _build(self) -> Mapping[str, Any]:
        return self._bring("build", lambda host, runtime: build_image(host, runtime, self.pool, self.item))

    def _bring(self, verb: str, bring: Callable[[Host, str], None]) -> Mapping[str, Any]:
        """An image of the machine's runtime: there already, or brought now."""
        assert self.pool.container is not None
        host, runtime = self.spot.host, self.pool.container.runtime
        image = find_image(host, runtime, self.item.id)
        is_new = image is None
        if image is None:
            self.say(f"{self.spot.node} {self.item.name}: {runtime} {verb} {self.item.id}")
            bring(host, runtime)
            image = find_image(host, runtime, self.item.id)
        if image is None:
            what = f"{runtime} {verb} succeeded, and there is no image {self.item.id}"
            raise NodeJobError("image_missing", what, where=self.spot.node, remedy="look at that machine")
        size = image.bytes
        fields = {"kind": "image", "bytes": size, "digest": self._digest(), "brought_by_us": is_new}
        record = self._run("image", **fields, runtime=runtime)
        return {**record, "downloaded": size if is_new else 0}

    def _import(self) -> Mapping[str, Any]:
        target = image_file(self.pool, self.item.id)
        if target is None:
            return {"downloaded": 0}
        is_made = self.item.kind == "derived"
        words = make_words(self.pool, self.item) if is_made else import_words(self.pool, self.item.id)
        try:
            return self._run(
                "file",
                kind="image_file",
                target=target,
                path=target,
                argv=words,
                timeout_s=IMPORT_S,
                digest=self._digest(),
            )
        except NodeJobError as error:
            if error.code != "command_failed":
                raise
            what = f"making {self.item.id}" if is_made else words[0]
            raise explained(error.what, what, self.spot.node) from None

    def _copy(self) -> Mapping[str, Any]:
        """A single file of weights, fetched here; to another machine it goes through ssh, hashed there."""
        file, host = self._file(), self.spot.host
        name = model_path(self.item)
        if not host.is_local and is_there(self.settings, self.pool, self.item, self.look):
            return {"bytes": file.bytes, "downloaded": 0}
        source = ensure_weights(self.settings, file, self.say)
        words = ["cp", "--reflink=auto", str(source), "{out}"]
        if not host.is_local:
            words = ["mv", self._send(source), "{out}"]
        return self._run(
            "file",
            target=f"{self.spot.cache.rstrip('/')}/{name}",
            path=name,
            argv=words,
            sha256=file.sha256,
            bytes=file.bytes,
            digest=f"sha256:{file.sha256}",
            timeout_s=IMPORT_S,
        )

    def _send(self, source: Path) -> str:
        """Put a file of this machine on the other one, aside; its path there."""
        host, folder = self.spot.host, f"{self.spot.cache.rstrip('/')}/.isoline/parts"
        part = f"{folder}/{self.item.name}.{os.getpid()}"
        self.say(f"{host.name} {self.item.name}: sends {source.stat().st_size / 1e9:.2f} GB")
        host.run(["mkdir", "-p", folder])
        with source.open("rb") as content:
            done = subprocess.run(
                host.words(["dd", f"of={part}", "bs=1M", "status=none"]),
                stdin=content,
                capture_output=True,
                timeout=IMPORT_S,
                check=False,
            )
        if done.returncode:
            raise InfraError(
                f"cannot send {source.name}: {done.stderr.decode(errors='replace')[-200:]}", where=host.name
            )
        return part

    def _digest(self) -> str | None:
        return self.item.id.partition("@")[2] or None


def event_text(event: Mapping[str, Any]) -> str:
    """What a node's event says, for people."""
    match event["event"]:
        case "progress":
            share = event["done"] / event["total"] if event["total"] else 1.0
            return f"{event['done'] / 1e9:.2f} of {event['total'] / 1e9:.2f} GB ({share:.0%})"
        case "waiting":
            return f"waits for {event['for'] or 'another stager'}"
        case "rate_limited":
            return f"the hub asks to wait {event['wait_s']:.0f} s"
        case "evicted":
            return f"removed {event['which']} ({event['bytes'] / 1e9:.2f} GB, least recently used)"
    return str(event["event"])


def hub_token() -> str | None:
    """The hub's token of whoever runs this: ``HF_TOKEN``, else the file that the hub's own tools write."""
    if token := os.environ.get("HF_TOKEN"):
        return token.strip()
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    with suppress(OSError):
        return (home / "token").read_text(encoding="utf-8").strip() or None
    return None


# --- pins and use --------------------------------------------------------------------------------------


def set_pin(settings: Settings, pool: Pool, item: str, is_pinned: bool) -> list[str]:
    """Pin or unpin an item on every machine that has it; the machines' names.

    :raises InputError: when none has it.
    """
    nodes = []
    error: NodeJobError | None = None
    for spot in spots_of(settings, pool, "pool"):
        try:
            run_job(spot.host, {"job": "pin", "cache": spot.cache, "item": item, "pinned": is_pinned})
            nodes.append(spot.node)
        except NodeJobError as problem:
            if problem.code != "no_item":
                raise
            error = problem
    if error is not None and not nodes:
        raise InputError(error.what, where=f"pool {pool.name}", remedy=error.remedy)
    return nodes


@contextmanager
def inputs_in_use(
    settings: Settings, pool: Pool, launch: PlanLaunch, launch_id: str, hosts: Sequence[Host] = ()
) -> Iterator[None]:
    """While the block runs nobody's staging removes what the launch uses.

    :param hosts: the machines it runs on; default: all of the pool.
    """
    items = [item.name for item in items_of_launch(pool, launch) if item.place == "pool"]
    names = {host.name for host in hosts}
    everywhere = spots_of(settings, pool, "pool") if items else []  # a marker of nothing keeps nothing
    spots = [spot for spot in everywhere if not names or spot.node in names]
    marker = {"launch_id": launch_id, "orchestrator": asdict(this_orchestrator())}
    for spot in spots:
        job = {"job": "use", "cache": spot.cache, "items": items, "name": launch_id, "marker": marker}
        run_job(spot.host, job)
    try:
        yield
    finally:
        for spot in spots:
            with suppress(InfraError):  # the marker is known to be dead once we are
                run_job(spot.host, {"job": "end_use", "cache": spot.cache, "name": launch_id})
