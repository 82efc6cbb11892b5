"""The circuit breaker: what a start says about its image, and when the rest of it is held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.results.bundles.records import LaunchRecord, PointRecord, ReasonNote
from isoline.results.judging.reasons import Verdict, worst
from isoline.sweeps.execution.schedule_breaker import Told, image_key, image_state, judge_start, signature_of


def start(
    *reasons: tuple[str, str], name: str = "aaaaaaaaaa-1", at: str = "2026-12-01T02:00:00Z"
) -> LaunchRecord:
    """A sealed start with these reasons."""
    notes = [ReasonNote(code=code, detail=detail) for code, detail in reasons]
    return LaunchRecord(
        run_id="20261201T020000Z-demo-aaaaaa",
        launch_id=name,
        launch_digest=name.partition("-")[0] * 6,
        recipe_id="m/e",
        started_at=at,
        ended_at=at,
        verdict=worst([note.code for note in notes]),
        reasons=notes,
        phases=[],
        exit_code=None,
        signal=None,
        points=[],
    )


@pytest.fixture
def point_of(bundles: Any, tmp_path: Path) -> Any:
    """``point_of(*reasons)`` is a sealed attempt with these reason codes."""
    plan = bundles.make_plan()
    run = bundles.make_run(tmp_path, plan)
    path = run / plan.launches[0].points[0].point_id / "1" / "point.json"
    record = PointRecord.model_validate_json(path.read_bytes())

    def make(*codes: str) -> PointRecord:
        notes = [ReasonNote(code=code, detail=f"seen {len(code)}") for code in codes]
        return record.model_copy(update={"verdict": worst(list(codes)), "reasons": notes})

    return make


def told(name: str, says: str, signature: str = "", at: str = "2026-12-01T02:00:00Z") -> Told:
    """What a start said."""
    return Told(f"{name}-1", name, at, says, signature)  # type: ignore[arg-type]


def test_numbers_do_not_make_two_failures_differ() -> None:
    """Addresses, sizes and times are left out of a signature; other words are another one."""
    one = ReasonNote(code="launch_failed", detail="exit code 1 after 3.25 s at 0x7f00")
    two = ReasonNote(code="launch_failed", detail="exit code 1 after 71 s at 0xbeef")
    other = ReasonNote(code="launch_failed", detail="no such file")
    assert signature_of(one) == signature_of(two) != signature_of(other)


def test_what_a_start_says(point_of: Any) -> None:
    """The engine's failure is bad, a served point good, and the machine or a person says nothing."""
    assert judge_start(start(("oom", "at load")), []).says == "bad"
    assert judge_start(start(), [point_of("canary_failed"), point_of()]).says == "good"
    assert judge_start(start(), [point_of("failed_requests")]).says == "good"
    garbage = judge_start(start(), [point_of("canary_failed"), point_of("canary_failed")])
    assert (garbage.says, garbage.signature) == ("bad", "canary_failed")
    assert judge_start(start(("server_killed", "")), []).says == "nothing"
    assert judge_start(start(("interrupted", ""), ("oom", "")), []).says == "nothing"
    assert judge_start(start(), [point_of("client_died")]).says == "nothing"
    assert judge_start(start(), []).says == "nothing"
    assert Verdict.INVALID is start(("oom", "")).verdict


def test_two_launches_that_fail_alike_hold_the_image() -> None:
    """Signature and evidence are named; one launch twice, or two that fail differently, hold nothing."""
    state = image_state([told("a", "bad", "oom"), told("b", "bad", "oom")])
    assert state.hold is not None
    assert state.hold.signature == "oom"
    assert state.hold.launches == ("a-1", "b-1")
    assert state.hold.evidence == ("_launch/a-1/server.log", "_launch/b-1/server.log")
    assert image_state([told("a", "bad", "oom"), told("a", "bad", "oom")]).hold is None
    assert image_state([told("a", "bad", "oom"), told("b", "bad", "port")]).hold is None


def test_one_good_start_proves_an_image() -> None:
    """From then on its launches need not wait for each other; two alike failures still hold it."""
    assert image_state([told("a", "bad", "oom"), told("b", "good")]).is_proven
    assert not image_state([told("a", "bad", "oom"), told("b", "nothing")]).is_proven
    both = image_state([told("a", "good"), told("b", "bad", "oom"), told("c", "bad", "oom")])
    assert both.is_proven and both.hold is not None


def test_a_retry_opens_the_breaker() -> None:
    """Failures before a person asked to try again do not count; those after do."""
    rows = [told("a", "bad", "oom", "2026-12-01T02:00:00Z"), told("b", "bad", "oom", "2026-12-01T03:00:00Z")]
    assert image_state(rows, "2026-12-01T03:30:00Z").hold is None
    rows += [told("a", "bad", "oom", "2026-12-01T04:00:00Z"), told("b", "bad", "oom", "2026-12-01T05:00:00Z")]
    assert image_state(rows, "2026-12-01T03:30:00Z").hold is not None


def test_another_digest_is_another_image(bundles: Any) -> None:
    """The same packages on the same SKU are one image; another reference or SKU is not."""
    plan = bundles.make_plan(
        [
            (bundles.LaunchDef(), [bundles.PointDef()]),
            (bundles.LaunchDef(args=("--parallel", "4")), [bundles.PointDef()]),
            (bundles.LaunchDef(sku="h200", recipe_id="m/x"), [bundles.PointDef()]),
        ]
    )
    one, two, three = (image_key(launch) for launch in plan.launches)
    assert one == two != three
    launch = plan.launches[0]
    refs = [
        image_key(launch.model_copy(update={"identity": {**launch.identity, "image": {"ref": ref}}}))
        for ref in ("r/i:1@sha256:aa", "r/i:1@sha256:bb")
    ]
    assert refs[0] != refs[1]
