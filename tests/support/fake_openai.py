"""A small OpenAI-like server that writes down what it did: the oracle of the load adapter.

Run as a process: ``python fake_openai.py '{"ttft_s": 0.2, ...}'``; it prints its port on the first
line. ``GET /oracle`` gives every request with its own monotonic and epoch time stamps at each
write. Standard library only, so that nothing but the kernel and asyncio stands in between.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Config:
    """The schedule. ``faults`` maps the number of a request (from 0, in order of arrival) to a fault.

    Faults: http_500, empty_stream, no_body, early_end, cut, error_in_stream, http_200_error,
    wrong_usage, no_usage, one_token, reasoning, hang.
    """

    ttft_s: float = 0.05
    itl_s: float = 0.005
    tokens: int = 16  # where the request does not say
    tokens_per_chunk: int = 1
    first_chunk_tokens: int | None = None
    continuous_usage: bool = False
    prompt_tokens: int = 32
    cached_tokens: int | None = 0
    faults: dict[str, str] = field(default_factory=dict)


@dataclass
class Seen:
    """One request as the server lived it.

    ``writes`` = [monotonic ns, epoch ns, tokens] of each token-bearing chunk.
    """

    number: int
    fault: str
    prompt: str
    asked_tokens: int
    accepted_mono_ns: int
    received_mono_ns: int
    received_epoch_ns: int
    writes: list[tuple[int, int, int]] = field(default_factory=list)
    ended_mono_ns: int = 0


class Server:
    """The server's state."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.seen: list[Seen] = []
        self.counter = 0
        self.prompt_tokens_total = 0
        self.tokens_predicted_total = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the client closes it."""
        accepted = time.monotonic_ns()
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, path, _ = head.split("\r\n", 1)[0].split(" ", 2)
                length = 0
                for line in head.split("\r\n")[1:]:
                    name, _, value = line.partition(":")
                    if name.lower() == "content-length":
                        length = int(value)
                body = await reader.readexactly(length)
                if method == "POST" and "completions" in path:
                    if not await self.complete(writer, path, json.loads(body), accepted):
                        break
                else:
                    self.other(writer, path)
                await writer.drain()
                accepted = time.monotonic_ns()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def other(self, writer: asyncio.StreamWriter, path: str) -> None:
        """GET routes."""
        kind = "application/json"
        if path == "/oracle":
            text = json.dumps([asdict(seen) for seen in self.seen])
        elif path == "/metrics":
            kind = "text/plain"
            text = (
                "# TYPE fake:prompt_tokens_total counter\n"
                f"fake:prompt_tokens_total {self.prompt_tokens_total}\n"
                "# TYPE fake:tokens_predicted_total counter\n"
                f"fake:tokens_predicted_total {self.tokens_predicted_total}\n"
            )
        elif path.startswith("/v1/models"):
            text = json.dumps({"object": "list", "data": [{"id": "fake"}]})
        else:
            text = json.dumps({"status": "ok"})
        writer.write(_whole("200 OK", text, kind))

    async def complete(
        self, writer: asyncio.StreamWriter, path: str, body: dict[str, Any], accepted: int
    ) -> bool:
        """One generation. False: the connection must be closed."""
        config = self.config
        asked = body.get("max_completion_tokens") or body.get("max_tokens") or config.tokens
        seen = Seen(
            number=self.counter,
            fault=config.faults.get(str(self.counter), ""),
            prompt=json.dumps(body.get("messages") or body.get("prompt")),
            asked_tokens=asked,
            accepted_mono_ns=accepted,
            received_mono_ns=time.monotonic_ns(),
            received_epoch_ns=time.time_ns(),
        )
        self.counter += 1
        self.seen.append(seen)
        start = time.monotonic()
        fault = seen.fault
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "http_500":
            writer.write(_whole("500 Internal Server Error", '{"error": {"message": "boom", "code": 500}}'))
            seen.ended_mono_ns = time.monotonic_ns()
            return True
        if fault == "http_200_error":
            writer.write(_whole("200 OK", '{"error": {"message": "no slot", "code": 503}}'))
            seen.ended_mono_ns = time.monotonic_ns()
            return True
        if fault == "one_token":
            asked = 1
        stream = _Stream(writer, "chat" in path)
        stream.head()
        stream.role()
        await self.generate(stream, seen, asked, start)
        self.prompt_tokens_total += config.prompt_tokens
        await writer.drain()
        if fault == "cut":
            writer.transport.abort()
            return False
        if fault not in ("early_end", "no_body"):
            stream.event({**stream.choice({}, "length")})
            if fault != "no_usage":
                stream.event({**stream.empty(), "usage": self.usage(seen, fault)})
            stream.raw(b"data: [DONE]\n\n")
        stream.end()
        await writer.drain()
        seen.ended_mono_ns = time.monotonic_ns()
        return True

    async def generate(self, stream: _Stream, seen: Seen, asked: int, start: float) -> None:
        """Write the token chunks by the schedule, each at its own absolute time."""
        config, fault = self.config, seen.fault
        await _sleep_until(start + config.ttft_s)
        if fault in ("empty_stream", "no_body"):
            return
        sent = number = 0
        while sent < asked:
            if fault in ("early_end", "cut") and sent >= asked // 2:
                return
            if fault == "error_in_stream" and sent >= asked // 2:
                stream.event({"error": {"message": "CUDA error: out of memory", "code": 500}})
                return
            size = config.tokens_per_chunk
            if number == 0 and config.first_chunk_tokens:
                size = config.first_chunk_tokens
            size = min(size, asked - sent)
            if number:
                await _sleep_until(start + config.ttft_s + sent * config.itl_s)
            name = "reasoning_content" if fault == "reasoning" and sent < asked // 2 else "content"
            event = stream.choice({name: " a" * size})
            sent += size
            number += 1
            if config.continuous_usage:
                event["usage"] = self.usage(seen, "", sent)
            mono, epoch = stream.event(event)
            seen.writes.append((mono, epoch, size))
            self.tokens_predicted_total += size

    def usage(self, seen: Seen, fault: str, sent: int | None = None) -> dict[str, Any]:
        """The usage object; its output count is wrong by a factor of two where asked for."""
        count = sum(write[2] for write in seen.writes) if sent is None else sent
        if fault == "wrong_usage":
            count *= 2
        usage: dict[str, Any] = {
            "prompt_tokens": self.config.prompt_tokens,
            "completion_tokens": count,
            "total_tokens": self.config.prompt_tokens + count,
        }
        if self.config.cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.config.cached_tokens}
        return usage


class _Stream:
    """A chunked server-sent event stream."""

    def __init__(self, writer: asyncio.StreamWriter, chat: bool) -> None:
        self.writer = writer
        self.chat = chat

    def head(self) -> None:
        self.writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

    def empty(self) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {"id": "x", "object": kind, "model": "fake", "created": 0, "choices": []}

    def choice(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        inner = {"delta": delta} if self.chat else {"text": delta.get("content", "")}
        return {**self.empty(), "choices": [{"index": 0, "finish_reason": finish, **inner}]}

    def role(self) -> None:
        if self.chat:
            self.event(self.choice({"role": "assistant", "content": None}))

    def event(self, value: dict[str, Any]) -> tuple[int, int]:
        """Write one event; returns (monotonic, epoch) nanoseconds just before the write."""
        data = b"data: " + json.dumps(value).encode() + b"\n\n"
        stamp = time.monotonic_ns(), time.time_ns()
        self.raw(data)
        return stamp

    def raw(self, data: bytes) -> None:
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")


def _whole(status: str, text: str, kind: str = "application/json") -> bytes:
    data = text.encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


async def _sleep_until(moment: float) -> None:
    wait = moment - time.monotonic()
    if wait > 0:
        await asyncio.sleep(wait)


async def _main(config: Config) -> None:
    state = Server(config)
    server = await asyncio.start_server(state.handle, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    parent = os.getppid()
    async with server:
        await server.start_serving()
        while os.getppid() == parent:  # never outlive the test
            await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(_main(Config(**json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})))
