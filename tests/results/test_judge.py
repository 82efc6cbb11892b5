"""Each reason is given when it should be, not given when it should not be, and blames the cause."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from isoline.results.bundles.records import ReasonNote
from isoline.results.judging.judge import ClientFacts, Evidence, ExportFacts, Rules, judge
from isoline.results.judging.reasons import Verdict


def _evidence(tables: ModuleType, rows: list[dict[str, Any]], **rules: Any) -> Evidence:
    asked = rules.pop("asked", len(rows))
    concurrency = rules.pop("concurrency", 4)
    start = min((row["intended_send_ns"] for row in rows), default=0)
    return Evidence(
        rules=Rules(concurrency=concurrency, asked=asked, **rules),
        table=tables.table(rows),
        export=ExportFacts(start_ns=start),
        client=ClientFacts(tick_hz=100),
        attempt_started_ns=start - 1_000_000_000,
    )


def _codes(evidence: Evidence) -> list[str]:
    return [note.code for note in judge(evidence)[1]]


def _note(code: str) -> ReasonNote:
    return ReasonNote(code=code, detail=f"saw {code}")


@pytest.fixture
def good(tables: ModuleType) -> Evidence:
    """Forty requests by four lanes, all well, with every check turned on."""
    rows = tables.closed_loop(4, 40)
    for row in rows:
        row |= {"requested_input_tokens": 100, "requested_output_tokens": 11, "text_tokens": 11}
    return _evidence(tables, rows, ignore_eos=True, cache="forbid", min_requests=40)


def test_a_good_point_is_valid(good: Evidence) -> None:
    """No reason, no blame."""
    assert judge(good) == (Verdict.VALID, [])


def test_one_lost_request_in_a_hundred_is_partial(tables: ModuleType) -> None:
    """Within the limit: partial, and the share and kind of failure are said."""
    rows = tables.closed_loop(4, 100)
    rows[50] = tables.failed(2600, 2700)
    verdict, notes = judge(_evidence(tables, rows))
    assert verdict == Verdict.PARTIAL
    assert [note.code for note in notes] == ["failed_requests"]
    assert "1 of 100 (1.0%)" in notes[0].detail and "1 http_500" in notes[0].detail


def test_more_lost_requests_are_invalid(tables: ModuleType) -> None:
    """Two of a hundred are over the default limit; no scenario can allow more than 5 %."""
    rows = tables.closed_loop(4, 100)
    for index in (50, 60):
        rows[index] = tables.failed(2600, 2700)
    assert _codes(_evidence(tables, rows)) == ["too_many_failed"]
    assert _codes(_evidence(tables, rows, max_failed_share=0.02)) == ["failed_requests"]
    for index in range(40, 46):
        rows[index] = tables.failed(2600, 2700)
    assert _codes(_evidence(tables, rows, max_failed_share=0.5)) == ["too_many_failed"]


def test_requests_that_nobody_saw_are_lost_too(tables: ModuleType) -> None:
    """A hundred asked, ninety in the export, no error anywhere: that is a loss of 10 %."""
    assert _codes(_evidence(tables, tables.closed_loop(4, 90), asked=100)) == ["too_many_failed"]


def test_all_failed_is_the_servers_doing(tables: ModuleType) -> None:
    """AIPerf ends with 1 and no summary when all requests fail: invalid, not a fault of the client."""
    evidence = _evidence(tables, [tables.failed(index * 10, index * 10 + 5) for index in range(10)])
    export = replace(evidence.export, exit_code=1, is_ready=False, is_complete=False)
    verdict, notes = judge(replace(evidence, export=export))
    assert verdict == Verdict.INVALID and [note.code for note in notes] == ["too_many_failed"]


def test_empty_streams_are_named(tables: ModuleType) -> None:
    """A stream without a token is its own reason, even where the share is small."""
    rows = tables.closed_loop(4, 200)
    rows[50] = tables.failed(2600, 2700, "empty_stream", http_status=200)
    verdict, notes = judge(_evidence(tables, rows))
    assert verdict == Verdict.INVALID
    assert [note.code for note in notes] == ["empty_stream", "failed_requests"]


def test_zero_tokens_are_never_valid(tables: ModuleType) -> None:
    """A run that measured nothing does not pass: no request, or only answers of zero tokens."""
    assert _codes(_evidence(tables, [], asked=0)) == ["zero_output_tokens"]
    rows = tables.closed_loop(4, 40)
    for row in rows:
        row["output_tokens"] = 0
    assert "zero_output_tokens" in _codes(_evidence(tables, rows))


@pytest.mark.parametrize(
    ("seen", "reason"), [(101, []), (102, []), (103, ["isl_mismatch"]), (97, ["isl_mismatch"])]
)
def test_input_length_within_two_percent(tables: ModuleType, seen: int, reason: list[str]) -> None:
    """The server-side length is compared at the median, both ways."""
    rows = tables.closed_loop(4, 40)
    for row in rows:
        row["input_tokens"] = seen
    rows[0]["input_tokens"] = 500  # one odd request changes no median
    assert _codes(_evidence(tables, rows, isl=100)) == reason


def test_output_length_counts_only_where_eos_is_ignored(good: Evidence, tables: ModuleType) -> None:
    """Shorter answers are wrong where the exact length was ordered, and fine where it was not."""
    rows = tables.closed_loop(4, 40, tokens=8)
    assert _codes(_evidence(tables, rows, osl=11, ignore_eos=True)) == ["osl_mismatch"]
    assert _codes(_evidence(tables, rows, osl=11, ignore_eos=False)) == []


def test_usage_that_the_text_contradicts(tables: ModuleType) -> None:
    """Twice the tokens of the text are found out; an engine declared as random is not checked."""
    rows = tables.closed_loop(4, 40)
    for row in rows[:32]:
        row["text_tokens"] = 5
    assert _codes(_evidence(tables, rows)) == ["token_count_mismatch"]
    assert _codes(_evidence(tables, rows, random_tokens=True)) == []


def test_a_cut_off_end_is_no_miscount(tables: ModuleType) -> None:
    """One token less per short answer is how a cut inside a character looks; two are a miscount."""
    for lost, expected in ((1, []), (2, ["token_count_mismatch"])):
        rows = tables.closed_loop(4, 40)
        for row in rows[:32]:
            row["text_tokens"] = row["output_tokens"] - lost
        assert _codes(_evidence(tables, rows)) == expected


def test_missing_usage_is_named(tables: ModuleType) -> None:
    """No usage, no number."""
    rows = tables.closed_loop(4, 40)
    rows[1]["output_tokens"] = None
    assert _codes(_evidence(tables, rows)) == ["usage_missing"]


def test_cache_hits_are_judged_by_the_scenario(tables: ModuleType) -> None:
    """Forbidden hits and missing expected ones are wrong; allowed ones never are."""
    hit, cold = tables.closed_loop(4, 40), tables.closed_loop(4, 40)
    for row in hit:
        row["cached_tokens"] = 50
    for rows, cache, expected in (
        (hit, "forbid", ["cache_state_wrong"]),
        (hit, "expect", []),
        (hit, "allow", []),
        (cold, "expect", ["cache_state_wrong"]),
        (cold, "forbid", []),
    ):
        assert _codes(_evidence(tables, rows, cache=cache)) == expected


@pytest.mark.parametrize(
    ("change", "code", "verdict"),
    [
        ({"first_token_ns": None}, "empty_stream", Verdict.INVALID),
        ({"last_token_ns": None}, "empty_stream", Verdict.INVALID),
        ({"output_tokens": 0}, "zero_output_tokens", Verdict.INVALID),
        ({"output_tokens": -11}, "token_count_mismatch", Verdict.INVALID),
        ({"cached_tokens": 500}, "token_count_mismatch", Verdict.INVALID),
        ({"first_token_ns": 0}, "clock_stepped", Verdict.INFRA_ERROR),
        ({"last_token_ns": 1}, "clock_stepped", Verdict.INFRA_ERROR),
        ({"end_ns": 1}, "clock_stepped", Verdict.INFRA_ERROR),
    ],
)
def test_a_request_that_cannot_have_been(
    tables: ModuleType, change: dict[str, int | None], code: str, verdict: Verdict
) -> None:
    """One completed request without a token, with impossible counts, or that ended before it began."""
    rows = tables.closed_loop(4, 40)
    rows[7] |= change
    found, notes = judge(_evidence(tables, rows))
    assert (found, notes[0].code) == (verdict, code)
    assert "1 of 40" in notes[0].detail


def test_chunks_that_run_backwards(tables: ModuleType) -> None:
    """A gap below zero is a clock that was set; a tenth of a millisecond is not."""
    for back_ns, expected in ((50_000, []), (5_000_000, ["clock_stepped"])):
        rows = tables.closed_loop(4, 40)
        times = rows[3]["chunk_ns"]
        rows[3]["chunk_ns"] = [*times[:4], times[3] - back_ns, *times[5:]]
        assert _codes(_evidence(tables, rows)) == expected


def test_two_lengths_in_one_load(tables: ModuleType) -> None:
    """Where the exact length was ordered, a third of short answers is wrong though the median is right."""
    for short, expected in ((4, []), (14, ["osl_mismatch"])):
        rows = tables.closed_loop(4, 40)
        for row in rows[:short]:
            row["output_tokens"] = 8
        assert _codes(_evidence(tables, rows, osl=11, ignore_eos=True)) == expected
        assert _codes(_evidence(tables, rows, osl=11, ignore_eos=False)) == []


def test_silence_about_the_cache_is_no_proof(tables: ModuleType) -> None:
    """Without cached tokens in the usage nobody knows about hits: fine only where they do not matter."""
    rows = tables.closed_loop(4, 40)
    for row in rows:
        row["cached_tokens"] = None
    for cache, expected in (
        ("allow", []),
        ("forbid", ["cache_state_wrong"]),
        ("expect", ["cache_state_wrong"]),
    ):
        assert _codes(_evidence(tables, rows, cache=cache)) == expected


def test_a_load_that_was_never_there(tables: ModuleType) -> None:
    """Eight asked and four in flight is not a measurement of eight."""
    rows = tables.closed_loop(4, 40)
    verdict, notes = judge(_evidence(tables, rows, concurrency=8))
    assert verdict == Verdict.INVALID and [note.code for note in notes] == ["concurrency_not_reached"]
    assert "4 at most" in notes[0].detail


def test_too_few_requests(tables: ModuleType) -> None:
    """Fewer completed requests than the scenario needs."""
    assert _codes(_evidence(tables, tables.closed_loop(4, 20), min_requests=30)) == ["too_few_requests"]


def test_late_sends_are_the_clients_fault(tables: ModuleType) -> None:
    """Sends later than 5 ms and 2 % of ttft show a saturated client; under a long ttft they do not."""
    rows = tables.closed_loop(4, 40)
    for row in rows:
        row["send_ns"] = row["intended_send_ns"] + 8_000_000
    assert _codes(_evidence(tables, rows)) == ["client_saturated"]
    slow = tables.closed_loop(4, 40, ttft=1000)
    for row in slow:
        row["send_ns"] = row["intended_send_ns"] + 8_000_000
    assert _codes(_evidence(tables, slow)) == []


def test_a_busy_worker_is_the_clients_fault(good: Evidence) -> None:
    """A worker at its limit is; a timing manager that spins by design is not; with a tick it is."""
    for client, expected in (
        (ClientFacts(tick_hz=100, busy_share={"worker": 0.97}), ["client_saturated"]),
        (ClientFacts(tick_hz=100, busy_share={"timing_manager": 0.97}), ["client_saturated"]),
        (ClientFacts(tick_hz=None, busy_share={"timing_manager": 1.0, "worker": 0.5}), []),
        (ClientFacts(tick_hz=100, busy_share={"records_manager": 1.0}), []),
    ):
        assert _codes(replace(good, client=client)) == expected


def test_completions_near_the_tick_are_run_again(good: Evidence) -> None:
    """More than a third of the tick rate is too near: not the engine's fault, tried again."""
    verdict, notes = judge(replace(good, client=ClientFacts(tick_hz=50)))
    assert verdict == Verdict.INFRA_ERROR and [note.code for note in notes] == ["client_rate_capped"]
    assert judge(replace(good, client=ClientFacts(tick_hz=None)))[0] == Verdict.VALID


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"exit_code": 1}, "client_died"),
        ({"exit_code": None, "signal": 9}, "client_died"),
        ({"is_ready": False}, "client_died"),
        ({"is_complete": False}, "client_died"),
        ({"was_cancelled": True}, "client_died"),
        ({"error": "cut line"}, "unreadable_export"),
        ({"error": "cut line", "signal": 9}, "client_died"),
    ],
)
def test_the_export_must_be_whole(good: Evidence, facts: dict[str, Any], expected: str) -> None:
    """Exit code, signal, ready file and summary are all looked at, whatever the numbers say."""
    verdict, notes = judge(replace(good, export=replace(good.export, **facts)))
    assert verdict == Verdict.INFRA_ERROR and [note.code for note in notes] == [expected]


def test_no_table_is_a_dead_client(good: Evidence) -> None:
    """Without an export there is nothing to judge."""
    assert _codes(replace(good, table=None)) == ["client_died"]


def test_an_old_export_is_refused(good: Evidence) -> None:
    """An export that began before the attempt is of another one."""
    start = good.export.start_ns
    assert start is not None
    verdict, notes = judge(replace(good, attempt_started_ns=start + 1))
    assert verdict == Verdict.INFRA_ERROR and [note.code for note in notes] == ["stale_export"]


def _wreck(tables: ModuleType) -> Evidence:
    """What a server's death leaves: half the requests failed, the client gave up, the canary failed."""
    rows = tables.closed_loop(4, 20) + [tables.failed(1100 + index, 1101 + index) for index in range(20)]
    evidence = _evidence(tables, rows)
    export = replace(evidence.export, exit_code=1, is_complete=False, was_cancelled=True)
    return replace(evidence, export=export, findings=[_note("canary_failed")])


@pytest.mark.parametrize(
    ("events", "verdict", "expected"),
    [
        (["server_died"], Verdict.INVALID, ["server_died"]),
        (["client_died", "server_died"], Verdict.INVALID, ["server_died"]),
        (["server_killed", "client_died"], Verdict.INFRA_ERROR, ["server_killed"]),
        (["oom", "server_died"], Verdict.INVALID, ["oom", "server_died"]),
        (["load_timeout", "stalled", "client_died"], Verdict.INVALID, ["stalled"]),
        (["load_timeout", "client_died"], Verdict.INVALID, ["load_timeout"]),
        (["client_died"], Verdict.INFRA_ERROR, ["client_died"]),
        (["stalled", "orchestrator_paused"], Verdict.INFRA_ERROR, ["orchestrator_paused"]),
        (["server_died", "interrupted"], Verdict.CANCELLED, ["interrupted"]),
        (["server_died", "disk_full"], Verdict.INFRA_ERROR, ["disk_full"]),
    ],
)
def test_the_cause_is_blamed_and_not_its_consequences(
    tables: ModuleType, events: list[str], verdict: Verdict, expected: list[str]
) -> None:
    """A cause that was seen explains failed requests, a dead client and a failed canary."""
    found, notes = judge(replace(_wreck(tables), events=[_note(code) for code in events]))
    assert found == verdict and [note.code for note in notes] == expected
    assert "20 of 40 requests failed" in notes[0].detail
    for later in set(events) - set(expected):
        assert later in notes[0].detail


def test_findings_of_other_checks_count(good: Evidence) -> None:
    """A failed canary makes a point with good numbers invalid."""
    verdict, notes = judge(replace(good, findings=[_note("canary_failed")]))
    assert verdict == Verdict.INVALID and notes == [_note("canary_failed")]


def test_launch_facts_stand_beside_a_dead_server(tables: ModuleType) -> None:
    """That the server ran with other arguments stays true when it died."""
    evidence = replace(_wreck(tables), events=[_note("server_died")], findings=[_note("args_not_effective")])
    assert _codes(evidence) == ["server_died", "args_not_effective"]


def test_unknown_codes_are_a_bug(good: Evidence) -> None:
    """A code without a row in the registry cannot slip through as valid."""
    with pytest.raises(KeyError):
        judge(replace(good, findings=[_note("no_such_code")]))
    with pytest.raises(KeyError):
        judge(replace(good, events=[_note("no_such_code")]))
