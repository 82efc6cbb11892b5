"""The server part of a recipe: arguments, environment, files, conditions."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from isoline.catalog.documents import Document, ValueAtError
from isoline.recipes.expressions import ExpressionError, names_in

_ARG = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]*\Z")
_ENV = re.compile(r"^[A-Z][A-Z0-9_]*\Z")
_FILE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")

ArgValue = Any
"""``true`` (a flag without a value), a number, a text, a list (one flag, several words), a mapping
(JSON in one word), or ``{expr: …}``; inside a mapping or list ``{expr: …}`` counts too."""


def is_expression(value: object) -> bool:
    """Whether a value is ``{expr: …}``, or ``{expr: …, suffix: GB}``, which is a text."""
    return isinstance(value, dict) and "expr" in value and set(value) <= {"expr", "suffix"}


NULL = {"literal": None}
"""How ``null`` is said where it is a value of a configuration file: alone it removes what was there."""


def is_whole(value: object) -> bool:
    """Whether a mapping is one value, which is replaced and never merged."""
    return is_expression(value) or value == NULL


def check_value(value: object, *loc: str | int) -> None:
    """Refuse what is no value of an argument, at any depth.

    :raises ValueAtError: naming the place.
    """
    if is_expression(value):
        assert isinstance(value, dict)
        text = value["expr"]
        if not isinstance(text, str):
            raise ValueAtError('an expression is a text: {expr: "2 * concurrency"}', *loc)
        if not isinstance(value.get("suffix", ""), str):
            raise ValueAtError("a suffix is a text, such as GB", *loc, "suffix")
        try:
            names_in(text)
        except ExpressionError as error:
            raise ValueAtError(str(error), *loc) from None
    elif isinstance(value, dict) and value != NULL:
        if "expr" in value:
            raise ValueAtError("expr stands alone in its mapping", *loc)
        for name, item in value.items():
            check_value(item, *loc, name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_value(item, *loc, index)


def uses(value: object) -> set[str]:
    """The names that the expressions inside a value use."""
    if is_expression(value):
        assert isinstance(value, dict)
        return names_in(value["expr"])
    if isinstance(value, dict):
        return set().union(*(uses(item) for item in value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*(uses(item) for item in value)) if value else set()
    return set()


def check_args(value: dict[str, ArgValue], *, may_remove: bool) -> dict[str, ArgValue]:
    """Names and values of arguments. ``null`` removes one where that makes sense (conditions, roles)."""
    for name, item in value.items():
        if not _ARG.match(name):
            raise ValueAtError(f"argument {name!r}: letters, digits, - and _, without dashes in front", name)
        if item is None and not may_remove:
            raise ValueAtError(
                f"argument {name!r} has no value: true for a flag alone, or leave it out", name
            )
        if item is False:
            raise ValueAtError(
                f"argument {name!r} is false: leave it out, or name the flag that turns it off", name
            )
        if item == []:
            raise ValueAtError(f"argument {name!r} is an empty list: leave it out", name)
        check_value(item, name)
    return value


def check_env(value: dict[str, Any], *, may_remove: bool) -> dict[str, Any]:
    """Names and values of environment variables: texts, or an expression."""
    for name, item in value.items():
        if not _ENV.match(name):
            raise ValueAtError(f"environment variable {name!r}: upper-case letters, digits and _", name)
        if name.startswith(("ISOLINE_", "LD_")) or name in ("PATH", "PYTHONPATH", "HOME"):
            raise ValueAtError(f"environment variable {name!r} is not a recipe's to set", name)
        if item is None and may_remove:
            continue
        if not isinstance(item, str) and not is_expression(item):
            raise ValueAtError(f"environment variable {name!r} is a text: write it in quotes", name)
        check_value(item, name)
    return value


class Parts(Document):
    """Arguments (names without dashes in front), environment and configuration files of a server.

    ``config_files`` are written beside the server; ``{file.NAME}`` in an argument is their path.
    ``may_remove``: whether ``null`` stands for "without it", where something lies underneath.
    """

    may_remove: ClassVar[bool] = True

    args: dict[str, ArgValue] = {}
    env: dict[str, Any] = {}
    config_files: dict[str, dict[str, Any]] = {}

    @field_validator("args")
    @classmethod
    def _args(cls, value: dict[str, ArgValue]) -> dict[str, ArgValue]:
        return check_args(value, may_remove=cls.may_remove)

    @field_validator("env")
    @classmethod
    def _env(cls, value: dict[str, Any]) -> dict[str, Any]:
        return check_env(value, may_remove=cls.may_remove)

    @field_validator("config_files")
    @classmethod
    def _files_are_plain(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, content in value.items():
            if not _FILE.match(name) or not name.endswith((".yaml", ".yml", ".json")):
                raise ValueAtError(f"file {name!r}: a plain name that ends in .yaml or .json", name)
            check_value(content, name)
        return value


class Span(Document):
    """A range of concurrencies, both ends included; an end that is left out is open."""

    from_: int | None = Field(default=None, ge=1, alias="from")
    to: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _has_an_end(self) -> Span:
        if self.from_ is None and self.to is None:
            raise ValueError("a range has from, to, or both")
        if self.from_ is not None and self.to is not None and self.from_ > self.to:
            raise ValueError(f"from {self.from_} is above to {self.to}")
        return self

    def holds(self, value: int) -> bool:
        """Whether the value lies in the range."""
        return (self.from_ is None or value >= self.from_) and (self.to is None or value <= self.to)


class Condition(Document):
    """When something counts: every part that is given must hold."""

    concurrency: Span | None = None
    scenario: list[str] | None = Field(default=None, min_length=1)
    topology: list[str] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _says_something(self) -> Condition:
        if self.concurrency is None and self.scenario is None and self.topology is None:
            raise ValueError("a condition names concurrency, scenario or topology")
        return self

    def holds(self, *, concurrency: int, scenario: str, topology: str) -> bool:
        """Whether it holds for a launch."""
        return (
            (self.concurrency is None or self.concurrency.holds(concurrency))
            and (self.scenario is None or scenario in self.scenario)
            and (self.topology is None or topology in self.topology)
        )


class When(Parts):
    """Arguments, environment and files that count under a condition; ``null`` removes one."""

    if_: Condition = Field(alias="if")

    @model_validator(mode="after")
    def _changes_something(self) -> When:
        if not (self.args or self.env or self.config_files):
            raise ValueError("a condition without args, env or config_files changes nothing")
        return self


class Server(Parts):
    """What every role gets, and under which conditions what else."""

    may_remove: ClassVar[bool] = False

    when: list[When] = []


class RoleServer(Parts):
    """What one role gets on top of (or, by ``null``, without) what every role gets."""

    when: list[When] = []
