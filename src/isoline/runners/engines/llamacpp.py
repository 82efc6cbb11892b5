"""llama.cpp's server: readiness, counters, reset and effective arguments over its HTTP interface.

Source: llama.cpp's server documentation, tried by hand with xllamacpp 2026.10.11549.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from isoline.runners.engines import llamacpp_server
from isoline.runners.engines.base import EngineCallError
from isoline.runners.engines.openai import as_json, at_rest, call, generate
from isoline.runners.launchers.interface import PhaseFailedError, ResetProof, ShouldStop

ARGS_NAME = "effective_args.json"
PREFIX = "llamacpp:"

COUNTERS = {
    "requests_processing": "running",
    "requests_deferred": "waiting",
    "prompt_tokens_total": "input_tokens",
    "prompt_tokens_cached_total": "cached_tokens",
    "tokens_predicted_total": "output_tokens",
    "n_decode_total": "steps",
}
"""llama.cpp's names and ours. Its ``prompt_tokens_total`` leaves cached tokens out."""

SAMPLING = {
    "temp": "temperature",
    "top-k": "top_k",
    "top-p": "top_p",
    "min-p": "min_p",
    "repeat-penalty": "repeat_penalty",
}
"""Flags and the names under which ``/props`` shows them."""

FLASH = {"on": "enabled", "off": "disabled"}

PORT_SIGNS = ("couldn't bind", "could not bind", "bind:", "address already in use", "http server error")
OOM_SIGNS = (
    "failed to allocate",
    "out of memory",
    "unable to allocate",
    "bad_alloc",
    "cannot allocate memory",
)


def parse_metrics(text: str) -> dict[str, float]:
    """Samples of the Prometheus text format without labels, by name without ``llamacpp:``; known ones
    under our names (:data:`COUNTERS`)."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        if name.startswith("#") or not name.startswith(PREFIX):
            continue
        short = name.removeprefix(PREFIX)
        try:
            found[COUNTERS.get(short, short)] = float(value)
        except ValueError:
            continue
    return found


class LlamaCpp:
    """The adapter; it has no state."""

    name = "llamacpp"
    isolation: Literal["reset", "restart"] = "reset"

    def script(self) -> Path:
        """Our start script, which runs in the engine's environment."""
        return Path(llamacpp_server.__file__).absolute()

    def healthy(self, url: str) -> bool:
        """Whether ``/health`` says ok."""
        try:
            return bool(as_json(call("GET", f"{url}/health", 2.0)).get("status") == "ok")
        except (EngineCallError, AttributeError):
            return False

    def generate(self, url: str, alias: str, tokens: int, timeout_s: float) -> tuple[int, str]:
        """One streaming chat completion of exactly ``tokens`` tokens, nothing cached.

        :raises EngineCallError: no answer in time, an error, no usage, or no text.
        """
        return generate(url, alias, tokens, timeout_s, {"cache_prompt": False})

    def counters(self, url: str, timeout_s: float) -> dict[str, float]:
        """What ``/metrics`` shows. :raises EngineCallError: no answer in time, or nothing of use."""
        found = parse_metrics(call("GET", f"{url}/metrics", timeout_s).text)
        missing = set(COUNTERS.values()) - set(found)
        if missing:
            raise EngineCallError(f"/metrics lacks {', '.join(sorted(missing))}")
        return found

    def reset(self, url: str, deadline_s: float, should_stop: ShouldStop | None = None) -> ResetProof:
        """Wait until nothing runs or waits, erase every slot, and see that a second erasing finds nothing.

        :raises PhaseFailedError: ``reset_failed`` past the deadline or when a slot keeps tokens.
        """
        began = time.monotonic()
        at_rest(lambda left_s: self.counters(url, left_s), deadline_s, should_stop)
        try:
            slots = as_json(call("GET", f"{url}/slots", 5.0))
            erased = self._erase(url, slots)
            kept = self._erase(url, slots)
        except EngineCallError as error:
            raise PhaseFailedError("reset_failed", str(error)) from error
        if kept:
            raise PhaseFailedError("reset_failed", f"{kept} tokens were still cached after erasing")
        return ResetProof(took_s=time.monotonic() - began, slots=len(slots), tokens_erased=erased)

    def _erase(self, url: str, slots: list[dict[str, Any]]) -> int:
        """Erase each slot; the number of tokens that they held."""
        total = 0
        for slot in slots:
            answer = as_json(call("POST", f"{url}/slots/{slot['id']}", 5.0, params={"action": "erase"}))
            total += int(answer["n_erased"])
        return total

    def effective_args(self, url: str, scratch: Path) -> dict[str, Any]:
        """``args`` as the start script read them back, and ``props`` as the server itself reports them.

        :raises EngineCallError: when one of them cannot be had.
        """
        try:
            args = json.loads((scratch / ARGS_NAME).read_text(encoding="utf-8"))["args"]
        except (OSError, ValueError, KeyError) as error:
            raise EngineCallError(f"no effective arguments: {error}") from error
        props = as_json(call("GET", f"{url}/props", 5.0))
        defaults = props.get("default_generation_settings", {})
        return {
            "args": args,
            "props": {
                "total_slots": props.get("total_slots"),
                "slot_ctx": defaults.get("n_ctx"),
                "model_alias": props.get("model_alias"),
                "model_ftype": props.get("model_ftype"),
                "build_info": props.get("build_info"),
                "chat_template": props.get("chat_template"),
                "sampling": {name: defaults.get("params", {}).get(name) for name in SAMPLING.values()},
            },
        }

    def differences(self, argv: tuple[str, ...], effective: Mapping[str, Any]) -> list[str]:
        """What was asked for and is not so: against the read-back parameters, then against ``/props``."""
        begin = next((i for i, word in enumerate(argv) if word.startswith("--")), len(argv))
        asked, _ = llamacpp_server.parse(list(argv[begin:]))
        args, props = effective["args"], effective["props"]
        found = []
        values: dict[str, Any] = {}
        for flag, name, text in asked:
            key = flag.shown or name.removeprefix("--")
            values[key] = flag.constant if flag.take is None else text
            if not _same(key, values[key], args.get(key)):
                found.append(f"{name}: asked {values[key]}, effective {args.get(key)}")
        slots = int(values.get("parallel", args.get("parallel", 1)))
        if props["total_slots"] != slots:
            found.append(f"--parallel: asked {slots}, the server has {props['total_slots']} slots")
        if int(values.get("ctx-size", 0)) > 0:
            share = int(values["ctx-size"]) // (1 if args.get("kv-unified") else slots)
            if props["slot_ctx"] is None or props["slot_ctx"] < share:
                found.append(f"--ctx-size: asked {share} a slot, the server has {props['slot_ctx']}")
        for key, name in SAMPLING.items():
            if key in values and not _same(key, values[key], props["sampling"].get(name)):
                found.append(f"--{key}: asked {values[key]}, the server has {props['sampling'].get(name)}")
        return found

    def explain_exit(self, log_tail: str) -> str | None:
        """``port_in_use`` or ``oom`` when the log says so."""
        text = log_tail.lower()
        if any(sign in text for sign in PORT_SIGNS):
            return "port_in_use"
        return "oom" if any(sign in text for sign in OOM_SIGNS) else None


def _same(key: str, asked: Any, effective: Any) -> bool:
    """Whether a value from the command line and one read back mean the same."""
    if isinstance(asked, bool) or effective is None:
        return asked is effective
    text = str(asked)
    if key == "flash-attn":
        text = FLASH.get(text, text)
    if isinstance(effective, (int, float)) and not isinstance(effective, bool):
        try:
            return abs(float(text) - float(effective)) <= 1e-5 * max(1.0, abs(float(effective)))
        except ValueError:
            return False
    if key == "slot-save-path":
        return text.rstrip("/") == str(effective).rstrip("/")
    if key == "prio":
        return True  # a number on the command line, a name when read back
    return text.lower() == str(effective).lower() if key.startswith("cache-type") else text == str(effective)
