"""Verdicts and their reason codes: one row each (DESIGN 5.4)."""

from __future__ import annotations

from isoline.results.judging.reasons_causes import CAUSES
from isoline.results.judging.reasons_imports import IMPORTED
from isoline.results.judging.reasons_jobs import JOBS
from isoline.results.judging.reasons_machine import MACHINE
from isoline.results.judging.verdicts import MAX_INFRA_RETRIES, SEVERITY, Reason, Verdict
from isoline.results.judging.verdicts import row as _r

__all__ = ["MAX_INFRA_RETRIES", "REASONS", "SEVERITY", "SKIPPED", "Reason", "Verdict", "worst"]

_I = Verdict.INVALID
_X = Verdict.INFRA_ERROR

REASONS: dict[str, Reason] = {
    reason.code: reason
    for reason in (
        _r(
            "zero_output_tokens",
            _I,
            "load",
            "no output token was measured",
            "read the server log; try one request by hand",
        ),
        _r(
            "empty_stream",
            _I,
            "load",
            "a stream ended without a token, though HTTP said 200",
            "read the server log of that moment",
        ),
        _r(
            "failed_requests",
            Verdict.PARTIAL,
            "load",
            "some requests failed, within the scenario's limit",
            "read the errors in requests.parquet",
        ),
        _r(
            "too_many_failed",
            _I,
            "load",
            "more requests failed than the scenario allows",
            "read the errors in requests.parquet",
        ),
        _r(
            "server_died",
            _I,
            "load",
            "the server ended by itself (exit code or own signal)",
            "read the end of the server log",
        ),
        _r(
            "server_killed",
            _X,
            "load",
            "the server was killed from outside (SIGKILL, SIGTERM)",
            "look for the OOM killer or a person; it is tried again",
        ),
        _r("server_restarted", _I, "load", "the server restarted under the load", "read the server log"),
        _r(
            "client_died",
            _X,
            "load",
            "the load generator ended without a result",
            "read aiperf's log in the bundle; it is tried again",
        ),
        _r(
            "orchestrator_paused",
            _X,
            "any",
            "Isoline itself stood still for longer than its tolerance",
            "do not suspend the machine during a run",
        ),
        _r(
            "clock_stepped",
            _X,
            "load",
            "a clock was set during the load: times of requests are out of order or too long",
            "let the time service slew, not step; it is tried again",
        ),
        _r(
            "launch_timeout",
            _I,
            "launch",
            "the server was not ready within its deadline",
            "read the server log; raise ready_s in the recipe",
        ),
        _r("launch_failed", _I, "launch", "the server ended before it was ready", "read the server log"),
        _r(
            "not_generating",
            _I,
            "launch",
            "the readiness generation gave the wrong number of tokens",
            "read the server log; check the chat template",
        ),
        _r(
            "stalled",
            _I,
            "load",
            "the server's own token counters stood still past the deadline",
            "read the server log; raise stall_s in the scenario if it was busy",
        ),
        _r(
            "load_timeout",
            _I,
            "load",
            "the load did not end within its deadline",
            "lower the number of requests or raise load_s",
        ),
        _r("oom", _I, "load", "the engine ran out of memory", "lower the concurrency or the context"),
        _r(
            "isl_mismatch",
            _I,
            "judge",
            "the server saw other input lengths than were asked for",
            "check the tokenizer and the chat template",
        ),
        _r(
            "osl_mismatch",
            _I,
            "judge",
            "the server gave other output lengths than were asked for",
            "check that the engine honours ignore_eos",
        ),
        _r(
            "token_count_mismatch",
            _I,
            "judge",
            "the text re-tokenises to another count than the server reports",
            "check the engine's usage numbers",
        ),
        _r(
            "usage_missing",
            _I,
            "judge",
            "the server reports no token usage",
            "turn on usage in streams for this engine",
        ),
        _r(
            "concurrency_not_reached",
            _I,
            "judge",
            "the asked concurrency was not in flight long enough",
            "raise the number of requests, or look at the client",
        ),
        _r(
            "client_saturated",
            _I,
            "judge",
            "the load generator itself was the bottleneck",
            "give the client more cores, or lower the rate",
        ),
        _r(
            "client_rate_capped",
            _X,
            "judge",
            "completions came too near to the client's tick rate",
            "it is run again with a larger tick rate",
        ),
        _r(
            "too_few_requests",
            _I,
            "judge",
            "too few requests completed for a number",
            "raise the number of requests",
        ),
        _r(
            "gpu_count_mismatch",
            _I,
            "launch",
            "the devices in use are not those of the plan",
            "compare topology and leased devices",
        ),
        _r(
            "sku_mismatch",
            _I,
            "launch",
            "the machine has another SKU than the recipe",
            "choose a pool of the recipe's SKU",
        ),
        _r(
            "args_not_effective",
            _I,
            "launch",
            "the server runs with other arguments than were asked for",
            "compare effective_args.json with the plan",
        ),
        _r(
            "canary_failed",
            _I,
            "canary",
            "easy questions were answered wrongly at the point's own concurrency",
            "read canary.json in the bundle",
        ),
        _r(
            "canary_not_representative",
            _I,
            "canary",
            "the canary batch did not reach the point's concurrency",
            "read canary.json in the bundle",
        ),
        _r(
            "stale_export",
            _X,
            "judge",
            "the load generator's export is not of this attempt",
            "remove the old folder; it is tried again",
        ),
        _r(
            "unreadable_export",
            _X,
            "judge",
            "the load generator's export could not be read",
            "read aiperf's log in the bundle",
        ),
        _r(
            "weights_digest_mismatch",
            _I,
            "stage",
            "the weights are not those of the catalog",
            "delete the file; it is fetched again",
        ),
        _r("disk_full", _X, "any", "the store or scratch is full", "free space; sealed bundles are safe"),
        _r("port_in_use", _X, "launch", "the port was taken by somebody else", "another port is tried"),
        _r(
            "machine_busy",
            _X,
            "load",
            "other programs used most of the CPU while the load ran out of time",
            "end them, or measure when the machine is free; it is tried again",
        ),
        _r(
            "gpu_busy",
            _X,
            "launch",
            "a device is used by another process",
            "end that process or take another node",
        ),
        _r("image_digest_drift", _I, "launch", "the image is not the one of the plan", "plan again"),
        _r(
            "cache_state_wrong",
            _I,
            "reset",
            "cache hits where the scenario forbids them, or none where it wants them",
            "check the engine's cache reset",
        ),
        _r(
            "reset_failed",
            _X,
            "reset",
            "the server did not come to rest between two points",
            "it is restarted and tried again",
        ),
        _r("warmup_failed", _I, "warmup", "the warm-up requests failed", "read the server log"),
        _r(
            "interrupted",
            Verdict.CANCELLED,
            "any",
            "a person or the scheduler ended the run",
            "run the same command again",
        ),
        *CAUSES,
        *MACHINE,
        *JOBS,
        *IMPORTED,
    )
}

SKIPPED = (
    "not_staged",
    "breaker",
    "window_closed",
    "budget",
    "cancelled_run",
    "launch_failed",
    "no_node",
)
"""Why a planned point may have no attempt. Anything else is ``missing``, which is an alert."""


def worst(codes: list[str]) -> Verdict:
    """The verdict that a list of reason codes gives; no reason is ``valid``.

    :raises KeyError: for a code that has no row.
    """
    verdicts = [REASONS[code].verdict for code in codes]
    return max(verdicts, key=SEVERITY.index, default=Verdict.VALID)
