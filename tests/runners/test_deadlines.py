"""A start has the time that its size needs; standing still ends it early, getting on lets it take longer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool
from isoline.runners.launchers.deadlines import (
    ASSUMED_GB_S,
    GRACE_S,
    LOAD_SLACK,
    STALL_S,
    IoMeter,
    LogProgress,
    PastLoad,
    ReadyBudget,
    ReadyClock,
    parse_io,
    past_rate,
    ready_budget,
    startup,
)

GB = 1_000_000_000


def pool(**changes: object) -> Pool:
    fields: dict[str, object] = {"schema_version": 1, "name": "p", "launcher": "simulated", "sku": "h200"}
    return Pool.model_validate(fields | changes)


def test_ready_follows_from_size_and_rate() -> None:
    """Weights over the pool's rate, with slack, and the pool's compile allowance."""
    budget = ready_budget(600 * GB, pool(load_gb_s=2.0, compile_s=100.0), "vllm")
    assert budget.deadline_s == pytest.approx(300 * LOAD_SLACK + 100)
    assert "600.0 GB at 2 GB/s (measured for the pool)" in budget.why
    twice = ready_budget(1200 * GB, pool(load_gb_s=2.0, compile_s=100.0), "vllm")
    assert twice.deadline_s - 100 == pytest.approx(2 * (budget.deadline_s - 100))


def test_without_a_rate_past_launches_then_an_assumption() -> None:
    """A pool nobody measured uses its own past, and says so; without a past, a stated assumption."""
    loads = [PastLoad(100 * GB, 100.0 + extra) for extra in (0, 10, 20, 30)]
    by_past = ready_budget(100 * GB, pool(compile_s=0.0), "vllm", past=loads)
    assert "of past launches" in by_past.why
    assert 100 * LOAD_SLACK <= by_past.deadline_s <= 130 * LOAD_SLACK
    assumed = ready_budget(100 * GB, pool(compile_s=0.0), "vllm", past=loads[:2])
    assert "assumed" in assumed.why
    assert assumed.deadline_s == pytest.approx(100 / ASSUMED_GB_S * LOAD_SLACK)


def test_one_lucky_launch_sets_no_rate() -> None:
    """A launch out of the page cache does not shorten everybody's deadline: the lower quartile counts."""
    slow = [PastLoad(100 * GB, 200.0)] * 3
    rate = past_rate([*slow, PastLoad(100 * GB, 2.0)], 0.0)
    assert rate == pytest.approx(0.5)


def test_the_recipes_own_deadline_is_the_least() -> None:
    """A recipe may ask for more time, never get less; unknown weights fall back to it."""
    quick = ready_budget(GB, pool(load_gb_s=10.0, compile_s=0.0), "vllm", floor_s=300)
    assert quick.deadline_s == 300
    assert ready_budget(None, pool(compile_s=0.0), "vllm", floor_s=120).deadline_s == 120


def test_every_engine_has_an_allowance() -> None:
    """An engine with a backend takes the backend's; any other engine the common one."""
    table = startup().compile_s
    engines = load_catalog().engines
    for name in engines:
        budget = ready_budget(0, pool(), name)
        assert budget.deadline_s in table.values()
    assert ready_budget(0, pool(), "dynamo-trtllm").deadline_s == table["trtllm"]


BUDGET = ReadyBudget(deadline_s=1000, hard_cap_s=3000, stall_s=STALL_S, why="a test")


def test_a_start_without_progress_ends_before_its_deadline() -> None:
    """Nothing read and nothing written for the stall time ends it, with what was last seen."""
    clock = ReadyClock(BUDGET, 0.0)
    assert clock.tell(1, 5 * GB) is None
    assert clock.tell(STALL_S, 5 * GB) is None
    late = clock.tell(1 + STALL_S, 5 * GB)
    assert late is not None and late.code == "launch_timeout"
    assert "no progress for 300 s" in late.why and "5.0 GB read" in late.why


def test_progress_goes_past_the_deadline_up_to_the_cap() -> None:
    """What still reads may take longer than was thought; at the hard cap it is over all the same."""
    clock = ReadyClock(BUDGET, 0.0)
    for second in range(0, 2990, 10):
        assert clock.tell(second, second * 20_000_000) is None
    late = clock.tell(3000, 3000 * 20_000_000)
    assert late is not None and "hard cap" in late.why


def test_past_the_deadline_progress_must_be_fresh() -> None:
    """After the deadline the last progress may be two minutes old, no older."""
    clock = ReadyClock(BUDGET, 0.0)
    for second in range(0, 901, 100):
        assert clock.tell(second, second * GB) is None
    assert clock.tell(900 + GRACE_S - 1, 900 * GB) is None
    late = clock.tell(900 + GRACE_S, 900 * GB)
    assert late is not None and "not ready after 1020 s and no progress for 120 s" in late.why


def test_idle_reads_are_no_progress() -> None:
    """A process that reads a little now and then does not keep a hung start alive."""
    clock = ReadyClock(BUDGET, 0.0)
    answers = [clock.tell(second, second * 10_000) for second in range(0, 400, 10)]
    assert any(answers)


def test_a_pause_of_ours_is_left_out() -> None:
    """A machine that slept does not fail the server that slept with it."""
    clock = ReadyClock(BUDGET, 0.0)
    assert clock.tell(100, GB) is None
    clock.forgive(5000)
    assert clock.tell(5200, GB) is None
    assert clock.tell(5100 + STALL_S, GB) is not None


@given(st.lists(st.tuples(st.floats(0, 400), st.integers(0, 10**9)), max_size=60))
def test_a_start_always_ends(steps: list[tuple[float, int]]) -> None:
    """Whatever it reads, it goes on only below the hard cap, and only with progress after the deadline."""
    clock = ReadyClock(BUDGET, 0.0)
    now, total = 0.0, 0
    for wait, count in steps:
        now, total = now + wait, total + count
        late = clock.tell(now, total)
        if late is None:
            assert now < BUDGET.hard_cap_s
            assert now - clock.progress < BUDGET.stall_s
        if now >= BUDGET.hard_cap_s:
            assert late is not None


LOGS = {
    "vllm": [
        "(Worker pid=3) Loading safetensors checkpoint shards:  56% Completed | 5/9 [00:13<00:11, 2.9s/it]",
        "(Worker pid=3) Loading safetensors checkpoint shards:  67% Completed | 6/9 [00:16<00:08,  2.94s/it]",
        "(Worker pid=3) INFO 05-06 20:59:59 [gpu_model_runner.py:4879] Model loading took 12.66 GiB memory",
        "(Worker pid=3) INFO 05-06 21:00:16 [backends.py:1128] Dynamo bytecode transform time: 3.54 s",
        "Capturing CUDA graphs (decode, FULL):   4%|▍         | 2/51 [00:00<00:05,  8.3it/s]",
        "Capturing CUDA graphs (decode, FULL):   6%|▌         | 3/51 [00:00<00:05,  8.3it/s]",
    ],
    "sglang": [
        "[2026-07-02 07:41:00 TP0] Load weight begin. avail mem=190.10 GB",
        "[2026-07-02 07:41:58 TP0] Load weight end. type=DeepseekV3ForCausalLM, dtype=torch.bfloat16",
        "[2026-07-02 07:42:10 TP0] Capture cuda graph begin. This can take up to several minutes.",
        "Capturing batches (bs=160 avail_mem=21.73 GB):   4%|4    | 1/23 [00:03<01:10,  3.2s/it]",
        "Capturing batches (bs=152 avail_mem=21.71 GB):   9%|9    | 2/23 [00:05<01:00,  2.9s/it]",
    ],
    "dynamo-trtllm": [
        "[TRT-LLM] [RANK 0] [I] Finished prefetching /models/x/model-00001.safetensors.",
        "Loading weights: 100%|██████████| 1190/1190 [01:01<00:00, 19.26it/s]",
        "[TRT-LLM] [I] Run generation-only CUDA graph warmup for batch size=128, draft_len=0",
        "[TRT-LLM] [I] Run generation-only CUDA graph warmup for batch size=64, draft_len=0",
    ],
    "llamacpp": [
        "llama_model_loader: loaded meta data with 37 key-value pairs and 272 tensors from m.gguf",
        "load_tensors: loading model tensors, this can take a while... (mmap = true)",
        "llama_context: constructing llama_context",
    ],
}  # fmt: skip


@pytest.mark.parametrize("engine", LOGS)
def test_each_line_of_a_start_is_one_step(engine: str) -> None:
    """Shards, graphs and phases count once each; the same lines again, by all ranks, are no progress."""
    log = LogProgress(engine)
    for count, line in enumerate(LOGS[engine], start=1):
        log.feed(line + "\n")
        assert log.steps == count, line
    log.feed("\n".join(LOGS[engine]) + "\n")
    assert log.steps == len(LOGS[engine])


def test_a_bar_that_rewrites_its_line_in_pieces() -> None:
    """tqdm writes carriage returns and no line ends; pieces may be cut anywhere."""
    text = "".join(f"\rCapturing batches (bs=1): {n}%|{'#' * n}| {n}/9 [00:0{n}<00:01]" for n in range(1, 10))
    log = LogProgress("sglang")
    for position in range(0, len(text), 7):
        log.feed(text[position : position + 7])
    log.feed("\r")
    assert log.steps == 9


def test_chatter_is_no_progress() -> None:
    """A server that only says that it waits does not get on."""
    log = LogProgress("vllm")
    for minute in range(50):
        log.feed(
            f"INFO 12:{minute:02} [shm_broadcast.py:501] No available shared memory broadcast block found\n"
        )
        log.feed("DEBUG Waiting for 1 local, 0 remote core engine proc(s) to start.\n")
    assert log.steps == 0


def test_bytes_of_processes_that_ended_stay_counted() -> None:
    """Loaders come and go; the sum never falls."""
    meter = IoMeter()
    assert meter.tell({1: 100, 2: 50}) == 150
    assert meter.tell({2: 80}) == 180
    assert meter.tell({2: 80, 3: 20}) == 200


def test_bytes_of_a_real_process() -> None:
    """The kernel's own file is understood, and reading a file makes the number grow."""
    io = Path(f"/proc/{os.getpid()}/io")
    before = parse_io(io.read_text())
    with Path("/dev/zero").open("rb") as zeros:
        zeros.read(1_000_000)
    assert parse_io(io.read_text()) - before >= 1_000_000
