"""Planning InferenceX's whole catalog: import, validate, plan; cold and warm, beside the figure of its own tool.

Needs the public files of ``../shared/data/inferencex`` (or a folder as first argument). Prints the
median of 5 whole processes for ``recipe import`` and ``sweep plan`` (cold: nothing cached; warm: run
before), the share of parsing and of planning inside a process, and how many servers are started.

The named alternative is the reference's generator, which takes 0.75 s and 50 MB as a whole process on
this class of machine; it cannot be installed here, so its figure is quoted, and what can be measured
beside ours is the least that any Python tool does: PyYAML reading both files, and an empty process.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
REPEATS = 5
REFERENCE_S, REFERENCE_MB = 0.75, 50.0

# Two names that the files use and nobody can say what they stand for; assumed here so that all 208
# configs are planned, as the reference does. A recipe for a measurement must not assume them.
ALIASES = """\
schema_version: 1
models: {deepseek-r1-fp4: "deepseek-r1-0528:nvfp4-v2"}
engines: {tilert: sglang}
source: assumed for this benchmark only
dated: "2026-12-01"
"""

# An engine that the catalog knows but has no start command for yet.
ENGINES = """\
schema_version: 1
engines:
  atom-disagg:
    container:
      commands: {worker: [python3, -m, atom.entrypoints.openai_server, --model, "{model_path}"]}
      source: assumed for this benchmark only
      dated: "2026-12-01"
"""

POOL = """\
schema_version: 1
name: {name}
launcher: container
sku: {sku}
accelerators: {per_node}
nodes: 32
node_memory_gb: 2000
container: {{device_profile: {profile}, model_cache: /srv/models, scratch: /srv/isoline}}
"""


def isoline(project: Path, *words: str) -> tuple[float, float]:
    """(seconds, MB at most) of one command as a whole process; its output is thrown away."""
    env = {**os.environ, "ISOLINE_PROJECT": str(project), "PYTHONPATH": str(ROOT / "src")}
    code = "import sys; from isoline.cli.main import run; sys.exit(run(sys.argv[1:]))"
    begin = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", code, *words],
        env,
        file_actions=[(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)],
    )
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - begin
    if os.waitstatus_to_exitcode(status) not in (0, 3):
        subprocess.run([sys.executable, "-c", code, *words], env=env, stdout=subprocess.DEVNULL, check=False)
        sys.exit(f"isoline {' '.join(words)} failed")
    return seconds, usage.ru_maxrss / 1024


def make_project(data: Path, folder: Path) -> None:
    """A project with the imported catalog, one pool for each SKU, and a sweep of everything."""
    for name in ("sweeps/scenarios", "datasets"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "recipes/_catalog").mkdir(parents=True)
    (folder / "recipes/_catalog/aliases.yaml").write_text(ALIASES)
    (folder / "recipes/_catalog/engines.yaml").write_text(ENGINES)
    (folder / "runners").mkdir()
    isoline(folder, *import_words(data, folder))
    sys.path.insert(0, str(ROOT / "src"))
    from isoline.catalog.facts import load_catalog

    texts = [path.read_text() for path in (folder / "recipes").glob("[a-z]*/*.yaml")]
    pools = []
    for key, sku in load_catalog().skus.items():
        if any(f"\nsku: {key}\n" in text for text in texts):
            profile = "amd-rdma" if sku.vendor == "AMD" else "nvidia-rdma"
            text = POOL.format(name=key, sku=key, per_node=sku.devices_per_node or 8, profile=profile)
            (folder / f"runners/{key}.yaml").write_text(text)
            pools.append(key)
    scenarios = [name for name in ("8k1k", "1k1k", "agentic") if any(f"{name}" in text for text in texts)]
    sweep = {
        "schema_version": 1,
        "name": "everything",
        "pool": pools,
        "select": [{"recipes": ["*"], "scenario": name} for name in scenarios],
    }
    (folder / "sweeps/everything.yaml").write_text(json.dumps(sweep, indent=1))


def import_words(data: Path, folder: Path) -> list[str]:
    """The import's command line."""
    masters = [word for name in ("nvidia", "amd") for word in ("--master", str(data / f"{name}-master.yaml"))]
    runners = ["--runners", str(data / "runners.yaml")]
    return ["recipe", "import", "inferencex", *masters, *runners, "--out", str(folder / "recipes"), "--rev", "843c6254"]


def times(call: Callable[[], tuple[float, float]]) -> str:
    """Median and range of :data:`REPEATS` calls."""
    rows = [call() for _ in range(REPEATS)]
    seconds = [row[0] for row in rows]
    return (
        f"{median(seconds):5.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
        f"{max(row[1] for row in rows):.0f} MB"
    )


def empty_process() -> tuple[float, float]:
    """An empty Python process, for scale."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def yaml_process(data: Path) -> tuple[float, float]:
    """A process that reads both master files with PyYAML's safe loader in Python, as their generator does."""
    code = "import sys, yaml; [yaml.safe_load(open(name)) for name in sys.argv[1:]]"
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, str(data / "nvidia-master.yaml"), str(data / "amd-master.yaml")], check=True
    )
    return time.perf_counter() - begin, 0.0


def main() -> None:
    """Print the figures; exit 1 when the plan has not every point."""
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared/data/inferencex"
    if not data.is_dir():
        sys.exit(f"{data} is not there: give the folder of InferenceX's master files")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_project(data, folder)
        state = folder / ".isoline"

        def cold() -> tuple[float, float]:
            shutil.rmtree(state, ignore_errors=True)
            return isoline(folder, *words)

        words = ["sweep", "plan", "everything", "--out", str(folder / "plan.json")]
        dry = [*import_words(data, folder), "--dry-run"]
        print(f"import and plan of {len(list((folder / 'recipes').glob('[a-z]*/*.yaml')))} recipes, median of {REPEATS}")
        print(f"  recipe import           {times(lambda: isoline(folder, *dry))}")
        print(f"  sweep plan, cold        {times(cold)}")
        print(f"  sweep plan, warm        {times(lambda: isoline(folder, *words))}")
        print(f"  the reference, quoted   {REFERENCE_S:5.2f} s, {REFERENCE_MB:.0f} MB")
        print(f"  PyYAML reads both files {times(lambda: yaml_process(data))}")
        print(f"  an empty process        {times(empty_process)}")
        plan = json.loads((folder / "plan.json").read_text())
    points = sum(len(launch["points"]) for launch in plan["launches"])
    print(f"  {points} points in {len(plan['launches'])} launches; {len(plan['excluded'])} excluded")
    for item in plan["excluded"][:5]:
        print(f"    {item['what']}: {item['why']}")


if __name__ == "__main__":
    main()
