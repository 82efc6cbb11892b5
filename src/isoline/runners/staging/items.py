"""What a launch needs to lie on the machines before it starts, item by item. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from isoline.catalog.facts import load_catalog
from isoline.catalog.models import WeightFile
from isoline.catalog.pools import Pool
from isoline.datasets.schema import Dataset
from isoline.errors import InputError
from isoline.recipes.deployment import Deployment, deployment_of
from isoline.results.bundles.records import PlanLaunch
from isoline.runners.staging.weights import hub_place

Kind = Literal["model", "draft", "dataset", "tokenizer", "weights", "image", "derived", "packages"]
Place = Literal["pool", "client"]
"""``pool``: on each of its machines; ``client``: here, where the load generator runs."""

IGNORED = (
    "*.bin", "*.pth", "*.pt", "*.h5", "*.msgpack", "*.onnx", "*.gguf", "*.ot", "*.tflite",
    "original/*", "metal/*", "onnx/*", "openvino/*", "coreml/*", "figures/*", "assets/*", "*.png", "*.jpg",
)  # fmt: skip
"""Files of a model that no engine of ours reads: other formats of the same weights, and pictures."""

TOKENIZER = (
    "tokenizer*", "*.tiktoken", "*tokenizer*.model", "vocab*", "merges.txt", "special_tokens_map.json",
    "added_tokens.json", "config.json", "generation_config.json", "chat_template*", "*.jinja", "*.py",
)  # fmt: skip
"""Files of a model that the load generator's tokenizer is made of."""


@dataclass(frozen=True)
class Item:
    """One thing to stage. ``name`` is that of its record.

    ``id`` is a hub id, an image reference, a file's name, or an engine and its packages;
    ``revision`` a commit or branch of the hub; ``bytes`` where the catalog knows them. An image that is
    made here (``derived``) is made of ``base`` and ``packages``.
    """

    name: str
    kind: Kind
    id: str
    place: Place = "pool"
    revision: str | None = None
    bytes: int | None = None
    weights: WeightFile | None = None
    base: str = ""
    packages: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What it is, for people."""
        if self.kind == "derived":
            return f"image {self.id} ({self.base} with {', '.join(self.packages)})"
        return f"{self.kind} {self.id}"

    @property
    def allow(self) -> tuple[str, ...]:
        """Patterns of the files that are staged; empty: all."""
        return TOKENIZER if self.kind == "tokenizer" else ()

    @property
    def ignore(self) -> tuple[str, ...]:
        """Patterns of files that are not."""
        return IGNORED if self.kind in ("model", "draft") else ()

    @property
    def link(self) -> str | None:
        """A plain path of it in the model cache, which commands name."""
        if self.kind not in ("model", "draft"):
            return None
        return hub_place(self.id, self.revision)


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "--", text)


def hub_item(kind: Kind, hub_id: str, revision: str | None, size: int | None = None) -> Item:
    """An item of the hub. Without a revision it is what ``main`` is when it is staged."""
    rev = revision or "main"
    short = rev[:12] if re.match(r"^[0-9a-f]{40}\Z", rev) else _safe(rev)
    place: Place = "client" if kind in ("dataset", "tokenizer") else "pool"
    return Item(f"{kind}--{_safe(hub_id)}--{short}", kind, hub_id, place, rev, size)


def image_item(ref: str) -> Item:
    """A container image."""
    digest = ref.partition("@sha256:")[2]
    return Item(f"image--{digest[:12] or _safe(ref)}", "image", ref)


def derived_item(deployment: Deployment) -> Item:
    """The image that staging makes of a deployment's image and packages."""
    name, base = str(deployment.used_image), str(deployment.image)
    short = name.partition(":")[2][:12]
    return Item(f"derived--{short}", "derived", name, base=base, packages=deployment.packages)


def _image_items(pool: Pool, launch: PlanLaunch) -> Iterator[Item]:
    """The images of a launch.

    :raises InputError: for an image that is only a channel's name.
    """
    deployment = deployment_of(launch.identity)
    if not deployment.image:
        return
    if deployment.image.startswith("channel:"):
        raise InputError(f"{deployment.image} is not resolved to an image", where=launch.recipe_id)
    # Where a Slurm pool's nodes load a file, docker or podman makes it of a base that it pulls itself.
    loads = pool.slurm is not None and pool.slurm.has_runtime
    if not (deployment.packages and loads):
        yield image_item(deployment.image)
    if deployment.packages:
        yield derived_item(deployment)


def items_of_launch(
    pool: Pool, launch: PlanLaunch, datasets: Mapping[str, Dataset] | None = None
) -> tuple[Item, ...]:
    """Everything that a launch and its points need on this pool, in a fixed order.

    :param datasets: by name, those of the points; left out: datasets are not asked for.
    :raises InputError: for an image that is only a channel's name.
    """
    if pool.launcher in ("endpoint", "simulated"):
        return ()
    identity = launch.identity
    found: dict[str, Item] = {}

    def add(item: Item) -> None:
        found.setdefault(item.name, item)

    for image in _image_items(pool, launch):
        add(image)
    if packages := identity["image"].get("packages"):
        words = " ".join([str(identity["engine"]), *packages])
        add(Item(f"packages--{_safe(words)}", "packages", words, "client"))
    model = load_catalog().models.get(str(identity["model"]))
    files = {file.sha256: file for file in model.weights} if model else {}
    for row in identity["weights"]:
        if row.get("sha256"):
            add(_weights_item(row, files.get(row["sha256"]), pool))
        elif row.get("hub_id"):
            known = [
                one for one in (model.checkpoints.values() if model else ()) if one.hub_id == row["hub_id"]
            ]
            size = next((one.bytes for one in known if one.bytes), None)
            add(hub_item("model", row["hub_id"], row.get("revision"), size))
            add(hub_item("tokenizer", row["hub_id"], row.get("revision")))
    draft = identity.get("speculative_detail") or {}
    if draft.get("draft_model"):
        add(hub_item("draft", draft["draft_model"], draft.get("draft_revision")))
    for name in sorted({dataset_of(point.identity) for point in launch.points} - {""}):
        dataset = (datasets or {}).get(name)
        if dataset is not None and dataset.hub_id:
            add(hub_item("dataset", dataset.hub_id, dataset.revision))
    return tuple(found.values())


def _weights_item(row: Mapping[str, Any], file: WeightFile | None, pool: Pool) -> Item:
    place: Place = "client" if pool.launcher == "process" else "pool"
    size = file.bytes if file else None
    return Item(f"weights--{row['sha256'][:12]}", "weights", row["file"], place, None, size, file)


def dataset_of(identity: Mapping[str, Any]) -> str:
    """The name of a point's dataset, or ""."""
    scenario = identity.get("scenario")
    found = scenario.get("dataset") if isinstance(scenario, dict) else None
    return str(found.get("name") if isinstance(found, dict) else found or "")


def items_of_plan(
    pool: Pool, launches: Iterable[PlanLaunch], datasets: Mapping[str, Dataset]
) -> tuple[Item, ...]:
    """The items of all launches of a plan on one pool, each once; images first, then what is made of them."""
    found: dict[str, Item] = {}
    for launch in launches:
        if launch.pool == pool.name:
            for item in items_of_launch(pool, launch, datasets):
                found.setdefault(item.name, item)
    rank = {"image": 0, "derived": 1}
    return tuple(sorted(found.values(), key=lambda item: rank.get(item.kind, 2)))
