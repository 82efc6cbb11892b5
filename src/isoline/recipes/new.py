"""A first recipe for a model that came out today: what the catalog knows, written down. Pure.

The skeleton has at most :data:`MAX_LINES` lines, passes `recipe check`, and says in comments what was
assumed. Arguments that make it fast come from its author: none are invented here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isoline.catalog.engines import Engine
from isoline.catalog.facts import load_catalog
from isoline.catalog.models import Checkpoint, Model
from isoline.catalog.skus import Sku
from isoline.errors import InputError
from isoline.recipes.engine_flags import FAMILIES, TRTLLM_CONFIG, topology_flags
from isoline.recipes.imports.common import Draft
from isoline.recipes.memory import weight_bytes
from isoline.recipes.topology import Role

MAX_LINES = 40

SHARE_FOR_WEIGHTS = 0.85
"""The assumption of the default topology: the rest of a device is for the KV cache and the engine."""

CONCURRENCY = (1, 4, 16, 64)
SCENARIO = "8k1k"


@dataclass(frozen=True)
class Wish:
    """What a person says; everything else the catalog knows. Keys of the catalog."""

    model: str
    engine: str
    sku: str
    precision: str
    variant: str | None = None
    kv: str | None = None
    image: str | None = None  # a channel, or a reference
    owner: str = "isoline"


@dataclass(frozen=True)
class Choice:
    """A topology, and why."""

    role: Role
    why: str


def skeleton(wish: Wish, channels: Mapping[str, str]) -> Draft:
    """The recipe.

    :param channels: channel -> image reference.
    :raises InputError: for what the catalog does not know and the wish does not say.
    """
    catalog = load_catalog()
    model, engine, sku = catalog.models[wish.model], catalog.engines[wish.engine], catalog.skus[wish.sku]
    checkpoint = _checkpoint(wish, model)
    image, image_why = _image(wish, engine, sku, channels)
    choice = default_topology(wish.engine, wish.precision, model, checkpoint, sku)
    kv, setting, kv_why = _kv(wish, engine, checkpoint)
    tree: dict[str, Any] = {"schema_version": 1, "model": wish.model}
    if checkpoint is not None and checkpoint.hub_id != model.hub_id:
        tree["checkpoint"] = checkpoint.hub_id
    role = {name: value for name, value in choice.role.model_dump().items() if value != 1 or name == "tp"}
    tree |= {
        "engine": wish.engine,
        "sku": wish.sku,
        "precision": {"weights": wish.precision, "kv": kv},
        "image": image,
        "topologies": [{"aggregated": role}],
    }
    if setting:
        tree["server"] = setting
    hub = checkpoint.hub_id if checkpoint else model.hub_id
    tree |= {
        "readiness": {"ready_s": 3600},
        "scenarios": {SCENARIO: {"concurrency": list(CONCURRENCY)}},
        "status": "unverified",
        "owner": wish.owner,
        "upstream": f"huggingface.co/{hub} (model card); no arguments were taken over yet",
    }
    name = f"{wish.engine}-{wish.sku}-{wish.precision}{f'-{wish.variant}' if wish.variant else ''}"
    head = (
        f"{model.name} on {engine.name}, {sku.name}. Made by `isoline recipe new`; nobody has run it.",
        f"Topology: {choice.why}.",
        f"KV cache: {kv_why}.",
        f"Image: {image_why}.",
        "Next: the engine's own arguments (server.args) from a public source, and that source in upstream.",
    )
    return Draft(f"{wish.model}/{name}", tree, head)


def _checkpoint(wish: Wish, model: Model) -> Checkpoint | None:
    """The checkpoint of the wished precision.

    :raises InputError: when there is none.
    """
    if wish.precision not in model.precisions:
        raise InputError(
            f"{wish.model} is not known at {wish.precision!r}, only {', '.join(model.precisions) or 'none'}",
            where="--precision",
            remedy="add the checkpoint to recipes/_catalog/models.yaml",
        )
    found = list(model.checkpoints_at(wish.precision).values())
    return next((item for item in found if item.hub_id == model.hub_id), found[0] if found else None)


def _image(wish: Wish, engine: Engine, sku: Sku, channels: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """(image, why).

    :raises InputError: when no image is known.
    """
    if wish.image is not None:
        if wish.image in channels:
            return {"channel": wish.image}, f"channel {wish.image}, as asked"
        return {"ref": wish.image}, "as asked"
    known = sku.readiness.get(wish.engine)
    # A channel's images are of one vendor's devices; where no public image is known none is taken for it.
    suffixes = {"NVIDIA": "", "AMD": "" if wish.engine == "atom" else "-rocm"}
    is_ready = not (known and known.missing) and not (wish.engine == "atom" and sku.vendor != "AMD")
    if engine.backend is None and sku.vendor in suffixes and is_ready:
        for kind in ("release", "nightly"):
            name = f"{wish.engine}-{kind}{suffixes[sku.vendor]}"
            if name in channels:
                return {"channel": name}, f"channel {name}, the {kind} of this engine for {sku.vendor}"
    why = f": {known.missing}" if known and known.missing else ""
    raise InputError(
        f"no channel is known for {wish.engine} on {wish.sku}{why}",
        where="recipes/channels.yaml",
        remedy="say --image CHANNEL or --image REF",
    )


def default_topology(
    engine: str, precision: str, model: Model, checkpoint: Checkpoint | None, sku: Sku
) -> Choice:
    """The smallest power of two of devices that holds the weights; one node where sizes are unknown.

    A device may give :data:`SHARE_FOR_WEIGHTS` of its memory to weights. Where a node is too small,
    several nodes as pipeline stages.
    """
    node = sku.devices_per_node or 1
    fact = load_catalog().precisions.get(precision)
    size = weight_bytes(
        precision,
        bits=fact.bits_per_value if fact else None,
        parameters=model.parameters_total,
        exact=checkpoint.bytes if checkpoint else None,
        size_gb=checkpoint.size_gb if checkpoint else None,
    )
    memory = sku.memory_bytes
    largest = _largest_tp(engine, model, node)
    if size.value is None or memory is None:
        missing = size.how if size.value is None else "memory of the SKU unknown"
        return Choice(Role(tp=largest), f"one node, as the sizes are not known ({missing})")
    rest = memory * SHARE_FOR_WEIGHTS
    for tp in _powers(largest):
        if size.value / tp <= rest:
            return Choice(
                Role(tp=tp),
                f"the smallest tp whose weights fit: {size.value / 1e9 / tp:.3g} GB a device, at most "
                f"{SHARE_FOR_WEIGHTS:.0%} of {memory / 1e9:.3g} ({size.how})",
            )
    stages = next(pp for pp in _powers(1 << 10) if size.value / (largest * pp) <= rest)
    return Choice(
        Role(tp=largest, pp=stages),
        f"{stages} stages of {largest} devices, as {size.value / 1e9:.4g} GB fit no single node ({size.how})",
    )


def _powers(end: int) -> list[int]:
    return [1 << power for power in range(end.bit_length()) if 1 << power <= end]


def _largest_tp(engine: str, model: Model, node: int) -> int:
    """The most devices that a stage can have: in a node, dividing the heads, and sayable to the engine."""
    shape = model.architecture
    for tp in reversed(_powers(node)):
        if shape is not None and shape.heads % tp:
            continue
        if FAMILIES.get(engine) is not None:
            try:
                topology_flags(engine, Role(tp=tp))
            except InputError:
                continue
        return tp
    return 1


def _kv(wish: Wish, engine: Engine, checkpoint: Checkpoint | None) -> tuple[str, dict[str, Any], str]:
    """(precision of the KV cache, the setting that says so, why). The engine is told, not left to default.

    :raises InputError: when the engine cannot be told the wished precision.
    """
    dtype = engine.kv_dtype
    own = checkpoint.kv_precision if checkpoint else None
    wanted = wish.kv or own or "bf16"
    why = "as asked" if wish.kv else "what the checkpoint asks for" if own else "unquantised, the safe start"
    if dtype is None:
        taken = set(engine.kv_precision_args.values())
        if wish.kv is None and len(taken) == 1:
            return taken.pop(), {}, "what the engine takes where nothing is said"
        return wanted, {}, f"{why}; the catalog does not know how {engine.name} is told"
    values = [given for given, exact in dtype.values.items() if exact == wanted]
    if not values:
        known = sorted({exact for exact in dtype.values.values() if exact})
        raise InputError(
            f"{engine.name} has no KV cache of {wanted}; known: {', '.join(known)}",
            where="--kv" if wish.kv else "precision.kv",
            remedy="say another --kv",
        )
    if dtype.where == "args":
        return wanted, {"args": {dtype.name: values[0]}}, why
    content: Any = values[0]
    for part in reversed(dtype.name.split(".")):
        content = {part: content}
    return wanted, {"config_files": {TRTLLM_CONFIG: content}}, why
