"""``isoline sweep`` through the command line, up to where a machine is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isoline.cli.main import run
from isoline.results.bundles.records import Plan

RECIPE = "recipes/smollm2-135m/llamacpp-cpu-q4_1.yaml"


RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def out(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_a_plan(project: Any, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every point with its launch, its checks and whether it is due; the last line sums up."""
    assert run(["sweep", "plan", "demo", "--store", str(store)]) == 0
    lines = out(capsys).splitlines()
    assert len([line for line in lines if line.endswith("  due")]) == 7
    assert lines[-1].startswith("7 due, 1 launch(es), about ")
    assert lines[-1].endswith("a new run")
    assert run(["sweep", "plan", "sweeps/demo.yaml", "--store", str(store), "--format", "json"]) == 0
    rows = json.loads(out(capsys))
    assert len({row["point_id"] for row in rows}) == 7
    assert not store.exists()


def test_a_plan_as_a_file(project: Any, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--out writes plan.json, the same bytes each time; a folder in its place is one line."""
    for name in ("a.json", "b.json"):
        assert run(["sweep", "plan", "smoke", "--store", str(store), "--out", name]) == 0
    written = (project.root / "a.json").read_bytes()
    assert written == (project.root / "b.json").read_bytes()
    assert Plan.model_validate_json(written).sweep == "smoke"
    (project.root / "c.json").mkdir()
    capsys.readouterr()
    assert run(["sweep", "plan", "smoke", "--store", str(store), "--out", "c.json"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "isoline: c.json: cannot be written: Is a directory"


def test_a_finished_run_leaves_nothing_due(
    project: Any, store: Path, measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a run of the same plan nothing is due; after another argument everything is; --new ignores it."""
    folder, _ = measured(store)
    # The factory's attempts have no result for the check that the demo wants, but they are attempts.
    assert run(["sweep", "plan", "demo", "--store", str(store)]) == 0
    assert "0 due, 1 launch(es), about 0.0 min on pool local, 0 GPU-minutes; plan" in (text := out(capsys))
    assert text.rstrip().endswith(f"continues {folder.name}")
    assert run(["sweep", "run", "demo", "--store", str(store)]) == 0
    assert out(capsys) == f"run {folder.name}: 7 valid; nothing was due\n"
    assert run(["sweep", "plan", "demo", "--store", str(store), "--new"]) == 0
    assert "7 due" in out(capsys)
    project.edit(RECIPE, "owner: isoline", "owner: someone  # comment")
    assert run(["sweep", "plan", "demo", "--store", str(store)]) == 0
    assert "0 due" in out(capsys)
    project.edit(RECIPE, "threads: 2", "threads: 1")
    assert run(["sweep", "plan", "demo", "--store", str(store)]) == 0
    assert "7 due" in out(capsys)


def test_another_sweep_s_points_are_reused(
    project: Any, store: Path, measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep that may reuse lists whole curves of other runs as reused, and the rest as due."""
    folder, _ = measured(store)
    text = (project.root / "sweeps" / "demo.yaml").read_text().replace("name: demo\n", "name: again\n")
    project.write("sweeps/again.yaml", text)
    assert run(["sweep", "plan", "again", "--store", str(store), "--format", "json"]) == 0
    states = {}
    for row in json.loads(out(capsys)):
        states.setdefault(row["state"], []).append(row["point_id"])
    assert len(states[f"reused from {folder.name}"]) == 2  # the trace: its curve is whole
    assert len(states["due"]) == 5  # the other one lacks the accuracy check
    project.edit("sweeps/again.yaml", "from_other_runs: true", "from_other_runs: false")
    assert run(["sweep", "plan", "again", "--store", str(store)]) == 0
    assert "7 due" in out(capsys)


def test_a_dry_run(project: Any, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--dry-run prints plan and commands, starts nothing, and writes nothing but what it read."""
    assert run(["sweep", "run", "smoke", "--store", str(store), "--dry-run"]) == 0
    text = out(capsys)
    assert "1 due" in text
    assert "{python} {script} --model {model_path}" in text
    assert not store.exists()
    written = [path for path in (project.root / ".isoline").rglob("*") if path.is_file()]
    assert {path.parent.name for path in written} <= {"cache"}


def test_status(project: Any, store: Path, measured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The points of the newest run, of one run or of one sweep; the overhead as a number or null."""
    folder, point = measured(store)
    for words in ([], ["demo"], ["--run", folder.name]):
        assert run(["sweep", "status", *words, "--store", str(store), "--format", "json"]) == 0
        rows = json.loads(out(capsys))
        assert len(rows) == 7
        assert rows[0]["point_id"] == point.point_id
        assert {(row["verdict"], row["due"], row["attempts"]) for row in rows} == {("valid", False, 1)}
    assert run(["sweep", "status", "--overhead", "--store", str(store), "--format", "json"]) == 0
    (row,) = json.loads(out(capsys))
    assert row["pairs"] == 6
    assert row["overhead_median_s"] > 0


def test_status_explains_reasons_and_how_to_measure_again(
    project: Any, store: Path, measured: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """A reason code stands with meaning, detail and remedy, and a closed point with the way to a new run."""
    from isoline.results.bundles.records import ReasonNote
    from isoline.results.judging.reasons import Verdict
    from isoline.sweeps.state import runs

    folder, point = measured(store)
    real = runs.records

    def spoilt(item: Any) -> Any:
        found = real(item)
        note = ReasonNote(code="load_timeout", detail="not done after 180 s")
        bad = found[point.point_id][-1].model_copy(update={"verdict": Verdict.INVALID, "reasons": [note]})
        return {**found, point.point_id: [bad]}

    monkeypatch.setattr(runs, "records", spoilt)
    assert run(["sweep", "status", "--run", folder.name, "--store", str(store)]) == 0
    text = out(capsys)
    assert "load_timeout: the load did not end within its deadline (not done after 180 s); " in text
    assert "`isoline sweep run demo --new` measures everything anew" in text


def test_status_names_a_launch_that_failed(
    project: Any, store: Path, measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a server did not start no point has a reason: the launch is named, and where its log is."""
    folder, _ = measured(store)
    path = next(folder.glob("_launch/*/launch.json"))
    record = json.loads(path.read_text())
    reasons = [{"code": "launch_failed", "detail": "ended by exit code 2 before it was ready"}]
    path.write_text(json.dumps({**record, "verdict": "invalid", "reasons": reasons}))
    assert run(["sweep", "status", "--store", str(store)]) == 0
    said = f"launch {path.parent.name}: launch_failed: {reasons[0]['detail']}; see {path.parent}"
    assert said in out(capsys)
    path.write_text("{")
    assert run(["sweep", "status", "--store", str(store)]) == 0


def test_status_says_what_goes_on(
    project: Any, store: Path, measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last event of the journal stands under the table."""
    from isoline.sweeps.state.journal import JOURNAL, Journal

    folder, point = measured(store)
    Journal(folder / ".work" / JOURNAL).write("phase", phase="load", point_id=point.point_id)
    assert run(["sweep", "status", "--store", str(store)]) == 0
    assert out(capsys).splitlines()[-1].endswith(f"phase load {point.point_id}")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["plan"], "isoline sweep plan: missing argument"),
        (["plan", "dmo"], "sweeps/dmo.yaml: no such sweep; did you mean 'demo'?"),
        (["plan", "demo", "--pool", "lokal"], "runners/lokal.yaml: no such pool; did you mean 'local'?"),
        (["plan", "demo", "--format", "xml"], "isoline sweep plan: "),
        (["run"], "isoline sweep run: missing argument"),
        (["run", "reproduce"], "this name is taken"),
        (["run", "../demo"], "no such sweep"),
        (["run", "demo", "--dryrun"], "did you mean --dry-run?"),
        (["status"], "no run; `isoline sweep run demo` makes one"),
        (["status", "smoke"], "no run of sweep 'smoke'; `isoline sweep run smoke` makes one"),
        (["status", "dmo"], "no run of sweep 'dmo'; no sweep has that name; did you mean 'demo'?"),
        (["status", "--run", "latest"], "no such run: latest; `isoline sweep status` shows the newest"),
    ],
)
def test_wrong_input_is_one_line(
    project: Any, store: Path, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    """A wrong name or option is one line that says what to do, with exit code 1."""
    assert run(["sweep", *argv, "--store", str(store)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("sweeps/demo.yaml", "pool: local", "pol: local", "unknown key 'pol'; did you mean 'pool'?"),
        ("sweeps/demo.yaml", "name: demo\n", "name: demo\nname: demo\n", 'found duplicate key "name"'),
        ("sweeps/demo.yaml", "name: demo\n", "name: dmo\n", "name 'dmo' is not the file's, 'demo'"),
        ("sweeps/demo.yaml", "scenario: demo-chat", "scenario: chat", "unknown scenario 'chat'; did you"),
        ("sweeps/scenarios/demo-chat.yaml", "kind: trace", "kind: trce", "kind: input should be"),
        ("runners/local.yaml", "sku: cpu", "sku: cpus", "unknown SKU 'cpus'; did you mean 'cpu'?"),
        ("datasets/demo-chat.yaml", "sessions: 6", "sesions: 6", "'sesions'; did you mean 'sessions'?"),
        (RECIPE, "weights: q4_1", "weights: q41", "unknown weight precision of smollm2-135m-instruct 'q41'"),
        (RECIPE, "model: smollm2-135m-instruct", "model: smollm2", "did you mean 'smollm2-135m-instruct'?"),
    ],
)  # fmt: skip
def test_a_mistake_in_any_file_is_one_line(
    project: Any, store: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, said: str
) -> None:
    """Whatever file has the mistake, `sweep plan` says its name, its line and the nearest known name."""
    line = project.edit(file, old, new) + max(new.count("\n") - 1, 0)
    assert run(["sweep", "plan", "demo", "--store", str(store)]) == 1
    (text,) = capsys.readouterr().err.splitlines()
    assert text.startswith(f"isoline: {file}:{line}: ")
    assert said in text


def states(capsys: pytest.CaptureFixture[str], store: Path, *words: str) -> dict[str, list[int]]:
    """State -> concurrencies of demo-short's points in the demo's plan."""
    found: dict[str, list[int]] = {}
    assert run(["sweep", "plan", "demo", "--store", str(store), "--format", "json", *words]) == 0
    for row in json.loads(out(capsys)):
        if ".demo-short." in row["point_id"]:
            level = int(row["point_id"].split(".demo-short.c")[1].split(".")[0])
            found.setdefault(row["state"], []).append(level)
    return found


def test_a_plan_says_what_is_only_a_part_of_a_curve(
    project: Any, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two recipes of a curve: a line for each such curve, with its points; none where all is there."""
    second = f"{RECIPE_ID}-other"
    project.copy(f"recipes/{RECIPE_ID}.yaml", f"recipes/{second}.yaml")
    project.edit(f"recipes/{second}.yaml", "threads-batch: 2", "threads-batch: 1")
    text = (project.root / "sweeps/demo.yaml").read_text().replace(RECIPE_ID, "smollm2-135m/*")
    project.write("sweeps/demo.yaml", text)
    argv = ["sweep", "plan", "demo", "--store", str(store)]
    assert run(argv) == 0
    assert "a part of curve" not in out(capsys)
    assert run([*argv, "--recipe", second]) == 0
    lines = [line for line in out(capsys).splitlines() if line.startswith("a part of curve ")]
    assert len(lines) == 2
    assert any("demo-short c1" in line and "demo-short c8" in line for line in lines)


@pytest.mark.parametrize("others", ["true", "false"])
def test_an_added_concurrency_plans_one_point(
    project: Any, store: Path, measured: Any, capsys: pytest.CaptureFixture[str], others: str
) -> None:
    """One concurrency more plans one point; another argument, a repetition more or --new plan all."""
    demo = "sweeps/demo.yaml"
    project.edit(demo, "    accuracy: {arithmetic-mini: [4]}\n", "")
    project.edit(demo, "from_other_runs: true", f"from_other_runs: {others}")
    project.edit(demo, "concurrency: [1, 2, 4, 8]", "concurrency: [1, 2, 4]")
    folder, _ = measured(store)
    assert states(capsys, store) == {"measured": [1, 2, 4, 4]}
    project.edit(demo, "concurrency: [1, 2, 4]", "concurrency: [1, 2, 4, 8]")
    base = f"reused from {folder.name}"
    assert states(capsys, store) == {"due, added": [8], base: [1, 2, 4, 4]}
    assert run(["sweep", "plan", "demo", "--store", str(store), "--out", "plan.json"]) == 0
    assert f"added to the curve of run {folder.name}: demo-short c8\n" in out(capsys)
    plan = Plan.model_validate_json((project.root / "plan.json").read_bytes())
    assert len(plan.reused) == 6
    ((addition, point),) = zip(plan.additions, plan.launches[0].points, strict=True)
    assert (addition.base_run_id, addition.point_ids) == (folder.name, [point.point_id])
    assert plan.launches[0].estimate_s < 2 * point.estimate_s
    project.edit(demo, "{4: 2}", "{4: 2, 2: 2}")
    assert states(capsys, store) == {"due": [1, 2, 2, 4, 4, 8]}
    project.edit(demo, "{4: 2, 2: 2}", "{4: 2}")
    assert states(capsys, store, "--new") == {"due": [1, 2, 4, 4, 8]}
    project.edit(RECIPE, "threads: 2", "threads: 1")
    assert states(capsys, store) == {"due": [1, 2, 4, 4, 8]}


def test_nothing_is_reused_that_people_withdrew_or_that_is_old(
    project: Any, store: Path, measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A withdrawn point, and a base older than the sweep allows, make the whole curve due."""
    demo = "sweeps/demo.yaml"
    project.edit(demo, "    accuracy: {arithmetic-mini: [4]}\n", "")
    project.edit(demo, "concurrency: [1, 2, 4, 8]", "concurrency: [1, 2, 4]")
    folder, point = measured(store)
    project.edit(demo, "concurrency: [1, 2, 4]", "concurrency: [1, 2, 4, 8]")
    decided = {"run_id": folder.name, "point_id": point.point_id, "action": "withdraw"}
    said = {"reason": "a reason that is long enough", "reviewer": "someone", "dated": "2026-12-02"}
    content = {"schema_version": 1, "overrides": [decided | said]}
    (project.root / "results").mkdir(exist_ok=True)
    kept = project.root / "results" / "overrides.yaml"
    kept.write_text(json.dumps(content))
    assert states(capsys, store) == {"due": [1, 2, 4, 4, 8]}
    kept.unlink()
    assert list(states(capsys, store)) == ["due, added", f"reused from {folder.name}"]
    project.edit(demo, "max_age_h: null ", "max_age_h: 0.001 ")
    assert states(capsys, store) == {"due": [1, 2, 4, 4, 8]}


def test_what_a_plan_costs(
    project: Any, store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for each pool, and the list and tier that were used; a CPU has no price and no zero."""
    prices = {"schema_version": 1, "source": "a public place, in words", "default_tier": "big"}
    prices |= {"dated": "2026-01-01", "tiers": {"big": {"h200": 2.0}, "small": {"h200": 4.0}}}
    project.write("dashboard/prices/2026-01.yaml", json.dumps(prices))
    assert run(["sweep", "plan", "demo", "--store", str(store)]) == 0
    *_, pool, used, last = out(capsys).splitlines()
    assert pool.startswith("pool local (cpu): ") and pool.endswith(" min, no price")
    note = "no price for cpu, so the cost is not known"
    assert used == f"prices: list 2026-01 (dated 2026-01-01), tier big; {note}"
    assert "$" not in last
    monkeypatch.setenv("ISOLINE_PRICE_TIER", "smal")
    assert run(["sweep", "plan", "demo", "--store", str(store)]) == 1
    assert "has no tier 'smal'; did you mean 'small'?" in capsys.readouterr().err
