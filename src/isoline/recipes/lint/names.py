"""Rules about names: the path says what is inside, the image is a public one, the chat template is known."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from pydantic import Field

from isoline.catalog.documents import Document, load_document, nearest
from isoline.catalog.facts import DATA
from isoline.catalog.sourced import Sourced
from isoline.recipes.derived import is_pinned
from isoline.recipes.lint.arguments import image_text
from isoline.recipes.lint.base import Context, Finding, Rule, Said
from isoline.recipes.lint.parts import parts
from isoline.recipes.load import name_problem


class Repository(Sourced):
    """Image repositories that recipes may use; ``*`` stands for any characters but a slash."""

    pattern: str = Field(min_length=3)
    publisher: str


class Images(Document):
    """The allow list ``catalog/data/images.yaml``."""

    schema_version: Literal[1]
    repositories: list[Repository]


@lru_cache(maxsize=1)
def allowed_repositories() -> tuple[str, ...]:
    """The patterns of the allow list."""
    listed = load_document(DATA / "images.yaml", Images, root=DATA.parent)
    return tuple(item.pattern for item in listed.repositories)


def repository_of(reference: str) -> str:
    """``docker.io/vllm/vllm-openai:v1@sha256:…`` is ``vllm/vllm-openai``: no Docker registry, tag, digest."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = f"{head}{slash}{last.partition(':')[0]}"
    return name.removeprefix("docker.io/").removeprefix("index.docker.io/")


def is_allowed(reference: str) -> bool:
    """Whether an image is of an allowed repository."""
    name = repository_of(reference)
    return any(
        name.count("/") == pattern.count("/") and fnmatch.fnmatchcase(name, pattern)
        for pattern in allowed_repositories()
    )


def path(context: Context) -> Iterable[Finding]:
    """The file's name says engine, SKU and precision; its folder says the model."""
    said = Said(context, "path", "error")
    if (problem := name_problem(context.loaded)) is not None:
        said.add(
            ("engine",), problem, "rename the file, or mend engine, sku or precision.weights", key="name"
        )
    folder = context.loaded.recipe_id.split("/")[0]
    if folder != context.recipe.model and not context.recipe.model.startswith(folder):
        said.add(
            ("model",),
            f"the folder is {folder!r}, the model is {context.recipe.model!r}",
            f"move the file to recipes/{context.recipe.model}/",
        )
    return said


def image(context: Context) -> Iterable[Finding]:
    """The image comes from a repository of the allow list."""
    said = Said(context, "image", "error")
    used = context.recipe.image
    if used.packages is not None:
        return said
    reference = image_text(context)
    if reference and not is_allowed(reference):
        said.add(
            ("image", "ref" if used.ref else "channel"),
            f"repository {repository_of(reference)!r} is not on the list of allowed images",
            "another one is added by a reviewed change of catalog/data/images.yaml; "
            f"{nearest(repository_of(reference), allowed_repositories())}",
        )
    if used.ref is not None and used.digest is None and used.ref.endswith((":latest", ":main", ":nightly")):
        said.add(
            ("image", "ref"),
            f"the tag of {used.ref} moves, so two runs may be of two images",
            "add @sha256:…, or use a channel",
            severity="warning",
            key="moves",
        )
    return said


_COMMIT = re.compile(r"@\s?[0-9a-f]{7,40}\b")
"""Of a recipe's ``upstream``: it was recorded from files of a commit, as these are."""


def packages(context: Context) -> Iterable[Finding]:
    """Each package that is brought into the image is of one version, the same wherever it is named."""
    said = Said(context, "packages", "error")
    is_recorded = _COMMIT.search(context.recipe.upstream) is not None
    versions: dict[str, str] = {}
    for index, sidecar in enumerate(context.recipe.sidecars):
        for number, package in enumerate(sidecar.packages):
            place = ("sidecars", index, "packages", number)
            if not is_pinned(package):
                said.add(
                    place,
                    f"{package!r} is no one version, so two images of one name may differ",
                    "write name==version, or name @ git+https://…@<40 hex digits of the commit>",
                    severity="warning" if is_recorded else "error",  # as its source leaves it
                )
            name = re.split(r"[^A-Za-z0-9._-]", package)[0].lower().replace("_", "-")
            if versions.setdefault(name, package) != package:
                said.add(
                    place,
                    f"{package!r}, and {versions[name]!r} beside it: a launch has one image for all programs",
                    "name one of the two everywhere",
                    key=name,
                )
    return said


TEMPLATE_ARGS = ("chat-template", "default-chat-template-kwargs", "chat-template-kwargs", "chat_template")
"""Arguments that set a chat template or its options, in any engine."""


def chat_template(context: Context) -> Iterable[Finding]:
    """Where drafts are accepted or not, prompts look as in real use: a chat template is set."""
    said = Said(context, "chat-template", "error")
    if context.recipe.speculative.method == "none":
        return said
    for name, facts in context.scenarios.items():
        if facts.uses_chat_template is False:
            said.add(
                ("scenarios", name),
                f"{name} sends prompts without a chat template, and acceptance of drafts depends on it",
                "use a scenario whose dataset counts the chat template in",
            )
    if context.model.thinking is not None:
        return said  # the catalog knows the model's own template
    for case, part in parts(context):
        found = any(name in part.args for name in TEMPLATE_ARGS)
        found = found or any(
            name in content for content in part.config_files.values() for name in TEMPLATE_ARGS
        )
        if not found and case.role_name != "decode":
            said.add(
                ("speculative",),
                f"no chat template is set, and the catalog does not say what {context.recipe.model} has",
                "set the engine's chat-template argument, or add `thinking` to the model in the catalog",
                severity="warning",
            )
    return said


RULES = (
    Rule("path", "error", "the path says model, engine, SKU and precision as the content does", path),
    Rule("image", "error", "the image is of an allowed repository, and does not move", image),
    Rule("packages", "error", "packages that are brought into the image are of one version", packages),
    Rule(
        "chat-template", "error", "a chat template is set or known where drafts are accepted", chat_template
    ),
)
