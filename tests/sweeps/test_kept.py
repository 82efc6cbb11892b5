"""Plans with what was kept are those without it, byte for byte, whatever changed since it was kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.documents import DocumentError
from isoline.catalog.facts import catalog_of
from isoline.catalog.treecache import cached_trees, pruned
from isoline.results.bundles.records import Plan
from isoline.sweeps.planning import kept, sources
from isoline.sweeps.planning.plan import make_plan
from isoline.sweeps.planning.schema import load_sweep
from isoline.sweeps.planning.sources import read_sources

DEMO = "smollm2-135m/llamacpp-cpu-q4_1"
CHANNELLED = "gpt-oss-120b/vllm-h200-mxfp4-8k1k"
PINNED = "deepseek-v4-pro/atom-mi355x-mxfp4-agentic-mtp"
DERIVED = f"{PINNED}-more"
IMAGE = "vllm/vllm-openai:one@sha256:" + "a" * 64
OTHER_IMAGE = "vllm/vllm-openai:two@sha256:" + "b" * 64


@pytest.fixture
def fleet(project: Any, project_root: Path) -> Any:
    """A project with a sweep over recipes of three kinds, one of which extends another."""
    for name in (f"recipes/{CHANNELLED}.yaml", f"recipes/{PINNED}.yaml", "recipes/channels.yaml"):
        project.write(name, (project_root / name).read_text())
    project.edit(f"recipes/{CHANNELLED}.yaml", "scenarios:", "files: [chat.jinja]\nscenarios:")
    project.write(f"recipes/{Path(CHANNELLED).parent}/chat.jinja", "one")
    project.write(
        f"recipes/{DERIVED}.yaml",
        f"schema_version: 1\nextends: {PINNED}\nserver: {{args: {{level: 2}}}}\n",
    )
    for name in ("h200-docker", "mi355x-slurm-docker"):
        project.copy(f"runners/examples/{name}.yaml", f"runners/{name}.yaml")
    project.write(
        "sweeps/fleet.yaml",
        "schema_version: 1\nname: fleet\npool: [local, h200-docker, mi355x-slurm-docker]\nselect:\n"
        f"  - {{recipes: [{DEMO}], scenario: demo-short, concurrency: [1, 2], repetitions: 2}}\n"
        f"  - {{recipes: [{CHANNELLED}], scenario: 8k1k}}\n"
        f"  - {{recipes: [{PINNED}*], scenario: agentic, accuracy: {{arithmetic-mini: [8]}}}}\n",
    )
    return project


def planned(root: Path, cache: Path | None, image: str = IMAGE) -> Plan:
    """The plan of the fleet, with what is kept in a folder."""
    with ExitStack() as stack:
        stack.enter_context(catalog_of(root))
        if cache is not None:
            stack.enter_context(cached_trees(cache))
            stack.enter_context(kept.kept_plans(cache))
        found = read_sources(root, load_sweep(root, "fleet"), images={"vllm-release": image})
        return make_plan(found, {"rev": None, "dirty": None})


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[int, int]]:
    """(recipes validated, launches rendered) since the last question, where something might be kept."""
    seen: list[str] = []
    for module, name in ((sources, "parse_recipe"), (kept, "start_of")):

        def counted(*args: Any, real: Any = getattr(module, name), name: str = name) -> Any:
            seen.append(name)
            return real(*args)

        monkeypatch.setattr(module, name, counted)

    def count() -> tuple[int, int]:
        found = seen.count("parse_recipe"), seen.count("start_of")
        seen.clear()
        return found

    return count


def test_a_plan_is_the_same_with_and_without(fleet: Any, tmp_path: Path, work: Any) -> None:
    """Nothing kept, kept just now, and kept before: the same bytes, and the third time nothing is done."""
    plain = planned(fleet.root, None).model_dump_json()
    assert work() == (0, 0)
    assert planned(fleet.root, tmp_path).model_dump_json() == plain
    assert work() == (3, 6)  # nothing is kept of the one that extends
    assert planned(fleet.root, tmp_path).model_dump_json() == plain
    assert work() == (0, 0)


EDITS: dict[str, tuple[str, str, str]] = {
    "an argument": (f"recipes/{PINNED}.yaml", "level: 3", "level: 1"),
    "a variable": (
        f"recipes/{PINNED}.yaml",
        'AITER_BF16_FP8_MOE_BOUND: "0"',
        'AITER_BF16_FP8_MOE_BOUND: "1"',
    ),
    "a topology": (f"recipes/{DEMO}.yaml", "topologies:", "topologies: # same\n"),
    "an annotation": (f"recipes/{DEMO}.yaml", "owner: isoline", "owner: someone"),
    "what only a derived recipe says": (f"recipes/{DERIVED}.yaml", "level: 2", "level: 0"),
    "a file beside a recipe": (f"recipes/{Path(CHANNELLED).parent}/chat.jinja", "one", "two"),
    "the concurrencies of a recipe": (f"recipes/{CHANNELLED}.yaml", "[128]", "[64, 128]"),
    "the lengths of a scenario": ("sweeps/scenarios/8k1k.yaml", "osl: 1024", "osl: 1000"),
    "the version of a scenario": ("sweeps/scenarios/agentic.yaml", "\nversion: 1", "\nversion: 2"),
    "the devices of a pool": ("runners/mi355x-slurm-docker.yaml", "amd-rdma", "amd"),
    "the nodes of a pool": (
        "runners/h200-docker.yaml",
        "accelerators: 8",
        "accelerators: 4\nshare_node: true",
    ),
    "the sweep": ("sweeps/fleet.yaml", "repetitions: 2", "repetitions: 3"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_what_changed_is_never_served(fleet: Any, tmp_path: Path, edit: tuple[str, str, str]) -> None:
    """After any edit the plan is the one that would be made with nothing kept."""
    before = planned(fleet.root, tmp_path)
    fleet.edit(*edit)
    after = planned(fleet.root, tmp_path)
    assert after.model_dump_json() == planned(fleet.root, None).model_dump_json()
    assert after != before or "same" in edit[2] or "share_node" in edit[2]


CATALOG = {
    "engines": 'engines: {atom: {container: {commands: {server: [other, --model, "{model_path}"]}}}}\n',
    "acceptance": "curves: {deepseek-v4-pro-mtp: {lengths: {3: 2.5}}}\n",
    "models": f"models: {{gpt-oss-120b: {{revision: {'c' * 40}}}}}\n",
}


@pytest.mark.parametrize("section", CATALOG)
def test_another_fact_is_another_plan(fleet: Any, tmp_path: Path, section: str) -> None:
    """The project's own catalog decides too: what was kept with other facts is not found."""
    before = planned(fleet.root, tmp_path)
    fleet.write(f"recipes/_catalog/{section}.yaml", f"schema_version: 1\n{CATALOG[section]}")
    after = planned(fleet.root, tmp_path)
    assert after.model_dump_json() == planned(fleet.root, None).model_dump_json()
    assert after != before


def test_another_image_is_another_plan(fleet: Any, tmp_path: Path, work: Any) -> None:
    """An image of a channel decides the launches of its recipes; only these are read and rendered again."""
    planned(fleet.root, tmp_path)
    work()
    after = planned(fleet.root, tmp_path, OTHER_IMAGE)
    assert work() == (1, 1)
    assert after.model_dump_json() == planned(fleet.root, None, OTHER_IMAGE).model_dump_json()
    assert {OTHER_IMAGE} == {
        launch.identity["image"]["ref"] for launch in after.launches if launch.recipe_id == CHANNELLED
    }


def test_other_code_finds_nothing(
    fleet: Any, tmp_path: Path, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another version made is not looked into."""
    planned(fleet.root, tmp_path)
    work()
    monkeypatch.setattr(kept, "VERSION", "f" * 64)
    planned(fleet.root, tmp_path)
    assert work() == (3, 6)


def test_the_code_s_version_covers_all_that_decides() -> None:
    """Every module of ours that outlines and launches need is in the list whose bytes are the version."""
    program = (
        "import sys, isoline.recipes.render, isoline.recipes.load, isoline.recipes.channels\n"
        "import isoline.sweeps.planning.outline\n"
        "print(*(module.__file__ for name, module in sys.modules.items()\n"
        "        if name.startswith('isoline') and getattr(module, '__file__', None)), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    package = Path(kept.__file__).parents[2]
    loaded = {Path(line).relative_to(package).as_posix() for line in done.stdout.split()}
    assert "recipes/render.py" in loaded
    left_out = {
        name for name in loaded if not name.endswith("__init__.py") and not name.startswith(kept.CODE)
    }
    assert left_out == set()
    assert all((package / name).exists() for name in kept.CODE)


def test_a_name_is_looked_at_each_time(fleet: Any, tmp_path: Path) -> None:
    """The same text under a name that does not fit is refused, whatever is kept of it."""
    planned(fleet.root, tmp_path)
    fleet.copy(f"recipes/{PINNED}.yaml", f"recipes/{Path(PINNED).parent}/atom-mi355x-fp8.yaml")
    fleet.edit("sweeps/fleet.yaml", f"{PINNED}*", "deepseek-v4-pro/*")
    with pytest.raises(DocumentError, match="should begin with"):
        planned(fleet.root, tmp_path)


def halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        halved,
        lambda data: data.replace(b"cudagraph", b"cudagrapx", 1),
        lambda data: b"{}",
        lambda data: b"\n" + data,
        lambda data: data.replace(b"isoline ", b"isoline 0", 1),
    ],
)
def test_a_damaged_file_counts_as_none(
    fleet: Any, tmp_path: Path, work: Any, damage: Callable[[bytes], bytes]
) -> None:
    """A file that is cut, edited or foreign is not used, and is mended."""
    first = planned(fleet.root, tmp_path)
    file = tmp_path / kept.FILE
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    work()
    assert planned(fleet.root, tmp_path) == first
    assert work() == (3, 6)
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_error(fleet: Any, tmp_path: Path) -> None:
    """What is kept is a convenience."""
    (tmp_path / "file").write_text("")
    assert planned(fleet.root, tmp_path / "file").launches


def test_what_is_no_longer_used_goes_in_time(tmp_path: Path) -> None:
    """Once most of what is kept is unused, only what is used stays."""
    assert pruned(dict.fromkeys("abc", 1), {"d": 1}) == dict.fromkeys("abcd", 1)
    assert pruned(dict.fromkeys("abcd", 1), {"e": 1}) == {"e": 1}
