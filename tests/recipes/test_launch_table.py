"""How many servers are started for the reference's single-node rows; docs/evidence/launches.md says it.

Rows and topologies come from its master files, command lines from the recorded ones; a launch of ours
is one of a plan. ISOLINE_WRITE_GOLDEN=1 writes the table anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Container, Pool
from isoline.recipes.imports.common import read_tree
from isoline.recipes.imports.inferencex import import_master
from isoline.recipes.imports.inferencex_rows import Row, rows_of
from isoline.recipes.load import LoadedRecipe, load_recipe, recipe_ids
from isoline.recipes.schema import Recipe

MASTERS = ("nvidia-master.yaml", "amd-master.yaml")
TABLE = "docs/evidence/launches.md"
RECORDED_TOPOLOGY = (
    *("script", "tp", "pp", "dcp", "pcp", "ep", "dp_attention", "spec_decoding"),
    *("kv_offloading", "kv_offload_backend", "kv_offload_backend_version", "router"),
)

HEAD = """\
# Launches

How many servers are started for the same measurements: by the reference (InferenceX @843c6254), and by a
plan of ours. Only single-node configurations. `tests/recipes/test_launch_table.py` counts all of it anew
from the files beside the project and fails where a figure here is no longer true, so there is no date.

"""

TAIL = """
What the table does and does not say:

- The 151 + 88 topologies are what is needed if a server's arguments do not depend on the concurrency. The
  recorded command lines show that they do: the same topology is started with other limits (graph sizes,
  running requests) at its lowest, middle and highest concurrency. One launch a topology is therefore the
  least, not what measures the same thing.
- Our count for the imported recipes is so low for that reason alone: a master file holds no arguments, so
  these recipes are incomplete and can be planned, not started.
- Our count for our own recipes is the honest one: a launch is shared where the rendered command is the
  same, and nowhere else. With default bands it saves 76 of 469 starts, and it is exactly the count of
  distinct recorded command lines. The saving is small because only the lowest, a middle and the highest
  concurrency of a topology were recorded, where arguments differ most.
- `launch_bands: [max]` would save 286 of 469, at the price that every server is sized for the highest
  concurrency: other figures than the reference's, so it is a choice of the recipe and not the default.
- Concurrencies between the recorded ones are not in the files; nothing is said about them here.
"""


@dataclass(frozen=True)
class Pair:
    """A count for fixed lengths and one for agentic scenarios."""

    fixed: int
    agentic: int

    def __str__(self) -> str:
        return f"{self.fixed} + {self.agentic}"


def pair(items: Iterable[tuple[bool, Any]]) -> Pair:
    """Distinct items, by whether they are agentic."""
    found = set(items)
    return Pair(sum(not agentic for agentic, _ in found), sum(agentic for agentic, _ in found))


@dataclass(frozen=True)
class Counts:
    """Everything that the table says."""

    rows: Pair
    topologies: Pair
    left_out: int  # rows that are exactly others
    imported: int  # recipes
    imported_points: Pair
    imported_launches: Pair
    runs: Pair
    recorded_topologies: Pair
    scriptless: int  # topologies of configs without a recorded command
    shared: int  # topologies that another config has too, with the same script
    lines: Pair
    recipes: int
    points: Pair
    matched_runs: Pair
    matched_lines: Pair
    launches: Pair
    widest: Pair


def _pool(sku: str) -> Pool:
    """A pool on which every recipe of a SKU can be planned."""
    return Pool(
        schema_version=1,
        name=sku,
        launcher="container",
        sku=sku,
        accelerators=load_catalog().skus[sku].devices_per_node or 8,
        nodes=1,
        node_memory_gb=2000,
        container=Container(device_profile="nvidia", model_cache="/srv/models", scratch="/srv/isoline"),
    )


def topology_key(row: Row) -> tuple[Any, ...]:
    """What decides a server of the reference, the concurrency aside."""
    return (row.file, row.config, row.scenario, row.first, row.speculative, row.offload, row.backend)


def command_line(run: dict[str, Any]) -> str:
    """All that starts a recorded server: script, words, files, environment, sidecars and image."""
    names = ("script", "server_argv", "config_files", "env", "sidecars", "image")
    return json.dumps([run[name] for name in names], sort_keys=True)


@pytest.fixture(scope="module")
def data(project_root: Path) -> Path:
    """The public files beside the project."""
    folder = project_root.parent / "shared/data"
    for name in ("inferencex", "recorded"):
        if not (folder / name).is_dir():
            pytest.skip(f"the public files are not beside the project (../shared/data/{name})")
    return folder


@pytest.fixture(scope="module")
def plan_counts(project_root: Path, planning: Any) -> Callable[[list[LoadedRecipe]], tuple[Pair, Pair]]:
    """``plan_counts(recipes)``: (points, launches) of one plan of everything they are meant for."""

    def count(recipes: list[LoadedRecipe]) -> tuple[Pair, Pair]:
        pools = {item.recipe.sku: _pool(item.recipe.sku) for item in recipes}
        channels = {item.recipe.image.channel for item in recipes if item.recipe.image.channel}
        images = dict.fromkeys(channels, "example.org/image:1")
        plan = planning.plan_of(project_root, *recipes, pools=pools, images=images)
        assert plan.excluded == []
        planned = [(launch, point) for launch in plan.launches for point in launch.points]
        return (
            pair((p.scenario.startswith("agentic"), p.point_id) for _, p in planned),
            pair((p.scenario.startswith("agentic"), launch.launch_digest) for launch, p in planned),
        )

    return count


@pytest.fixture(scope="module")
def counts(project_root: Path, data: Path, plan_counts: Any, support: Callable[[str], ModuleType]) -> Counts:
    """All figures, from the files."""
    masters = {name: read_tree(data / "inferencex" / name) for name in MASTERS}
    expanded = {
        (name, key): list(rows_of(name, key, config))
        for name, configs in masters.items()
        for key, config in configs.items()
    }
    single = {where: rows for where, rows in expanded.items() if all(row.second is None for row in rows)}
    rows = [row for found in single.values() for row in found]
    # No config has both kinds, so that the import of these is the import of all single-node rows.
    assert len(rows) == sum(row.second is None for found in expanded.values() for row in found)
    chosen = {name: {key: masters[name][key] for file, key in single if file == name} for name in MASTERS}
    done = import_master(chosen, read_tree(data / "inferencex/runners.yaml"), revision="843c6254")
    imported = [LoadedRecipe(draft.recipe_id, Recipe.model_validate(draft.tree)) for draft in done.drafts]
    imported_points, imported_launches = plan_counts(imported)

    recorded = support("recorded")
    tools, _ = recorded.tools(project_root)
    runs = recorded.read_lines(data / "recorded/server_commands.jsonl")

    def agentic(run: dict[str, Any]) -> bool:
        return bool(run["scenario"] == "agentic")

    def topology(run: dict[str, Any]) -> str:
        return json.dumps([run[name] for name in RECORDED_TOPOLOGY])

    configs_of: dict[str, set[str]] = {}
    for run in runs:
        # Where two configs fit, both are named.
        fitting = run.get("config_key_candidates") or [run["config_key"]]
        configs_of.setdefault(topology(run), set()).update(fitting)
    named = {name for names in configs_of.values() for name in names}
    ours = [load_recipe(project_root, recipe_id) for recipe_id in recipe_ids(project_root)]
    paths = {item.recipe_id: recorded.paths_of(item.recipe.upstream) for item in ours}
    own = [item for item in ours if paths[item.recipe_id][:1] and "single_node/" in paths[item.recipe_id][0]]
    points, launches = plan_counts(own)
    widest = [
        LoadedRecipe(item.recipe_id, item.recipe.model_copy(update={"launch_bands": ["max"]})) for item in own
    ]
    keys = {
        (paths[item.recipe_id][0], topology.label(), level, item.recipe.kv_offload.backend)
        for item in own
        for topology in item.recipe.topologies
        for use in item.recipe.scenarios.values()
        for level in use.at(topology.label())
    }
    matched = []
    for run in runs:
        label = tools.topology_of(tools.command_of(run).role)[0]
        backend = run["kv_offload_backend"] if run["kv_offloading"] not in (None, "none") else None
        if (run["script"], label, run["concurrency"], backend) in keys:
            matched.append((agentic(run), label, run))
    return Counts(
        rows=pair((row.scenario == "agentic", number) for number, row in enumerate(rows)),
        topologies=pair((row.scenario == "agentic", topology_key(row)) for row in rows),
        left_out=sum(line.points or 0 for line in done.lines if line.kind == "duplicate"),
        imported=len(imported),
        imported_points=imported_points,
        imported_launches=imported_launches,
        runs=pair((agentic(run), number) for number, run in enumerate(runs)),
        recorded_topologies=pair((agentic(run), topology(run)) for run in runs),
        scriptless=len({topology_key(row) for row in rows if row.config not in named}),
        shared=sum(len(names) - 1 for names in configs_of.values()),
        lines=pair((agentic(run), (topology(run), command_line(run))) for run in runs),
        recipes=len(own),
        points=points,
        matched_runs=pair((is_agentic, number) for number, (is_agentic, _, _) in enumerate(matched)),
        matched_lines=pair((is_agentic, (label, command_line(run))) for is_agentic, label, run in matched),
        launches=launches,
        widest=plan_counts(widest)[1],
    )


def table(found: Counts) -> str:
    """The table as it stands in the file."""
    lines = [
        ("The reference: servers started", found.rows, "it starts one for each row of its matrix"),
        (
            "The reference: distinct topologies",
            found.topologies,
            "rows that differ in the concurrency alone counted once (config, sizes, drafting, offload)",
        ),
        (
            "Ours: launches of the imported recipes, default bands",
            found.imported_launches,
            f"{found.imported} recipes, {found.imported_points} points; the {found.left_out} rows that are "
            f"exactly others are left out, and with them two topologies",
        ),
        (
            "Recorded: server starts",
            found.runs,
            "lowest, a middle and highest concurrency of each topology that has a script",
        ),
        (
            "Recorded: distinct topologies",
            found.recorded_topologies,
            f"of the 151 + 88, {found.scriptless} belong to a config without a script, {found.shared} are "
            f"also another config's, with the same script",
        ),
        (
            "Recorded: distinct command lines per script and topology",
            found.lines,
            "words, files, environment, sidecars and image; equal ones could share a server",
        ),
        (
            "The reference: servers for the points of our own recipes",
            found.matched_runs,
            f"one for each of the recorded starts that our {found.recipes} single-node recipes repeat",
        ),
        (
            "Recorded: distinct command lines among these",
            found.matched_lines,
            "the fewest servers that measure the same",
        ),
        (
            "Ours: launches of our own recipes, default bands",
            found.launches,
            "each concurrency is sized for itself; what renders the same is one launch",
        ),
        (
            "Ours: the same with `launch_bands: [max]`",
            found.widest,
            "for comparison: one server for each topology and scenario, sized for the highest concurrency",
        ),
    ]
    rows = [f"| {what} | {number} | {why} |" for what, number, why in lines]
    return "\n".join(["| what | fixed + agentic | why this number |", "|---|---|---|", *rows]) + "\n"


def test_the_reference_starts_far_more_servers_than_it_has_topologies(counts: Counts) -> None:
    """690 + 482 rows are 151 + 88 topologies, and 616 of them were recorded."""
    assert counts.rows == Pair(690, 482)
    assert counts.topologies == Pair(151, 88)
    assert counts.runs == Pair(395, 221)


def test_an_imported_topology_is_one_launch(counts: Counts) -> None:
    """Every row is a point unless it is exactly another, and no topology is started twice."""
    assert counts.imported_points == Pair(690, 482 - counts.left_out)
    assert counts.left_out == 5
    # A config whose rows are all exactly others has no topology left: there are two.
    assert counts.imported_launches == Pair(151, 86)


def test_topologies_without_a_record_are_accounted_for(counts: Counts) -> None:
    """What was not recorded has no script, or shares one with another config."""
    assert counts.recorded_topologies.fixed == counts.topologies.fixed
    assert counts.recorded_topologies.agentic == counts.topologies.agentic - counts.scriptless - counts.shared


def test_our_recipes_start_as_many_servers_as_there_are_command_lines(counts: Counts) -> None:
    """Nothing that differs is shared, and nothing that is the same is started twice."""
    assert counts.matched_runs == counts.points
    assert counts.launches == counts.matched_lines
    assert counts.widest.fixed < counts.launches.fixed < counts.points.fixed
    assert counts.widest.agentic < counts.launches.agentic < counts.points.agentic


def test_the_table_is_true(counts: Counts, project_root: Path) -> None:
    """The committed table is what was counted, and the text's differences are the table's."""
    path = project_root / TABLE
    points = counts.points.fixed + counts.points.agentic
    for launches in (counts.launches, counts.widest):
        assert f" {points - launches.fixed - launches.agentic} of {points}" in TAIL
    text = HEAD + table(counts) + TAIL
    if os.environ.get("ISOLINE_WRITE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    wanted = path.read_text(encoding="utf-8") if path.is_file() else ""
    assert text == wanted, f"{TABLE} differs; if it should: ISOLINE_WRITE_GOLDEN=1, and read the diff"
