"""InferenceX's aggregated rows with a fixed length (``agg_*.json``), single node and multi-node. Pure.

Latencies are seconds; throughput is tokens/s/GPU, of all GPUs for a single pool. Where prefill and
decode are apart, input is per prefill GPU and output per decode GPU: both are converted to all GPUs
where the role sizes are known and add up to the total, else they stay null.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from isoline.results.importers.foreign import (
    ForeignError,
    ForeignPoint,
    Role,
    Topology,
    boolean,
    number,
    one_role,
    stated_count,
    text,
    whole,
)
from isoline.results.importers.statistics import flat, put, put_interactivity, put_times

CLIENT = "inferencex-fixed"
ADDS_UP = 0.01
"""Input and output must add up to the total this closely for a conversion to be believed."""

_IDENTITY = ("image", "recipe_fingerprint", "router", "kv_p2p_transfer", "prefill_hw", "decode_hw", "runner")


def read(row: Mapping[str, Any], index: int) -> ForeignPoint:
    """One aggregated row.

    :raises ForeignError: when it says no lengths.
    """
    point = ForeignPoint(index, row, CLIENT)
    put_names(point, row)
    point.isl, point.osl = whole(row.get("isl")), whole(row.get("osl"))
    if point.isl is None or point.osl is None:
        raise ForeignError("not_a_point", "neither isl and osl nor an agentic scenario")
    put_topology(point, row)
    put_latencies(point, row)
    put_throughput(point, row)
    put_power(point, row)
    if all(number(row.get(name)) in (None, 0.0) for name in ("tput_per_gpu", "output_tput_per_gpu")):
        point.completed = 0
    return point


def put_names(point: ForeignPoint, row: Mapping[str, Any]) -> None:
    """Names, concurrency (``users`` in older rows) and what else identifies a row."""
    point.model = text(row.get("infmax_model_prefix")) or text(row.get("model_prefix"))
    path = text(row.get("model"))
    # The path names the checkpoint; the prefix only the family. Both are handed on.
    if path is not None:
        point.identity["model_path"] = path
    point.model = point.model or path
    point.engine = stated(row, "framework")
    point.sku = stated(row, "hw", "hardware")
    point.precision = text(row.get("precision"))
    point.speculative = text(row.get("spec_decoding")) or text(row.get("spec_method")) or "none"
    point.concurrency = stated_count(row, "conc", "users")
    point.identity |= {name: row[name] for name in _IDENTITY if row.get(name) not in (None, "")}


def stated(row: Mapping[str, Any], *keys: str) -> str | None:
    """The first of these that has a text; "" where a row has the key with nothing in it."""
    found = [row[key] for key in keys if key in row]
    return next((name for value in found if (name := text(value))), "" if found else None)


# --- topology ---------------------------------------------------------------------------------


def put_topology(point: ForeignPoint, row: Mapping[str, Any]) -> None:
    """The topology, from tp, pp, pcp and workers; never from tp × ep, nor from a file name."""
    stated_count(row, "tp")
    multi = boolean(row.get("is_multinode"))
    point.multi_node = multi
    if "prefill_tp" not in row and "decode_tp" not in row:
        role = _role(row, "")
        point.topology = one_role(role) if role else None
        return
    prefill, decode = _role(row, "prefill_"), _role(row, "decode_")
    stated = whole(row.get("num_prefill_gpu")), whole(row.get("num_decode_gpu"))
    split = boolean(row.get("disagg"))
    if split is None:
        split = prefill is not None and decode is not None and prefill != decode
        point.notes.append(f"disagg is not said; taken as {str(split).lower()} from the roles")
    if split and stated[1] == 0 and prefill is not None:
        split = False
        point.notes.append("no decode GPU: one pool does both")
        decode = prefill
    if not split:
        role = decode or prefill
        point.topology = one_role(role) if role else None
        if role is not None:
            _check_mirror(point, role, stated)
        return
    if prefill is None or decode is None:
        return
    point.topology = _split(point, row, prefill, decode, stated)


def _role(row: Mapping[str, Any], prefix: str) -> Role | None:
    tp = whole(row.get(f"{prefix}tp"))
    if tp is None or tp < 1:
        return None
    ways = tp if boolean(row.get(f"{prefix}dp_attention")) else 1
    workers, pp, ep, dcp, pcp = (_size(row, keys) for keys in _size_keys(prefix))
    return _one(workers, tp, pp, ep, ways, dcp, pcp)


def _size(row: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    for key in keys:
        value = row.get(key)
        if value is not None and (found := whole(value)) is not None:
            return max(found, 1)  # ep 0 and workers 0 mean: not used, not counted
    return 1


_SIZES = (
    ("num_workers", "num_worker"),
    ("pp", "pp_size"),
    ("ep", "ep_size"),
    ("dcp_size", "dcp"),
    ("pcp_size", "pcp"),
)


@cache
def _size_keys(prefix: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(prefix + name for name in names) for names in _SIZES)


@lru_cache(maxsize=1 << 12)
def _one(workers: int, tp: int, pp: int, ep: int, dpa: int, dcp: int, pcp: int) -> Role:
    return Role(workers=workers, tp=tp, pp=pp, ep=ep, dpa=dpa, dcp=dcp, pcp=pcp)


def _check_mirror(point: ForeignPoint, role: Role, stated: tuple[int | None, int | None]) -> None:
    """A single pool is there under both roles: it is counted once."""
    wrong = [value for value in stated if value not in (None, 0, role.gpus)]
    if not wrong:
        return
    how = "tp × ep" if wrong[0] == role.tp * role.ep else "another count"
    point.notes.append(f"the row says {wrong[0]} GPUs ({how}); tp × pp × workers is {role.gpus}")


def _split(
    point: ForeignPoint,
    row: Mapping[str, Any],
    prefill: Role,
    decode: Role,
    stated: tuple[int | None, int | None],
) -> Topology:
    label = f"p{prefill.label()}_d{decode.label()}"
    workers = [whole(row.get(f"{name}_num_workers")) for name in ("prefill", "decode")]
    if stated[0] is not None and stated[0] == stated[1] and not all(workers):
        point.marks.add("role_sizes_unknown")
        point.notes.append(f"both roles say {stated[0]} GPUs and no workers: one pool written twice")
        return Topology(f"{label}-unknown", None)
    sizes = (prefill.gpus, decode.gpus)
    if any(said is not None and said != size for said, size in zip(stated, sizes, strict=True)):
        point.marks.add("role_sizes_unknown")
        point.notes.append(f"GPUs by role are said as {stated}, but workers × tp × pp give {sizes}")
        return Topology(f"{label}-{stated[0]}+{stated[1]}", None)
    return Topology(label, sum(sizes), *sizes)


# --- numbers ----------------------------------------------------------------------------------


def put_latencies(point: ForeignPoint, row: Mapping[str, Any]) -> None:
    """Latencies in seconds. Their ITL are gaps between chunks, which we call ICL."""
    for theirs, ours in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "icl"), ("e2el", "e2el")):
        put_times(point, ours, flat(row, theirs), 1000)
    put_interactivity(point, flat(row, "intvty"))


def put_throughput(point: ForeignPoint, row: Mapping[str, Any]) -> None:
    """Throughput of all GPUs; see the module's text for roles."""
    total, output, given = (
        number(row.get(name)) for name in ("tput_per_gpu", "output_tput_per_gpu", "input_tput_per_gpu")
    )
    put(point, "total_tps_per_gpu", total)
    topology = point.topology
    if topology is None or not topology.is_split:
        put(point, "output_tps_per_gpu", output)
        put(point, "input_tps_per_gpu", given)
        if total and output and given and abs(output + given - total) > ADDS_UP * total:
            point.notes.append("input and output per GPU do not add up to the total: of other GPU counts")
            for name in ("output_tps_per_gpu", "input_tps_per_gpu"):
                del point.values[name]
        return
    gpus, prefill, decode = topology.gpus, topology.prefill_gpus, topology.decode_gpus
    if not gpus or not prefill or not decode:
        point.notes.append("input and output per role GPU: the role sizes are not known; left out")
        return
    if output is None or given is None or total is None:
        return
    converted = output * decode / gpus, given * prefill / gpus
    if abs(sum(converted) - total) <= ADDS_UP * total:
        put(point, "output_tps_per_gpu", converted[0])
        put(point, "input_tps_per_gpu", converted[1])
        point.notes.append(f"output was per {decode} decode GPUs, input per {prefill} prefill GPUs")
    elif abs(output + given - total) <= ADDS_UP * total:
        put(point, "output_tps_per_gpu", output)
        put(point, "input_tps_per_gpu", given)
    else:
        point.notes.append("input and output per role GPU do not add up to the total; left out")


def put_power(point: ForeignPoint, row: Mapping[str, Any]) -> None:
    """Power and energy, only where the row says that they are of the measured window.

    Before schema 2 power is the mean over the whole job and energy per token that of one role.
    """
    known = [
        name for name in ("avg_power_w", "joules_per_output_token", "joules_per_total_token") if name in row
    ]
    if not known:
        return
    if whole(row.get("power_metric_schema_version")) != 2 or whole(row.get("power_valid")) != 1:
        point.notes.append("power: not valid, or of the whole job and not of the window; left out")
        return
    put(point, "power_w_per_gpu", row.get("avg_power_w"))
    put(point, "energy_j", row.get("total_gpu_energy_j"))
    for kind in ("total", "output", "input"):
        put(point, f"j_per_{kind}_token", row.get(f"joules_per_{kind}_token"))
