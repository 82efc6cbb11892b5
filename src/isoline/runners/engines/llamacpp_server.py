"""llama.cpp's server from the ``xllamacpp`` wheel, under llama-server's own flag names.

Run by the engine environment's Python, which has no Isoline: this file uses the standard library and
xllamacpp alone. One table maps each flag to a parameter; a flag that is not in it is an error, so that
nothing is ignored silently. What the parameters really are is read back and written as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

USAGE = 2


@dataclass(frozen=True)
class Flag:
    """One flag: where it goes (a dotted path of CommonParams) and how its text is read.

    ``take`` is None for a flag without a value, which sets ``constant``. ``shown`` is its name in the
    effective arguments; several flags may share one (``--slots``, ``--no-slots``).
    """

    path: str
    take: Callable[[str], Any] | None = None
    constant: Any = True
    shown: str = ""


def _enum(kind: str, prefix: str) -> Callable[[str], Any]:
    """Reads a name of one of xllamacpp's enumerations: ``f16`` for ``GGML_TYPE_F16``."""

    def take(text: str) -> Any:
        import xllamacpp

        return getattr(xllamacpp, kind).__members__[f"{prefix}{text.upper()}"]

    return take


def _flash(text: str) -> Any:
    return _enum("llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_")(
        {"on": "enabled", "off": "disabled"}.get(text, text)
    )


def _one(text: str) -> Any:
    return [text]


def _alias(text: str) -> Any:
    return {text}


def _folder(text: str) -> str:
    return text if text.endswith("/") else f"{text}/"  # llama.cpp joins by text


CACHE_TYPE = _enum("ggml_type", "GGML_TYPE_")

FLAGS: dict[str, Flag] = {
    "--model": Flag("model.path", str),
    "--alias": Flag("model_alias", _alias),
    "--host": Flag("hostnames", _one),
    "--port": Flag("port", int),
    "--ctx-size": Flag("n_ctx", int),
    "--parallel": Flag("n_parallel", int),
    "--threads": Flag("cpuparams.n_threads", int),
    "--threads-batch": Flag("cpuparams_batch.n_threads", int),
    "--threads-http": Flag("n_threads_http", int),
    "--poll": Flag("cpuparams.poll", int),
    "--prio": Flag("cpuparams.priority", int),
    "--batch-size": Flag("n_batch", int),
    "--ubatch-size": Flag("n_ubatch", int),
    "--n-predict": Flag("n_predict", int),
    "--n-gpu-layers": Flag("n_gpu_layers", int),
    "--keep": Flag("n_keep", int),
    "--cache-ram": Flag("cache_ram_mib", int),
    "--cache-reuse": Flag("n_cache_reuse", int),
    "--ctx-checkpoints": Flag("n_ctx_checkpoints", int),
    "--slot-save-path": Flag("slot_save_path", _folder),
    "--slot-prompt-similarity": Flag("slot_prompt_similarity", float),
    "--cache-type-k": Flag("cache_type_k", CACHE_TYPE),
    "--cache-type-v": Flag("cache_type_v", CACHE_TYPE),
    "--flash-attn": Flag("flash_attn_type", _flash),
    "--metrics": Flag("endpoint_metrics"),
    "--props": Flag("endpoint_props"),
    "--slots": Flag("endpoint_slots"),
    "--no-slots": Flag("endpoint_slots", constant=False, shown="slots"),
    "--warmup": Flag("warmup"),
    "--no-warmup": Flag("warmup", constant=False, shown="warmup"),
    "--cont-batching": Flag("cont_batching"),
    "--no-cont-batching": Flag("cont_batching", constant=False, shown="cont-batching"),
    "--kv-unified": Flag("kv_unified"),
    "--no-kv-unified": Flag("kv_unified", constant=False, shown="kv-unified"),
    "--cache-prompt": Flag("cache_prompt"),
    "--no-cache-prompt": Flag("cache_prompt", constant=False, shown="cache-prompt"),
    "--context-shift": Flag("ctx_shift"),
    "--no-context-shift": Flag("ctx_shift", constant=False, shown="context-shift"),
    "--swa-full": Flag("swa_full"),
    "--jinja": Flag("use_jinja"),
    "--no-jinja": Flag("use_jinja", constant=False, shown="jinja"),
    "--chat-template": Flag("chat_template", str),
    "--timeout": Flag("timeout_read", int),
    "--verbosity": Flag("verbosity", int),
    "--seed": Flag("sampling.seed", int),
    "--temp": Flag("sampling.temp", float),
    "--top-k": Flag("sampling.top_k", int),
    "--top-p": Flag("sampling.top_p", float),
    "--min-p": Flag("sampling.min_p", float),
    "--repeat-penalty": Flag("sampling.penalty_repeat", float),
    "--repeat-last-n": Flag("sampling.penalty_last_n", int),
}

ARGS_FILE = "--effective-args-file"


class UsageError(Exception):
    """The command line is wrong; the message says how."""


def parse(argv: list[str]) -> tuple[list[tuple[Flag, str, Any]], str | None]:
    """(flag, its name, value) in order, and the path for the effective arguments. Values are read late.

    :raises UsageError: for an unknown flag, one given twice, or one without its value.
    """
    found: list[tuple[Flag, str, Any]] = []
    seen: set[str] = set()
    args_file = None
    words = iter(argv)
    for word in words:
        name, has_value, value = word.partition("=")
        flag = FLAGS.get(name)
        if flag is None and name != ARGS_FILE:
            raise UsageError(f"unknown flag {name}; known: {' '.join(sorted([*FLAGS, ARGS_FILE]))}")
        if name in seen:
            raise UsageError(f"{name} is given twice")
        seen.add(name)
        if flag is not None and flag.take is None:
            if has_value:
                raise UsageError(f"{name} takes no value")
            found.append((flag, name, None))
            continue
        if not has_value:
            value = next(words, "")
            if not value or value in FLAGS:
                raise UsageError(f"{name} needs a value")
        if flag is None:
            args_file = value
        else:
            found.append((flag, name, value))
    for needed in ("--model", "--port"):
        if needed not in seen:
            raise UsageError(f"{needed} is missing")
    return found, args_file


def _owner_of(params: Any, path: str) -> tuple[Any, str]:
    *parents, last = path.split(".")
    for name in parents:
        params = getattr(params, name)
    return params, last


def apply(params: Any, found: list[tuple[Flag, str, Any]]) -> None:
    """Set each parameter. Those for the batch threads follow ``--threads`` as in llama-server.

    :raises UsageError: for a value that cannot be read.
    """
    for flag, name, text in found:
        try:
            value = flag.constant if flag.take is None else flag.take(text)
            owner, attribute = _owner_of(params, flag.path)
            setattr(owner, attribute, value)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise UsageError(f"{name}: cannot use {text!r} ({error})") from None


def _plain(value: Any) -> Any:
    """An effective value as JSON: enumerations by their short name, lists of one as the one."""
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name.removeprefix("GGML_TYPE_").removeprefix("LLAMA_FLASH_ATTN_TYPE_").lower()
    if isinstance(value, (set, frozenset, list, tuple)):
        items = [_plain(item) for item in value]
        return items[0] if len(items) == 1 else sorted(items, key=str)
    if isinstance(value, float):
        return round(value, 6)  # 32-bit floats inside
    return value if isinstance(value, (bool, int, str)) else str(value)


def effective(params: Any) -> dict[str, Any]:
    """What the parameters are, by flag name without dashes, read back from the library's own object."""
    shown = {}
    for name, flag in FLAGS.items():
        owner, attribute = _owner_of(params, flag.path)
        shown[flag.shown or name.removeprefix("--")] = _plain(getattr(owner, attribute))
    return dict(sorted(shown.items()))


def write_args(path: Path, params: Any, address: str) -> None:
    """Write the effective arguments as one line of JSON, whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps({"listening": address, "args": effective(params)}) + "\n", encoding="utf-8")
    part.replace(path)


def serve(argv: list[str]) -> int:
    """Serve until a signal comes. 2 for a wrong command line, 1 when the server cannot start."""
    try:
        found, args_file = parse(argv)
    except UsageError as error:
        print(f"llamacpp_server: {error}", file=sys.stderr)
        return USAGE

    stop = threading.Event()
    got: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        got.append(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)

    import xllamacpp

    params = xllamacpp.CommonParams()
    try:
        apply(params, found)
    except UsageError as error:
        print(f"llamacpp_server: {error}", file=sys.stderr)
        return USAGE
    try:
        server = xllamacpp.Server(params)
    except Exception as error:
        print(f"llamacpp_server: cannot start: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    address = str(server.listening_address)
    if args_file:
        write_args(Path(args_file), params, address)
    print(f"llamacpp_server: listening on {address}", flush=True)
    while not stop.wait(0.5) and not got:
        pass
    # End by the signal itself, so that whoever waits for us sees an outside kill as what it is. The
    # library's own tear-down would wait for running requests.
    signal.signal(got[0], signal.SIG_DFL)
    os.kill(os.getpid(), got[0])
    return 128 + got[0]


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:]))
