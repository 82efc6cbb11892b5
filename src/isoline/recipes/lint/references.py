"""Rules: what a recipe names is there: scenarios, datasets, channel, files, ports, placeholders."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from isoline.catalog.documents import DocumentError, UnknownNameError, nearest
from isoline.catalog.trees import Loc
from isoline.recipes.deployment import PLACEHOLDERS, placeholders_in
from isoline.recipes.lint.base import Context, Finding, Rule, Said, split_place
from isoline.recipes.lint.parts import texts

OF_A_WORKER = ("rendezvous", "data_parallel")
"""Ports that a worker which spans nodes has without a sidecar."""

_MEND_FILE = "mend that file; this recipe needs it"


def _read(context: Context, rule: str, loc: Loc, read: Callable[[], Any]) -> Iterable[Finding]:
    """Findings when something that is named at ``loc`` is not there or is wrong."""
    try:
        read()
    except UnknownNameError as error:
        what, _, mend = error.words.partition("; ")
        path = ".".join(str(part) for part in loc)
        yield context.finding(rule, "error", loc, f"{path}: {what}", mend or "name one that is there")
    except DocumentError as error:
        for where, what in error.problems:
            said, _, mend = what.partition("; ")
            yield Finding(rule, "error", *split_place(where), said, mend or _MEND_FILE)


def scenario(context: Context) -> Iterable[Finding]:
    """Scenarios and their datasets."""
    for name in context.recipe.scenarios:

        def read(name: str = name) -> None:
            context.scenarios[name] = context.project.scenario(name)

        yield from _read(context, "scenario", ("scenarios", name), read)


def dataset(context: Context) -> Iterable[Finding]:
    """The canary and the accuracy tasks are datasets of questions."""
    named: list[tuple[str, Loc]] = [(name, ("accuracy", name)) for name in context.recipe.accuracy]
    if context.recipe.canary is not None:
        named.insert(0, (context.recipe.canary, ("canary",)))
    for name, loc in named:
        read: list[int | None] = []

        def ask(name: str = name, read: list[int | None] = read) -> None:
            read.append(context.project.questions(name))

        yield from _read(context, "dataset", loc, ask)
        if read == [None]:
            path = ".".join(str(part) for part in loc)
            what = f"{path}: dataset {name!r} holds no questions"
            yield context.finding("dataset", "error", loc, what, "name a dataset of kind questions")


def channel(context: Context) -> Iterable[Finding]:
    """The channel is one of recipes/channels.yaml."""
    name = context.recipe.image.channel
    if name is not None:
        yield from _read(context, "channel", ("image", "channel"), lambda: context.project.channel(name))


def files(context: Context) -> Iterable[Finding]:
    """The files of a recipe lie in its folder, and are plain files there."""
    said = Said(context, "files", "error")
    folder = context.folder.resolve()
    present = [item.name for item in folder.iterdir() if item.is_file() and item.suffix != ".yaml"]
    for index, name in enumerate(context.recipe.files):
        loc = ("files", index)
        path = folder / name
        if name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
            said.add(
                loc,
                f"file {name!r} is not in the recipe's folder",
                "write a plain file name and put it there",
            )
        elif name in context.recipe.files[:index]:
            said.add(loc, f"file {name!r} is named twice", "leave one out")
        elif path.is_symlink() and not path.resolve().is_relative_to(folder):
            said.add(loc, f"file {name!r} is a link that leaves the folder", "put the file itself there")
        elif not path.is_file():
            hint = nearest(name, present) if present else "the folder has no other files"
            said.add(loc, f"file {name!r} is not in {folder.name}/", f"add it, or leave it out; {hint}")
    return said


def ports(context: Context) -> Iterable[Finding]:
    """Each {port.NAME} is leased by a sidecar, each leased port is used."""
    said = Said(context, "ports", "error")
    leased = {name: index for index, item in enumerate(context.recipe.sidecars) for name in item.ports}
    used: set[str] = set()
    for text in texts(context):
        for name in placeholders_in([text.value]):
            if name.startswith("port."):
                port = name.removeprefix("port.")
                used.add(port)
                if port not in leased and port not in OF_A_WORKER:
                    known = nearest(port, leased) if leased else "no sidecar has ports"
                    said.add(
                        text.loc,
                        f"{{{name}}} is a port that no sidecar leases",
                        f"add it to the sidecar's ports; {known}",
                        key=name,
                    )
    for name, index in leased.items():
        if name not in used:
            said.add(
                ("sidecars", index, "ports"),
                f"port {name!r} is leased and nothing uses it",
                f"write {{port.{name}}} where it belongs, or leave it out",
                severity="warning",
                key=name,
            )
    return said


def placeholders(context: Context) -> Iterable[Finding]:
    """Each {placeholder} is one that a launcher fills in; {file.NAME} is a file that the recipe has."""
    said = Said(context, "placeholders", "error")
    written = {name for _, layer, _ in context.layers() for name in layer.config_files} | set(
        context.recipe.files
    )
    used: set[str] = set()
    for text in texts(context):
        for name in sorted(placeholders_in([text.value])):
            kind, dot, rest = name.partition(".")
            if kind == "file" and dot:
                used.add(rest)
                if rest not in written:
                    known = nearest(rest, written) if written else "the recipe has no files"
                    said.add(
                        text.loc,
                        f"{{{name}}} is a file that this recipe does not have",
                        f"add it to files or config_files; {known}",
                        key=name,
                    )
            elif dot and kind in ("url", "host"):
                _peer(context, said, text.loc, name)
            elif kind != "port" and name not in PLACEHOLDERS:
                said.add(
                    text.loc,
                    f"{{{name}}} is no placeholder",
                    f"{nearest(name, PLACEHOLDERS)} Braces that are meant as text are not possible here",
                    key=name,
                )
    for index, name in enumerate(context.recipe.files):
        if name not in used:
            said.add(
                ("files", index),
                f"file {name!r} is listed and nothing uses it",
                f"write {{file.{name}}} in an argument, or leave it out",
                severity="warning",
            )
    return said


def _peer(context: Context, said: Said, loc: Loc, name: str) -> None:
    """{url.ROLE}, {url.ROLE.N} and {host.NAME} name programs that some topology has."""
    kind, rest, *number = name.split(".")
    roles = {key: role for topology in context.recipe.topologies for key, role in topology.roles.items()}
    known = {str(key) for key in roles}
    known |= {item.name for item in context.recipe.sidecars} if kind == "host" else set()
    if rest not in known:
        what = f"{{{name}}} is the address of {rest!r}, which is not there"
        said.add(loc, what, nearest(rest, known), key=name)
    elif number:
        most = max(t.roles[k].workers for t in context.recipe.topologies for k in t.roles if k == rest)
        if int(number[0]) >= most:
            mend = f"workers of {rest} are counted from 0 to {most - 1}"
            said.add(loc, f"{{{name}}} is the address of a worker that is not there", mend, key=name)


RULES = (
    Rule("scenario", "error", "each scenario is there, with its dataset, and both are right", scenario),
    Rule("dataset", "error", "the canary and each accuracy task are datasets of questions", dataset),
    Rule("channel", "error", "the channel is in recipes/channels.yaml", channel),
    Rule("files", "error", "each file lies in the recipe's own folder", files),
    Rule("ports", "error", "each {port.NAME} is leased by a sidecar, and each leased port is used", ports),
    Rule(
        "placeholders",
        "error",
        "each {placeholder} can be filled in, each {file.NAME} is there",
        placeholders,
    ),
)
