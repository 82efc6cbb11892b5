"""InferenceX's master files -> recipes: topology, image and concurrencies. Pure.

A master file holds no engine arguments (they are in shell scripts), no KV precision and no draft
length, so these recipes are `incomplete`: they can be planned and compared, not started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.errors import InputError
from isoline.recipes.engine_flags import topology_flags
from isoline.recipes.imports.common import (
    Draft,
    Imported,
    Line,
    UnknownName,
    Weights,
    engine_of,
    image_ref,
    sku_of,
    unique_id,
    weights_of,
)
from isoline.recipes.imports.inferencex_rows import Clash, Pool, Row, clashes, rows_of, unknown_labels
from isoline.recipes.topology import Role, Topology


@dataclass
class _Part:
    """One recipe in the making: topologies by label, each with its settings and concurrencies."""

    topologies: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    levels: dict[str, dict[str, set[int]]] = field(default_factory=dict)  # scenario -> label -> levels

    def fits(self, label: str, settings: tuple[str, ...]) -> bool:
        """Whether a topology of that label can be in this recipe: a recipe has one launch for each label."""
        return self.settings.get(label, settings) == settings


def import_master(
    masters: Mapping[str, Mapping[str, Any]],
    runners: Mapping[str, Any],
    *,
    revision: str | None = None,
    owner: str = "isoline",
) -> Imported:
    """Recipes of all configs, and everything that is wrong with the files.

    :param masters: name of the file -> its content.
    :param runners: the list of machines: ``labels`` -> names.
    :param revision: commit of the files, for `upstream`.
    """
    done = Imported()
    configs: dict[tuple[str, str], Mapping[str, Any]] = {}
    rows: list[Row] = []
    for file, master in masters.items():
        for key, config in master.items():
            if any(known == key for _, known in configs):
                done.lines.append(
                    Line("left_out", f"{file}: {key}", "another file has a config of this name")
                )
                continue
            try:
                found = list(rows_of(file, key, config))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                done.lines.append(
                    Line("left_out", f"{file}: {key}", f"not the form of a config: {_words(error)}")
                )
                continue
            configs[(file, key)] = config
            rows += found
    for (file, key), label in unknown_labels(configs, runners).items():
        done.lines.append(
            Line(
                "unknown_label",
                f"{file}: {key}",
                f"no machine has the label {label!r}",
                remedy="a recipe names a SKU, not machines: it is imported all the same",
            )
        )
    dropped = _report_clashes(clashes(rows, configs), done)
    by_config: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if id(row) not in dropped:
            by_config.setdefault((row.file, row.config), []).append(row)
    for where, config in configs.items():
        if where in by_config:
            _import_config(where, config, by_config[where], done, revision, owner)
    _routers(rows, done)
    return done


def _words(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _report_clashes(found: list[Clash], done: Imported) -> set[int]:
    """Report clashes; the rows (by identity) that are exactly another one are dropped."""
    dropped = set()
    for clash in found:
        row, earlier = clash.row, clash.earlier
        levels = ", ".join(f"c{level}" for level in row.concurrencies)
        other = f"{row.scenario} {_label_of(row)} {levels} of {earlier.config}"
        if clash.is_exact:
            dropped.add(id(row))
            done.lines.append(
                Line(
                    "duplicate",
                    f"{row.file}: {row.config}",
                    f"exactly {other}",
                    points=len(row.concurrencies),
                    remedy="left out here",
                )
            )
        else:
            done.lines.append(
                Line(
                    "name_collision",
                    f"{row.file}: {row.config}",
                    f"the reference gives it the name of {other}",
                    points=len(row.concurrencies),
                    remedy="here each has an id of its own",
                )
            )
    return dropped


def role_of(pool: Pool, *, counts_ranks: bool) -> dict[str, int]:
    """A side as a role. Context-parallel prefill (pcp) takes devices as tp does.

    :param counts_ranks: the engine's own tp is the size of one attention rank (vLLM): with DP attention
        experts then lie on tp × dp devices. Where more experts' devices are declared than tp, the source
        has written the engine's tp, and its workers, if they are just the ranks, are one worker of ours.
        All such rows were compared with the recipes they name (InferenceX @843c6254): a test.
    """
    tp, workers, dp = pool.tp * pool.pcp, pool.workers, 1
    if counts_ranks and is_in_ranks(pool):
        dp = pool.ep // tp
        workers = 1 if workers * tp == pool.ep else workers
        tp = pool.ep
    elif pool.dp_attention:
        dp = tp
    full = {"workers": workers, "tp": tp, "pp": pool.pp, "ep": pool.ep, "dp_attention": dp, "dcp": pool.dcp}
    return {name: value for name, value in full.items() if value != 1 or name == "tp"}


def is_in_ranks(pool: Pool) -> bool:
    """Whether a side's tp can only be that of one attention rank: experts lie on more devices."""
    tp = pool.tp * pool.pcp
    return pool.dp_attention and pool.ep > tp and pool.ep % tp == 0


def topology_of(row: Row, *, counts_ranks: bool = False) -> dict[str, dict[str, int]]:
    """The topology of a row, as a recipe says it."""
    if row.is_aggregated:
        return {"aggregated": role_of(row.first, counts_ranks=counts_ranks)}
    assert row.second is not None
    return {
        "prefill": role_of(row.first, counts_ranks=counts_ranks),
        "decode": role_of(row.second, counts_ranks=counts_ranks),
    }


def _label_of(row: Row) -> str:
    try:
        return _label(topology_of(row))
    except ValueError:
        return "with a topology that cannot be"


def _label(topology: Mapping[str, Mapping[str, int]]) -> str:
    return Topology(**{name: Role(**role) for name, role in topology.items()}).label()


def _draft_tokens(row: Row) -> int | None:
    text = row.setting("DECODE_MTP_SIZE") or ""
    return int(text) if text.isdigit() and int(text) > 0 else None


def _group(row: Row) -> tuple[Any, ...]:
    """What all topologies of one recipe share."""
    pinned = row.setting("SYNTHETIC_ACCEPTANCE") == "true"
    return (
        row.speculative,
        _draft_tokens(row) if row.speculative != "none" else None,
        pinned and row.speculative != "none",
        row.offload,
        row.backend,
        row.backend_version,
        row.dram_utilization if row.offload != "none" else None,
        None if row.is_aggregated else row.transfer,
        row.router,
    )


def _import_config(
    where: tuple[str, str],
    config: Mapping[str, Any],
    rows: list[Row],
    done: Imported,
    revision: str | None,
    owner: str,
) -> None:
    source = f"{where[0]}: {where[1]}"
    points = sum(len(row.concurrencies) for row in rows)
    try:
        weights = weights_of(config["model"], config["precision"])
        engine, sku = engine_of(config["framework"]), sku_of(config["runner"])
    except UnknownName as error:
        done.lines.append(Line("unknown_name", source, str(error), points=points, remedy=error.remedy))
        return
    except KeyError as error:
        done.lines.append(Line("left_out", source, f"{error} is missing", points=points))
        return
    parts = _parts(rows, engine, source, done)
    for number, (group, part) in enumerate(parts, start=1):
        count = sum(len(levels) for by_label in part.levels.values() for levels in by_label.values())
        base = f"{weights.model}/{engine}-{sku}-{weights.precision}"
        variant = _variant(where[1], config, engine, sku, group, [item for item, _ in parts])
        wanted = f"{base}-{variant}" if variant else base
        recipe_id = unique_id(wanted, (draft.recipe_id for draft in done.drafts))
        upstream = f"InferenceX{f' @{revision}' if revision else ''} configs/{where[0]}: {where[1]}"
        if len(parts) > 1:
            upstream += f", part {number} of {len(parts)}"
        tree = _tree(weights, engine, sku, config, group, part, upstream, owner)
        done.add(Draft(recipe_id, tree, tuple(_head(group, part, source))), source, count)
    _differs(rows, engine, source, done)


def _parts(rows: list[Row], engine: str, source: str, done: Imported) -> list[tuple[tuple[Any, ...], _Part]]:
    """The recipes that a config becomes: one for each group, more where one label has several launches."""
    parts: list[tuple[tuple[Any, ...], _Part]] = []
    for row in rows:
        topology = topology_of(row, counts_ranks=_counts_ranks(engine))
        try:
            label = _label(topology)
            for role in topology.values():
                topology_flags(engine, Role(**role))
        except ValueError as error:
            text = str(error).splitlines()
            what = next((line.strip() for line in text if "Value error" in line), text[0]).split(" [")[0]
            done.lines.append(Line("left_out", source, what, points=len(row.concurrencies)))
            continue
        except InputError as error:
            what = f"{row.scenario} {label}: {error.what}"
            done.lines.append(Line("left_out", source, what, points=len(row.concurrencies)))
            continue
        group = _group(row)
        settings = tuple(item for pool in (row.first, row.second) for item in (pool.settings if pool else ()))
        part = next((p for g, p in parts if g == group and p.fits(label, settings)), None)
        if part is None:
            part = _Part()
            parts.append((group, part))
        part.topologies[label], part.settings[label] = topology, settings
        levels = part.levels.setdefault(row.scenario, {}).setdefault(label, set())
        for level in row.concurrencies:
            if level in levels:
                done.lines.append(
                    Line("duplicate", source, f"{label} {row.scenario} c{level} is there twice", points=1)
                )
            levels.add(level)
    return parts


def _variant(
    key: str,
    config: Mapping[str, Any],
    engine: str,
    sku: str,
    group: tuple[Any, ...],
    groups: list[tuple[Any, ...]],
) -> str:
    """The words of a config's name that the recipe's own does not say, and what tells its parts apart."""
    said = {str(config.get("model-prefix")), str(config.get("precision"))}
    for text in (str(config["framework"]), engine, sku, str(config["runner"]).removeprefix("cluster:")):
        said |= set(text.split("-"))
    rest = key.removeprefix(f"{config.get('model-prefix')}-")
    words = [word for word in rest.split("-") if word not in said]
    speculative, draft, _, _, backend, version, *_ = group
    if len({item[0] for item in groups}) > 1 and not any(word.startswith(speculative) for word in words):
        words.append("stp" if speculative == "none" else speculative)
    if len({item[1] for item in groups if item[0] == speculative}) > 1:
        words.append(f"draft{draft}" if draft else "draft-unknown")
    if len({item[4:6] for item in groups}) > 1:
        words.append(f"{backend}{f'-{version}' if version else ''}" if backend else "no-offload")
    return "-".join(words).lower().replace("_", "-")


def _tree(
    weights: Weights,
    engine: str,
    sku: str,
    config: Mapping[str, Any],
    group: tuple[Any, ...],
    part: _Part,
    upstream: str,
    owner: str,
) -> dict[str, Any]:
    speculative, draft, pinned, offload, backend, _, utilization, transfer, _ = group
    unknown = ["server.args", "precision.kv"]
    tree: dict[str, Any] = {"schema_version": 1, "model": weights.model}
    if weights.checkpoint is not None:
        tree["checkpoint"] = weights.checkpoint
    tree |= {
        "engine": engine,
        "sku": sku,
        "precision": {"weights": weights.precision, "kv": "unknown"},
        "image": {"ref": image_ref(str(config["image"]))},
        "topologies": list(part.topologies.values()),
    }
    if speculative != "none":
        method = "draft" if speculative == "draft_model" else speculative
        tree["speculative"] = {"method": method}
        if draft is not None:
            tree["speculative"]["draft_tokens"] = draft
        else:
            unknown.append("speculative.draft_tokens")
        if pinned:
            tree["speculative"]["acceptance"] = "pinned"
    if offload != "none":
        tree["kv_offload"] = {"tier": offload, "backend": backend}
        if utilization is not None:
            tree["kv_offload"]["utilization"] = float(utilization)
    if transfer is not None and any("decode" in item for item in part.topologies.values()):
        tree["kv_transfer"] = {"connector": transfer}
    tree["scenarios"] = {
        name: {"concurrency": _concurrency(by_label, part)} for name, by_label in part.levels.items()
    }
    return tree | {"incomplete": unknown, "status": "unverified", "owner": owner, "upstream": upstream}


def _concurrency(by_label: Mapping[str, set[int]], part: _Part) -> list[int] | dict[str, list[int]]:
    """One list where every topology has the same, else a list for each."""
    lists = {label: sorted(levels) for label, levels in by_label.items()}
    if set(lists) == set(part.topologies) and len({tuple(item) for item in lists.values()}) == 1:
        return next(iter(lists.values()))
    return lists


def _head(group: tuple[Any, ...], part: _Part, source: str) -> list[str]:
    """What the source says and a recipe has no field for, as a comment."""
    *_, router = group
    head = [f"Imported from InferenceX (Apache-2.0), {source}: topology, image and concurrencies only."]
    if router:
        head.append(f"Router: {router}.")
    if group[5]:
        head.append(f"KV offload backend {group[4]} {group[5]}.")
    for label, settings in part.settings.items():
        head += [f"{label}: {item}" for item in settings]
    return head


def _counts_ranks(engine: str) -> bool:
    spelling = load_catalog().engines[engine].topology
    return spelling is not None and spelling.tp_counts == "attention_rank"


def _differs(rows: list[Row], engine: str, source: str, done: Imported) -> None:
    """Report facts of a config's rows that a recipe says otherwise."""
    sides = [pool for row in rows for pool in (row.first, row.second) if pool]
    ranks = sorted({(pool.workers, pool.tp, pool.ep) for pool in sides if is_in_ranks(pool)})
    if ranks and _counts_ranks(engine):
        words = ", ".join(f"{workers} × tp {tp}, ep {ep}" for workers, tp, ep in ranks)
        what = f"{words} with DP attention: tp is that of one rank, a worker has ep devices"
        done.lines.append(Line("differs", source, what))
    pcp = sorted({pool.pcp for pool in sides if pool.pcp > 1})
    if pcp:
        ways = ", ".join(map(str, pcp))
        done.lines.append(
            Line("differs", source, f"context-parallel prefill over {ways} devices is written as tp {ways}")
        )


def _routers(rows: list[Row], done: Imported) -> None:
    """Report the routers, whose commands are not in the files: one line for each, not for each config."""
    users: dict[str, set[str]] = {}
    for row in rows:
        if row.router:
            users.setdefault(row.router, set()).add(row.config)
    for router, configs in sorted(users.items()):
        done.lines.append(
            Line("not_said", f"{len(configs)} configs", f"router {router}: its command is not in the files")
        )
