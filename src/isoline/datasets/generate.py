"""Makers of the project's own small datasets; seeded, so that a test can make them again."""

from __future__ import annotations

import json
import random

_SYSTEM = (
    "You are the night operator of a small observatory. Answer in plain sentences. The telescope has a "
    "mirror of two metres, a camera with four filters named red, green, blue and clear, and a dome that must "
    "stay closed when the wind is above fifteen metres per second or the humidity is above ninety per cent. "
    "Each night begins with flat frames at dusk, then the focus run, then the list of targets ordered by the "
    "time at which they stand highest. When a cloud passes, pause the exposure and note the time. When two "
    "targets compete, the one with the earlier deadline wins. Keep the log short: time, target, filter, "
    "exposure, remark. Never invent a measurement; say that it is missing instead."
)

_TARGETS = (
    "the ring nebula",
    "the double cluster",
    "a faint comet",
    "the Whirlpool galaxy",
    "a variable star in Lyra",
    "the planet Neptune",
    "an asteroid near the ecliptic",
    "the globular cluster in Hercules",
)
_EVENTS = (
    "the wind has risen to {n} metres per second",
    "a thin cloud covers the eastern sky",
    "the focus has drifted by {n} steps",
    "the guide star was lost for {n} seconds",
    "humidity has reached {m} per cent",
    "the blue filter wheel is slow tonight",
)
_ASKS = (
    "What should I do next, and what do I write in the log?",
    "Should the dome stay open, and why?",
    "Which target comes after this one, and with which filter?",
    "How long should the next exposure be, and what could spoil it?",
)


def chat_sessions(*, sessions: int, turns: int, output_tokens: int, seed: int) -> str:
    """A small multi-turn trace as JSON lines: every session begins with the same system prompt.

    The shared prefix is what a prefix cache can reuse between sessions; the growing history is what
    it can reuse between turns.

    :returns: one line a session, in the ``multi_turn`` form that AIPerf reads.
    """
    rng = random.Random(seed)
    lines = []
    for number in range(sessions):
        target = rng.choice(_TARGETS)
        rows: list[dict[str, object]] = [{"role": "system", "text": _SYSTEM}]
        for turn in range(turns):
            event = rng.choice(_EVENTS).format(n=rng.randint(5, 30), m=rng.randint(60, 99))
            opening = f"We are observing {target}." if turn == 0 else "Thank you."
            hour = (20 + turn) % 24
            text = f"{opening} It is {hour}:{rng.randint(10, 59)} and {event}. {rng.choice(_ASKS)}"
            rows.append({"role": "user", "text": text, "output_length": output_tokens})
        lines.append(json.dumps({"session_id": f"night-{number:02d}", "turns": rows}))
    return "\n".join(lines) + "\n"


DEMO_CHAT = {"sessions": 6, "turns": 4, "output_tokens": 24, "seed": 20261201}
"""The arguments that ``datasets/demo-chat.jsonl`` was made with."""

_NAMES = ("Ana", "Ben", "Cleo", "Dev", "Edda", "Finn", "Gita", "Hugo")
_THINGS = ("apples", "books", "coins", "eggs", "marbles", "pencils", "shells", "stamps")


def word_problems(*, count: int, seed: int) -> str:
    """Easy one-step word problems as JSON lines of ``{id, question, answer, kind}``; no two alike."""
    rng = random.Random(seed)
    rows: dict[str, str] = {}
    while len(rows) < count:
        name, thing = rng.choice(_NAMES), rng.choice(_THINGS)
        a, b = rng.randint(2, 12), rng.randint(2, 9)
        question, answer = rng.choice(
            (
                (f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?", a + b),
                (f"{name} has {a + b} {thing} and gives away {b}. How many {thing} are left?", a),
                (f"{name} has {a} boxes with {b} {thing} in each. How many {thing} are there in all?", a * b),
            )
        )
        rows.setdefault(question, str(answer))
    lines = [
        json.dumps({"id": f"p{number:02d}", "question": question, "answer": answer, "kind": "number"})
        for number, (question, answer) in enumerate(rows.items())
    ]
    return "\n".join(lines) + "\n"


ARITHMETIC_MINI = {"count": 32, "seed": 20261201}
"""The arguments that ``datasets/arithmetic-mini.jsonl`` was made with."""
