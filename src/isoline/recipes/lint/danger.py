"""Rule: nothing in a recipe can reach beyond the server that it describes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from isoline.recipes.lint.base import Context, Finding, Rule, Said
from isoline.recipes.lint.parts import texts
from isoline.recipes.sidecars import flat_words

IMAGE_PATHS = (
    "/models",
    "/scratch",
    "/opt",
    "/usr",
    "/app",
    "/workspace",
    "/sgl-workspace",
    "/vllm-workspace",
)
"""Where absolute paths may lie: what a launcher mounts, and folders of public engine images."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHELL = re.compile(r"[;|&<>`]|\$")
_ABSOLUTE = re.compile(r"(?:^|[=:,\s\"'])(/[^\s,:\"']*)")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://([^/\s:]*|\{[a-z_.]+\})", re.IGNORECASE)
_NEAR = re.compile(r"^(\*|127\.\d+\.\d+\.\d+|localhost|0\.0\.0\.0|\[::1\]|\{[a-z_.0-9]+\}|)\Z")
_SHELLS = frozenset(
    ("sh", "bash", "dash", "zsh", "ash", "csh", "sudo", "su", "env", "docker", "podman", "nsenter", "chroot")
)
_PRIVILEGE = frozenset(
    (
        "privileged",
        "cap-add",
        "cap_add",
        "security-opt",
        "device",
        "volume",
        "mount",
        "pid",
        "ipc",
        "userns",
        "group-add",
    )
)
_SECRET = re.compile(r"(TOKEN|SECRETS?|PASSWORDS?|PASSWD|API_?KEYS?|CREDENTIALS?|ACCESS_KEYS?)$")
_LOADS_CODE = re.compile(
    r"^(PYTHON(STARTUP|HOME|INSPECT|BREAKPOINT|USERBASE|WARNINGS)|BASH_ENV|ENV|IFS|GCONV_PATH|PERL5.*|NODE_OPTIONS)$"
)


def danger(context: Context) -> Iterable[Finding]:
    """Shell syntax, host paths, other machines, privileges, secrets."""
    said = Said(context, "danger", "error")
    for text in texts(context):
        value = text.value
        if _CONTROL.search(value):
            said.add(
                text.loc,
                f"{text.name}: a control character in {value[:40]!r}",
                "write plain text on one line",
            )
        elif (found := _SHELL.search(value)) is not None:
            said.add(
                text.loc,
                f"{text.name}: {found.group()!r} is shell syntax, and no shell reads this",
                "write the plain value; sidecars are lists of words",
            )
        for match in _ABSOLUTE.finditer(_ADDRESS.sub("", value)):
            path = match.group(1)
            # A path alone is what a sidecar's `ready` is.
            if text.loc[-1] == "ready":
                continue
            if not any(path == root or path.startswith(root + "/") for root in IMAGE_PATHS):
                said.add(
                    text.loc,
                    f"{text.name}: {path!r} is a path of one machine",
                    "put the file into the recipe's folder and write {file.NAME}, or use {scratch}",
                )
        if ".." in re.split(r"[/\\]", value):
            said.add(text.loc, f"{text.name}: {value!r} leaves its folder", "write a path without ..")
        for match in _ADDRESS.finditer(value):
            if not _NEAR.match(match.group(1)):
                said.add(
                    text.loc,
                    f"{text.name}: {match.group(1)!r} is another machine",
                    "a launch talks to its own parts only: use {url}, {host} or {port.NAME}",
                )
    _names(context, said)
    _programs(context, said)
    return said


def _names(context: Context, said: Said) -> None:
    for loc, layer, _ in context.layers():
        for name in layer.args:
            if name in _PRIVILEGE:
                said.add(
                    (*loc, "args", name),
                    f"argument {name!r} is about the container, not the server",
                    "leave it out",
                )
        for name in layer.env:
            if _SECRET.search(name):
                said.add(
                    (*loc, "env", name), f"{name} looks like a secret", "recipes are public: leave it out"
                )
            elif _LOADS_CODE.match(name):
                said.add((*loc, "env", name), f"{name} decides which code runs", "leave it out")
    for index, item in enumerate(context.recipe.sidecars):
        for name in item.env:
            if _SECRET.search(name) or _LOADS_CODE.match(name):
                said.add(("sidecars", index, "env", name), f"{name} is not a recipe's to set", "leave it out")


def _programs(context: Context, said: Said) -> None:
    for index, item in enumerate(context.recipe.sidecars):
        loc = ("sidecars", index, "command")
        program = item.command[0].rpartition("/")[2]
        if program in _SHELLS:
            said.add(
                (*loc, 0), f"sidecar {item.name}: {program!r} runs other programs", "name the program itself"
            )
        for place, word in flat_words(item.command):
            flag = str(word).lstrip("-").partition("=")[0]
            if str(word).startswith("--") and flag in ("privileged", "cap-add", "security-opt"):
                said.add((*loc, *place), f"sidecar {item.name}: {word!r} asks for privileges", "leave it out")


RULES = (
    Rule(
        "danger",
        "error",
        "no shell, no path of one machine, no other machine, no privilege, no secret",
        danger,
    ),
)
