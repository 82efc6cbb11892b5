"""Any engine that the catalog describes: asked, counted and reset by the facts that stand there.

vLLM, SGLang, TensorRT-LLM, ATOM and their wrappers differ in paths and names, which are data
(``catalog/data/engines.yaml``). What an engine does not offer is never taken as given: where the reset of
its cache cannot be called or proven, the reset fails, and the server has to be started anew.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from isoline.catalog.engines import Engine
from isoline.catalog.facts import load_catalog
from isoline.errors import InputError
from isoline.runners.causes import explain
from isoline.runners.engines.base import EngineCallError
from isoline.runners.engines.openai import as_json, at_rest, call, generate
from isoline.runners.launchers.interface import PhaseFailedError, ResetProof, ShouldStop

ASK_S = 5.0
PROBE_TOKENS = 1
PROBE_S = 60.0
PROBE = "The quick brown fox jumps over the lazy dog. " * 60
"""Longer than a block of any engine's cache, so that a cache which was not emptied shows a hit."""

NAMES = {
    "running": "running",
    "waiting": "waiting",
    "prompt_tokens": "input_tokens",
    "generation_tokens": "output_tokens",
    "cached_tokens": "cached_tokens",
    "kv_usage": "kv_usage",
    "drafts": "drafts",
    "drafted_tokens": "drafted_tokens",
    "accepted_tokens": "accepted_tokens",
}
"""Fields of the catalog's :class:`isoline.catalog.engines.Metrics`, and our names of the counters."""

_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(\{.*\})?\s+(\S+)(?:\s+\S+)?\Z")


def parse_prometheus(text: str) -> dict[str, float]:
    """Values by metric name, summed over labels (ranks, models); comments and broken lines are left out."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line.strip())
        if match is None:
            continue
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        found[match.group(1)] = found.get(match.group(1), 0.0) + value
    return found


class Served:
    """The adapter of one engine of the catalog; it has no state.

    :raises InputError: for an engine that the catalog does not know.
    """

    def __init__(self, name: str) -> None:
        catalog = load_catalog()
        if name not in catalog.engines:
            raise InputError(f"no engine {name!r} in the catalog")
        self.name = name
        self.facts: Engine = catalog.engines[name]
        self.isolation: Literal["reset", "restart"] = "reset" if self.facts.cache_reset else "restart"

    def script(self) -> Path:
        """There is none: the program is in the image. :raises InputError: always."""
        raise InputError(f"engine {self.name} has no start script")

    def healthy(self, url: str) -> bool:
        """Whether its health page answers 200; where none is known, the list of models."""
        try:
            call("GET", f"{url}{self.facts.health or '/v1/models'}", 2.0)
        except EngineCallError:
            return False
        return True

    def generate(self, url: str, alias: str, tokens: int, timeout_s: float) -> tuple[int, str]:
        """One streaming chat completion of exactly ``tokens`` tokens. :raises EngineCallError:"""
        return generate(url, alias, tokens, timeout_s, {})

    def counters(self, url: str, timeout_s: float) -> dict[str, float]:
        """What its metrics page shows, under our names.

        :raises EngineCallError: no page, no answer in time, or neither requests nor tokens on it.
        """
        metrics = self.facts.metrics
        if metrics is None:
            raise EngineCallError(f"no metrics page is known of engine {self.name}")
        samples = parse_prometheus(call("GET", f"{url}{metrics.path}", timeout_s).text)
        found = {}
        for field, ours in NAMES.items():
            name = getattr(metrics, field)
            if name is not None and name in samples:
                found[ours] = samples[name]
        missing = [name for name in ("running", "waiting") if name not in found]
        if missing:
            raise EngineCallError(f"{metrics.path} lacks {' and '.join(missing)}")
        return found

    def reset(self, url: str, deadline_s: float, should_stop: ShouldStop | None = None) -> ResetProof:
        """Wait for rest, fill the cache with a known prompt, empty it, and see that the prompt is unknown.

        :raises PhaseFailedError: ``reset_failed`` where there is no such call, it does not answer, or the
            prompt is still known afterwards.
        """
        began = time.monotonic()
        at_rest(lambda left_s: self.counters(url, left_s), deadline_s, should_stop)
        reset = self.facts.cache_reset
        if reset is None:
            raise PhaseFailedError("reset_failed", f"engine {self.name} has no call that empties its cache")
        try:
            self._probe(url)
            held = self._cached(url)
            call(reset.method, f"{url}{reset.path}", max(ASK_S, deadline_s))
            self._probe(url)
            hits = self._cached(url) - held
            call(reset.method, f"{url}{reset.path}", max(ASK_S, deadline_s))  # the probe itself
        except EngineCallError as error:
            raise PhaseFailedError("reset_failed", str(error)) from error
        if hits > 0:
            raise PhaseFailedError("reset_failed", f"{hits:.0f} tokens were still cached after {reset.path}")
        return ResetProof(took_s=time.monotonic() - began, slots=0, tokens_erased=None)

    def _probe(self, url: str) -> None:
        models = as_json(call("GET", f"{url}/v1/models", ASK_S))
        try:
            alias = str(models["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise EngineCallError("/v1/models names no model") from None
        generate(url, alias, PROBE_TOKENS, PROBE_S, {}, PROBE)

    def _cached(self, url: str) -> float:
        """Tokens that were found in the cache so far. :raises EngineCallError: when it does not say."""
        found = self.counters(url, ASK_S)
        if "cached_tokens" not in found:
            raise EngineCallError("the server does not count cached tokens, so no reset can be proven")
        return found["cached_tokens"]

    def effective_args(self, url: str, scratch: Path) -> dict[str, Any]:
        """What its page of settings shows, flat, by the page's names; empty where there is no page.

        :raises EngineCallError: when the page is known and does not answer.
        """
        asked = self.facts.effective_args
        if asked is None:
            return {}
        answer = call("GET", f"{url}{asked.path}", ASK_S)
        try:
            return flat(answer.json())
        except ValueError:
            return {"text": answer.text[:100_000]}

    def differences(self, argv: tuple[str, ...], effective: Mapping[str, Any]) -> list[str]:
        """Numbers and switches that were asked for and are shown as something else.

        Only what the page shows under the same name is compared: what it does not show proves nothing.
        """
        names = self.facts.effective_args.names if self.facts.effective_args else {}
        found = []
        for flag, value in asked_of(argv, self.facts).items():
            page = names.get(flag, flag.replace("-", "_"))
            if page not in effective:
                continue
            shown = effective[page]
            if not agree(value, shown):
                found.append(f"--{flag}: asked {value}, effective {shown}")
        return found

    def explain_exit(self, log_tail: str) -> str | None:
        """The reason code of the cause that the log gives."""
        cause = explain(log_tail, self.name)
        return cause.code if cause else None


def agree(asked: Any, shown: Any) -> bool:
    """Whether a word of the command line and a value of a page may mean the same; texts always may."""
    if isinstance(shown, bool):
        return str(asked).lower() == str(shown).lower()
    number = as_number(asked)
    if not isinstance(shown, (int, float)) or number is None:
        return True
    return abs(number - shown) <= 1e-6 * max(1.0, abs(number))


def flat(content: Any) -> dict[str, Any]:
    """The scalars of a nested answer by their last key; a key that stands for two values is left out."""
    found: dict[str, Any] = {}
    twice: set[str] = set()

    def walk(item: Any) -> None:
        if isinstance(item, dict):
            for key, value in item.items():
                if isinstance(value, (dict, list)):
                    walk(value)
                elif key in found and found[key] != value:
                    twice.add(key)
                else:
                    found[str(key)] = value
        elif isinstance(item, list):
            for value in item:
                walk(value)

    walk(content)
    return {key: value for key, value in found.items() if key not in twice}


def asked_of(argv: tuple[str, ...], facts: Engine) -> dict[str, Any]:
    """Arguments by canonical name: ``--flag value``, ``--flag=value``, and a bare ``--flag`` as true."""
    found: dict[str, Any] = {}
    words = list(argv)
    for index, word in enumerate(words):
        if not word.startswith("--") or len(word) < 3:
            continue
        flag, equals, value = word.partition("=")
        following = words[index + 1] if index + 1 < len(words) else None
        if equals:
            found[facts.canonical(flag)] = value
        elif following is None or following.startswith("--"):
            found[facts.canonical(flag)] = True
        else:
            found[facts.canonical(flag)] = following
    return found


def as_number(value: Any) -> float | None:
    """A number as the command line gives it; None where it is none."""
    try:
        parsed = json.loads(str(value))
    except ValueError:
        return None
    return float(parsed) if isinstance(parsed, (int, float)) and not isinstance(parsed, bool) else None
