"""A run with one measured point whose lock is in its real form: what reproduce starts from.

Load it by path through a fixture (see ``tests/sweeps/conftest.py``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from isoline.recipes.schema import Recipe
from isoline.results.bundles.records import PlanPoint
from isoline.runners.staging.tokenizer import TokenizerInfo
from isoline.settings import load_settings
from isoline.sweeps.execution.context import Client, Context, Stop
from isoline.sweeps.execution.record import Job, Live, build_lock
from isoline.sweeps.planning.plan import make_plan
from isoline.sweeps.planning.schema import load_sweep
from isoline.sweeps.planning.sources import read_sources

RUN_ID = "20261201T020000Z-demo-abcdef"


def measured_run(project: Path, store: Path, bundles: Any, sweep: str = "demo") -> tuple[Path, PlanPoint]:
    """Seal a run of a sweep with all points valid, the first with a real lock. (Its folder, that point.)"""
    sources = read_sources(project, load_sweep(project, sweep))
    plan = make_plan(sources, {"rev": "f" * 40, "dirty": False})
    folder: Path = bundles.make_run(store, plan, RUN_ID)
    launch, point = plan.launches[0], plan.launches[0].points[0]
    context = Context(
        settings=load_settings(project),
        scenarios=sources.scenarios,
        datasets=sources.datasets,
        client=Client(Path("aiperf"), "0.13.0"),
        pool=sources.pool,
        stop=Stop(),
        fingerprint={"cpu": "made up", "cores": 2},
    )
    nobody = cast(Any, None)
    live = Live(
        launch=launch,
        launch_id=f"{launch.launch_digest[:10]}-1",
        recipe=Recipe.model_validate(launch.recipe),
        server=nobody,
        launcher=nobody,
        watch=nobody,
        tokenizer=TokenizerInfo(Path("hf"), "local/x", Path("tokenizer.json"), "ab" * 32),
        lock={"argv": launch.argv},
        fingerprint={"cpu": "made up", "cores": 2},
    )
    job = Job(
        context=context,
        plan=plan,
        run_id=RUN_ID,
        live=live,
        point=point,
        number=1,
        scenario=sources.scenarios[point.scenario],
        started_at="2026-12-01T02:00:00.000Z",
        started_ns=0,
    )
    lock = json.loads(build_lock(job).model_dump_json())
    bundles.edit(folder / point.point_id / "1", "lock.json", lambda content: content.update(lock))
    return folder, point
