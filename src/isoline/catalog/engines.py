"""Engines: how each is started, told its topology, asked what it does, and reset."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from isoline.catalog.documents import Document
from isoline.catalog.sourced import Sourced
from isoline.catalog.topology import MultiNode, TopologySpelling

Scalar = bool | int | float | str
Value = Scalar | dict[str, Any] | list[Any]


class EngineProcess(Document):
    """How an engine is started as a plain process.

    ``command`` holds placeholders that the launcher fills: ``{python}`` (of the engine's own
    environment), ``{script}``, ``{model_path}``, ``{model_alias}``, ``{host}``, ``{port}``,
    ``{scratch}``.
    """

    script: str
    command: list[str]


class EngineContainer(Sourced):
    """How an engine is started from its public image: one command a role, the first word is the
    entry point. Placeholders: ``{model_path}``, ``{model_alias}``, ``{host}``, ``{port}``,
    ``{file.config.yaml}`` (of engines that take their settings in a file of this name).

    ``server`` is the whole of a deployment without roles; with roles there is one command for each
    worker and one for the front end.
    """

    commands: dict[Literal["server", "worker", "frontend"], list[str]]
    shm: Literal["host", "private"] | None = None  # whether the ranks need the host's shared memory

    @model_validator(mode="after")
    def _has_a_worker(self) -> EngineContainer:
        if "server" not in self.commands and "worker" not in self.commands:
            raise ValueError("one of the commands is server or worker")
        return self

    @property
    def command(self) -> list[str]:
        """The command of one worker, whatever its role."""
        return self.commands["server"] if "server" in self.commands else self.commands["worker"]


class FlagStyle(Sourced):
    """How arguments are spelled.

    ``aliases`` maps every other spelling to the canonical one. ``separator`` joins the words of the
    canonical form, null where both are used and mean two names. ``negation`` in front of a switch
    turns it off. ``nested``: JSON arguments also come as ``--name.key value``.
    """

    aliases: dict[str, str] = {}
    separator: Literal["-", "_"] | None = "-"
    negation: str | None = None
    nested: bool = False
    assign: Literal["blank", "equals", "both"] = "both"


class ConfigFile(Sourced):
    """The YAML file that takes what has no argument of its own. ``flags`` are the arguments that name it."""

    flags: list[str] = Field(min_length=1)
    wins: bool  # whether a value in the file beats the argument of the same meaning


class KvDtype(Sourced):
    """Where the KV cache's precision is said: an argument or a dotted key of the config file.

    ``values`` maps what the engine takes to exact precisions; null is the engine's own choice: of
    ``models`` where it has one for the model, else the checkpoint's.
    """

    name: str
    where: Literal["args", "file"] = "args"
    default: str
    values: dict[str, str | None]
    models: dict[str, str] = {}


class Settings(Document):
    """Things to add to a launch: arguments, keys of the config file (dotted), environment."""

    args: dict[str, Value] = {}
    file: dict[str, Value] = {}
    env: dict[str, str] = {}

    def filled(self, values: dict[str, Scalar]) -> Settings:
        """The same with ``{name}`` placeholders replaced; a value that is one placeholder keeps its type."""
        return Settings(
            args=_filled(self.args, values),
            file=_filled(self.file, values),
            env={name: str(_filled(value, values)) for name, value in self.env.items()},
        )


def _filled(item: Any, values: dict[str, Scalar]) -> Any:
    if isinstance(item, dict):
        return {key: _filled(value, values) for key, value in item.items()}
    if isinstance(item, list):
        return [_filled(value, values) for value in item]
    if isinstance(item, str) and "{" in item:
        if item[:1] == "{" and item[-1:] == "}" and item[1:-1] in values:
            return values[item[1:-1]]
        for name, value in values.items():
            item = item.replace("{" + name + "}", str(value))
    return item


class Slots(Sourced):
    """What limits the requests that a worker serves at once; further ones wait.

    Whether it counts per attention rank or for the worker is ``topology.budgets``. ``default`` is null
    where the engine computes it, or nobody says.
    """

    name: str
    where: Literal["args", "file"] = "args"  # file: the argument of the same name counts where it is unset
    default: int | None = None


class PrefixCache(Sourced):
    """How reuse of prefixes is switched, and what happens when nothing is said."""

    default: Literal["on", "off"] | None
    off: list[Settings] = []  # any of these; the first is the usual one
    on: list[Settings] = []


class CacheReset(Sourced):
    """The call that empties the prefix cache. ``answer`` says how to tell that it did."""

    method: Literal["POST", "GET"]
    path: str
    needs: Settings = Settings()
    answer: str


class Asked(Sourced):
    """A page of the server. ``needs`` must be in the launch for it to be there."""

    path: str
    needs: Settings = Settings()
    names: dict[str, str] = {}  # canonical argument -> its name on that page


class Metrics(Sourced):
    """The Prometheus page and the names on it; null where there is none.

    Gauges: running, waiting (requests), kv_usage (0 to 1). Counters: tokens, drafts. A counter's name
    is given with its ``_total``.
    """

    path: str = "/metrics"
    prefix: str
    needs: Settings = Settings()
    running: str | None = None
    waiting: str | None = None
    prompt_tokens: str | None = None
    generation_tokens: str | None = None
    cached_tokens: str | None = None
    kv_usage: str | None = None
    drafts: str | None = None
    drafted_tokens: str | None = None
    accepted_tokens: str | None = None


class Speculation(Sourced):
    """How drafting is asked for, by method, and how the acceptance length is pinned.

    Placeholders: ``{draft_length}``, ``{verified}`` (draft length + 1), ``{draft_model}``,
    ``{length}`` (the golden acceptance length), ``{length_less_one}``, ``{rate}`` (the accepted share of
    drafts). ``pin_rate`` is for versions that take the share only; null where there are none.
    """

    methods: dict[Literal["mtp", "eagle3", "dspark", "draft_model"], Settings]
    pin: Settings | None = None
    pin_rate: Settings | None = None
    realised: str | None = None  # where the reached length can be read


class Disaggregation(Sourced):
    """How prefill and decode are told apart, and which movers of KV blocks it takes.

    ``transfers`` maps our names (nixl, mooncake, mori, ucx) to the settings of both roles.
    """

    prefill: Settings = Settings()
    decode: Settings = Settings()
    transfers: dict[Literal["nixl", "mooncake", "mori", "ucx", "default"], Settings]


class Offload(Sourced):
    """KV offload backends: what to set; ``{bytes_per_rank}`` and ``{gb_per_rank}`` are the budget."""

    backends: dict[str, Settings]


class Engine(Sourced):
    """An engine: how it is started, asked and reset.

    ``owned_args`` are those that Isoline sets itself; a recipe must not. ``kv_precision_args`` are
    those that say the KV cache's precision, each with what the engine takes where it is not given.
    ``backend`` names the engine whose arguments a worker of this one takes; what is null here is
    then taken from there (:meth:`isoline.catalog.facts.Catalog.engine`).
    """

    name: str
    backend: str | None = None
    process: EngineProcess | None = None
    container: EngineContainer | None = None
    owned_args: list[str] = []
    kv_precision_args: dict[str, str] = {}
    no_cache_body: dict[str, bool] = {}
    health: str | None = None
    flag_style: FlagStyle | None = None
    config_file: ConfigFile | None = None
    topology: TopologySpelling | None = None
    multi_node: MultiNode | None = None
    kv_dtype: KvDtype | None = None
    slots: Slots | None = None
    prefix_cache: PrefixCache | None = None
    cache_reset: CacheReset | None = None
    effective_args: Asked | None = None
    version_page: Asked | None = None
    metrics: Metrics | None = None
    speculation: Speculation | None = None
    disaggregation: Disaggregation | None = None
    offload: Offload | None = None

    def canonical(self, flag: str) -> str:
        """The one name of an argument, whatever its spelling: ``--tp-size``, ``tp_size``, ``-tp``.

        A negated switch keeps its negation, a nested name (``a.b``) its tail.
        """
        name = flag.lstrip("-")
        style = self.flag_style
        if style is None:
            return name
        head, dot, tail = name.partition(".")
        if style.separator is not None:
            head = head.replace("_" if style.separator == "-" else "-", style.separator)
        if style.negation and head.startswith(style.negation):
            plain = head.removeprefix(style.negation)
            return style.negation + style.aliases.get(plain, plain)
        return style.aliases.get(head, head) + dot + tail

    def speculative(self, method: str, draft_length: int, draft_model: str | None = None) -> Settings | None:
        """What to set for a drafting method; None where this engine has no such method."""
        if self.speculation is None:
            return None
        found = {str(name): item for name, item in self.speculation.methods.items()}.get(method)
        if found is None:
            return None
        values: dict[str, Scalar] = {"draft_length": draft_length, "verified": draft_length + 1}
        if draft_model is not None:
            values["draft_model"] = draft_model
        return found.filled(values)

    def pinned(
        self, length: float, draft_length: int | None = None, form: Literal["length", "rate"] = "length"
    ) -> Settings | None:
        """What to set so that drafts are accepted at this mean length (the target's token counts).

        The answers are then meaningless: never for an accuracy check. None where it cannot be pinned in
        this form. ``rate`` needs the draft length.
        """
        told = self.speculation and (self.speculation.pin if form == "length" else self.speculation.pin_rate)
        if not told:
            return None
        less = round(length - 1, 6)
        values: dict[str, Scalar] = {"length": length, "length_less_one": less}
        if draft_length:
            values["rate"] = round(less / draft_length, 6)
        return told.filled(values)


class Flag(Document):
    """One argument: what it takes, and the first and last release in which it was seen in use.

    ``seen`` is empty where it was seen in builds without a release number only.
    """

    takes: Literal["nothing", "int", "float", "text", "json", "list"]
    seen: list[str] = Field(default=[], max_length=2)
    file: bool = False  # a key of the config file, not an argument


class Flags(Sourced):
    """The known arguments of one engine. ``complete`` is false where they were collected from use:
    an unknown name is then a warning, not an error."""

    schema_version: Literal[1]
    engine: str
    complete: bool = False
    versions: list[str] = Field(max_length=2)
    flags: dict[str, Flag]


class VariableClass(Document):
    """Environment variables of one kind. ``match`` are names, ``*`` stands for any characters."""

    match: list[str] = Field(min_length=1)
    kind: Literal["result", "kernel", "liveness", "quiet"]
    why: str


class Environment(Sourced):
    """What environment variables do to a measurement; the first rule that matches counts.

    result: changes answers or counts, not only speed. kernel: selects the code that computes or
    moves data. liveness: deadlines and keep-alives. quiet: logs, caches on disk, offline switches.
    """

    schema_version: Literal[1]
    rules: list[VariableClass]


class Engines(Document):
    schema_version: Literal[1]
    engines: dict[str, Engine]
