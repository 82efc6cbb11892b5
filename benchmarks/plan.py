"""Planning InferenceX's whole catalog: import, validation, plan; cold and warm, beside its own tool.

Needs the public files of ``../shared/data/inferencex`` (or a folder as first argument). Prints the
median of 5 whole processes for ``recipe import`` and ``sweep plan`` (cold: nothing cached; warm: run
before; and with one recipe changed since), and how many points and servers the plan has.

The named alternative is the reference's generator, which takes 0.75 s and 50 MB as a whole process on
this class of machine; it cannot be installed here, so its figure is quoted, and what can be measured
beside ours is the least that any Python tool does: PyYAML reading both files, and an empty process.
"""

from __future__ import annotations

import json
import os
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
PAIRS = 16
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


def process(words: list[str], env: dict[str, str]) -> tuple[float, float, float, int]:
    """(seconds, seconds of the processor, MB at most, exit code) of a program; its output is thrown away."""
    begin = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable,
        words,
        env,
        file_actions=[(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)],
    )
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - begin
    code = os.waitstatus_to_exitcode(status)
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, code


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Python as it is where a program is installed: with compiled modules, which it may keep."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / ".pycache"), **more}


def isoline(project: Path, *words: str) -> tuple[float, float, float]:
    """(seconds, seconds of the processor, MB at most) of one command as a whole process."""
    env = environment(project, ISOLINE_PROJECT=str(project), PYTHONPATH=str(ROOT / "src"))
    program = [
        sys.executable,
        "-c",
        "import sys; from isoline.cli.main import main; main()",
    ]
    *figures, code = process([*program, *words], env)
    if code not in (0, 3):
        subprocess.run([*program, *words], env=env, stdout=subprocess.DEVNULL, check=False)
        sys.exit(f"isoline {' '.join(words)} failed")
    return figures[0], figures[1], figures[2]


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
    return [
        "recipe",
        "import",
        "inferencex",
        *masters,
        *runners,
        "--out",
        str(folder / "recipes"),
        "--rev",
        "843c6254",
    ]


def times(call: Callable[[], tuple[float, float, float]]) -> str:
    """Median and range of :data:`REPEATS` calls, after one to warm up."""
    call()
    rows = [call() for _ in range(REPEATS)]
    seconds = [row[0] for row in rows]
    return (
        f"{median(seconds):5.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
        f"processor {median(row[1] for row in rows):.2f} s, {max(row[2] for row in rows):.0f} MB"
    )


def by_turns(
    one: Callable[[], tuple[float, float, float]], two: Callable[[], tuple[float, float, float]]
) -> str:
    """The ratio of two calls that meet the same machine: median and range over pairs of seconds."""
    ratios = sorted(one()[0] / two()[0] for _ in range(PAIRS))
    low, high = ratios[PAIRS // 4], ratios[-PAIRS // 4]
    return f"{median(ratios):.2f} times (half of the pairs {low:.2f} to {high:.2f})"


def python(folder: Path, *words: str) -> tuple[float, float, float]:
    """A Python program as a whole process."""
    seconds, processor, size, _ = process([sys.executable, *words], environment(folder))
    return seconds, processor, size


READ = "import sys, yaml; [yaml.safe_load(open(name)) for name in sys.argv[1:]]"


def main() -> None:
    """Print the figures; exit 1 when the plan has not every point."""
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared/data/inferencex"
    if not data.is_dir():
        sys.exit(f"{data} is not there: give the folder of InferenceX's master files")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_project(data, folder)
        state = folder / ".isoline"

        def cold() -> tuple[float, float, float]:
            shutil.rmtree(state, ignore_errors=True)
            return isoline(folder, *words)

        def changed() -> tuple[float, float, float]:
            with one.open("a") as file:
                file.write("# changed\n")
            return isoline(folder, *words)

        one = min((folder / "recipes").glob("[a-z]*/*.yaml"))
        words = ["sweep", "plan", "everything", "--out", str(folder / "plan.json")]
        dry = [*import_words(data, folder), "--dry-run"]
        count = len(list((folder / "recipes").glob("[a-z]*/*.yaml")))
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"import and planning of {count} recipes, median of {REPEATS}; load of the machine {load}")
        print(f"  recipe import           {times(lambda: isoline(folder, *dry))}")
        print(f"  sweep plan, cold        {times(cold)}")
        print(f"  sweep plan, warm        {times(lambda: isoline(folder, *words))}")
        print(f"  ..., one recipe changed {times(changed)}")
        print(f"  the reference, quoted   {REFERENCE_S:5.2f} s, {REFERENCE_MB:.0f} MB")
        masters = [str(data / f"{name}-master.yaml") for name in ("nvidia", "amd")]
        print(f"  PyYAML reads both files {times(lambda: python(folder, '-c', READ, *masters))}")
        # The reference begins with just that (yaml.safe_load, both files), then validates and generates.
        warm, reading = (
            lambda: isoline(folder, *words),
            lambda: python(folder, "-c", READ, *masters),
        )
        print(f"  warm, beside PyYAML reading both files, by turns: {by_turns(warm, reading)}")
        print(f"  an empty process        {times(lambda: python(folder, '-c', ''))}")
        plan = json.loads((folder / "plan.json").read_text())
    points = sum(len(launch["points"]) for launch in plan["launches"])
    print(f"  {points} points in {len(plan['launches'])} launches; {len(plan['excluded'])} excluded")
    for item in plan["excluded"][:5]:
        print(f"    {item['what']}: {item['why']}")


if __name__ == "__main__":
    main()
