"""An independent minimal client: a closed loop of N lanes over asyncio's own sockets, nothing else.

The oracle of the load generator on the real engine. It knows no AIPerf and none of Isoline.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One request: monotonic seconds of send, first and last token; tokens by the server's usage."""

    sent: float
    first: float
    last: float
    output_tokens: int


@dataclass(frozen=True)
class Result:
    """What a run gave."""

    replies: list[Reply]

    @property
    def output_tps(self) -> float:
        """Output tokens over the time from the first send to the last token."""
        span = max(reply.last for reply in self.replies) - min(reply.sent for reply in self.replies)
        return sum(reply.output_tokens for reply in self.replies) / span


async def _ask(host: str, port: int, body: dict[str, Any]) -> Reply:
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    sent = time.monotonic()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(head.encode() + data)
    first = last = 0.0
    tokens = 0
    while line := await reader.readline():
        now = time.monotonic()
        if line.startswith(b"data: [DONE]"):
            break
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        if any(choice.get("delta", {}).get("content") for choice in chunk.get("choices", [])):
            first, last = first or now, now
        if chunk.get("usage"):
            tokens = int(chunk["usage"]["completion_tokens"])
    writer.close()
    if not first or not tokens:
        raise RuntimeError("a stream without text or without usage")
    return Reply(sent, first, last, tokens)


async def _loop(host: str, port: int, bodies: list[dict[str, Any]], lanes: int) -> Result:
    todo = iter(bodies)
    replies: list[Reply] = []

    async def lane() -> None:
        for body in todo:
            replies.append(await _ask(host, port, body))

    await asyncio.gather(*(lane() for _ in range(lanes)))
    return Result(replies)


def run(host: str, port: int, bodies: list[dict[str, Any]], lanes: int) -> Result:
    """Send every body once, ``lanes`` at a time."""
    return asyncio.run(_loop(host, port, bodies, lanes))
