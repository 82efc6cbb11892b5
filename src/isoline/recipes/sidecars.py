"""Sidecars: programs beside the server. What a recipe says of them, and the words that it becomes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError, field_validator

from isoline.catalog.documents import Document, ValueAtError
from isoline.recipes.deployment import Command, placeholders_in
from isoline.recipes.expressions import Number
from isoline.recipes.resolve import fill_in
from isoline.recipes.server import Condition, check_env, check_value, is_expression, uses
from isoline.recipes.topology import RoleName, Topology
from isoline.recipes.words import word


class Sidecar(Document):
    """A process beside the server: a router, a KV store's master, etcd.

    ``command`` is a list of words; ``{port.NAME}`` is a leased port that ``ports`` names,
    ``{url}`` the server's address, ``{file.NAME}`` a configuration file's path. A word may be
    ``{expr: …}`` (with a suffix, if any), as in the server's arguments; ``tp``, ``dp``, ``gpus`` and
    ``dram_gb`` are of a worker of the first role. ``{if: CONDITION, words: […]}`` are words that count
    under a condition, ``{each: ROLE, words: […]}`` words that come once for each worker of a role:
    ``{url}`` is that worker's address there. ``order``: before the server (a store) or after it (a
    router, which then answers in the server's place).
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    command: list[Any] = Field(min_length=1)
    ports: list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]] = []
    env: dict[str, Any] = {}
    order: Literal["before", "after"] = "before"
    is_entry: bool = False
    ready: str | None = None  # a path that answers 200 when it is up
    # What the image lacks, each of one version: name==version, or name @ git+https://…@<commit>.
    packages: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9][^\x00-\x1f\x7f{}]*$")]] = []
    per_gpu: bool = False  # one for each device of a worker
    when: Condition | None = None

    @field_validator("command")
    @classmethod
    def _words(cls, value: list[Any]) -> list[Any]:
        if not isinstance(value[0], str):
            raise ValueAtError("the first word is the program: a text", 0)
        check_words(value)
        return value

    @field_validator("env")
    @classmethod
    def _env(cls, value: dict[str, Any]) -> dict[str, Any]:
        return check_env(value, may_remove=False)

    def counts_for(self, topology: str) -> bool:
        """Whether it may be there in a topology, by its label."""
        return self.when is None or self.when.topology is None or topology in self.when.topology

    def conditions(self) -> Iterator[tuple[tuple[str | int, ...], Condition]]:
        """(place, condition): its own and those of its words."""
        if self.when is not None:
            yield ("when",), self.when
        for index, item in enumerate(self.command):
            if isinstance(item, dict) and "if" in item:
                yield ("command", index, "if"), Condition.model_validate(item["if"])

    def depends_on_concurrency(self) -> bool:
        """Whether it, or a word or variable of it, depends on the concurrency."""
        if any(condition.concurrency is not None for _, condition in self.conditions()):
            return True
        words = [text for _, text in flat_words(self.command)]
        return "concurrency" in uses(words) | uses(self.env)


def check_words(value: Sequence[Any], *loc: str | int, inner: bool = False) -> None:
    """Refuse what is no word of a sidecar's command.

    :raises ValueAtError: naming the place.
    """
    for index, item in enumerate(value):
        here = (*loc, index)
        if isinstance(item, str):
            continue
        if is_expression(item):
            check_value(item, *here)
            continue
        kind = "if" if isinstance(item, dict) and set(item) == {"if", "words"} else "each"
        if inner or not isinstance(item, dict) or set(item) != {kind, "words"}:
            raise ValueAtError(
                "a word is a text (a number in quotes), {expr: …}, {if: …, words: […]} "
                "or {each: ROLE, words: […]}",
                *here,
            )
        if kind == "if":
            try:
                Condition.model_validate(item["if"])
            except ValidationError as error:
                raise ValueAtError(
                    str(error.errors()[0]["msg"]).removeprefix("Value error, "), *here, "if"
                ) from None
        elif item["each"] not in get_args(RoleName):
            raise ValueAtError(f"{item['each']!r} is no role: aggregated, prefill or decode", *here, "each")
        if not isinstance(item["words"], list) or not item["words"]:
            raise ValueAtError("words is a list of words", *here, "words")
        check_words(item["words"], *here, "words", inner=True)


def flat_words(command: Sequence[Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """(place, word or expression) of all words, those under conditions too."""
    for index, item in enumerate(command):
        if isinstance(item, dict) and "words" in item:
            yield from (((index, "words", inner), text) for inner, text in enumerate(item["words"]))
        else:
            yield (index,), item


def sidecar_command(
    item: Sidecar,
    topology: Topology,
    scenario: str,
    concurrency: int,
    values: Mapping[str, Number | None],
    files: Mapping[str, dict[str, Any]],
) -> Command | None:
    """What a sidecar is in a launch; None where it is not there.

    :param concurrency: that the server is sized for.
    :param values: of expressions, for a worker of the first role.
    :param files: the configuration files of the server, which its words may name.
    :raises ExpressionError: when an expression has no value here.
    """
    label = topology.label()

    def holds(condition: Condition) -> bool:
        return condition.holds(concurrency=concurrency, scenario=scenario, topology=label)

    def said(text: Any) -> str:
        return word(fill_in(text, values))

    if item.when is not None and not holds(item.when):
        return None
    argv: list[str] = []
    for piece in item.command:
        if not isinstance(piece, dict) or is_expression(piece):
            argv.append(said(piece))
        elif "if" in piece:
            argv += [said(text) for text in piece["words"] if holds(Condition.model_validate(piece["if"]))]
        elif (role := topology.roles.get(piece["each"])) is not None:
            for number in range(role.workers):
                own = f"{{url.{piece['each']}.{number}}}"
                argv += [said(text).replace("{url}", own) for text in piece["words"]]
    env = {name: said(value) for name, value in sorted(item.env.items())}
    named = {name.removeprefix("file.") for name in placeholders_in([*argv, *env.values()])}
    first = next(iter(topology.roles.values()))
    return Command(
        name=item.name,
        argv=argv,
        env=env,
        config_files={name: content for name, content in files.items() if name in named},
        workers=first.gpus_per_worker if item.per_gpu else 1,
        ports=tuple(item.ports),
        packages=tuple(item.packages),
        ready=item.ready,
        is_entry=item.is_entry,
    )
