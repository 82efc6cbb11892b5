"""The catalog: facts about models, engines and SKUs, each with its source and date.

What ships is in ``data/``; a project may add ``recipes/_catalog/<section>.yaml`` of the same form,
which wins: entries are merged by key, mappings deeply, lists and values as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import ValidationError

from isoline.catalog.documents import Document, DocumentError, nearest, problems_of
from isoline.catalog.fastyaml import UNSURE, fast_parse
from isoline.catalog.treecache import hash_files
from isoline.catalog.trees import parse_yaml, read_text, to_plain

if TYPE_CHECKING:  # each section's types are loaded when it is read: a plan reads few of them
    from isoline.catalog.aliases import Aliases, Kind
    from isoline.catalog.engines import Engine as Engine
    from isoline.catalog.engines import EngineProcess as EngineProcess
    from isoline.catalog.engines import Environment, Flags
    from isoline.catalog.models import Curve, Precision
    from isoline.catalog.models import Model as Model
    from isoline.catalog.models import WeightFile as WeightFile
    from isoline.catalog.skus import Sku as Sku

DATA = Path(__file__).parent / "data"
OWN = Path("recipes") / "_catalog"
"""Where a project keeps its own entries, relative to the project."""

SECTIONS = ("models", "engines", "skus", "precisions", "acceptance", "aliases", "environment")

S = TypeVar("S", bound=Document)

_ENTRIES = {
    "Engine": "engines",
    "EngineProcess": "engines",
    "Model": "models",
    "WeightFile": "models",
    "Sku": "skus",
}
"""Types that are named here too -> their module."""


def __getattr__(name: str) -> Any:
    if name not in _ENTRIES:
        raise AttributeError(name)
    return getattr(import_module(f"isoline.catalog.{_ENTRIES[name]}"), name)


def merged(base: Any, own: Any) -> Any:
    """``own`` over ``base``: mappings by key and deeply, all else as a whole."""
    if isinstance(base, dict) and isinstance(own, dict):
        return {**base, **{key: merged(base.get(key), value) for key, value in own.items()}}
    return own


def _plain_tree(text: str, where: str) -> Any:
    plain_tree = fast_parse(text)
    return to_plain(parse_yaml(text, where), where) if plain_tree is UNSURE else plain_tree


class Catalog:
    """All facts, by key. Sections are read when they are first asked for.

    :param project: whose own entries are to win; None: only what ships.
    """

    def __init__(self, project: Path | None = None) -> None:
        self._own = project / OWN if project is not None and (project / OWN).is_dir() else None
        if self._own is not None:
            for path in sorted(self._own.glob("*.yaml")):
                if path.stem not in SECTIONS:
                    raise DocumentError(
                        [(str(OWN / path.name), f"no part of the catalog; {nearest(path.stem, SECTIONS)}")]
                    )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the names and bytes of all files that the facts come from."""
        found = hashlib.sha256()
        for folder in (DATA, *([self._own] if self._own is not None else [])):
            hash_files(found, folder, "*.yaml")
        return found.hexdigest()

    def _section(self, name: str, model: type[S]) -> S:
        last, where = DATA / f"{name}.yaml", f"data/{name}.yaml"
        tree: Any = _plain_tree(read_text(last, where), where)
        if self._own is not None and (self._own / f"{name}.yaml").exists():
            last, where = self._own / f"{name}.yaml", str(OWN / f"{name}.yaml")
            tree = merged(tree, _plain_tree(read_text(last, where), where))
        try:
            return model.model_validate(tree)
        except ValidationError as error:
            lines = parse_yaml(read_text(last, where), where)
            raise DocumentError(problems_of(error, lines, where, model)) from None

    @cached_property
    def models(self) -> dict[str, Model]:
        from isoline.catalog.models import Models

        return self._section("models", Models).models

    @cached_property
    def engines(self) -> dict[str, Engine]:
        """Engines by key, each with what it inherits from its backend.

        :raises DocumentError: when a backend is unknown.
        """
        from isoline.catalog.engines import Engines

        listed = self._section("engines", Engines).engines
        return {key: _inherited(key, listed) for key in listed}

    @cached_property
    def skus(self) -> dict[str, Sku]:
        from isoline.catalog.skus import Skus

        return self._section("skus", Skus).skus

    @cached_property
    def precisions(self) -> dict[str, Precision]:
        from isoline.catalog.models import Precisions

        return self._section("precisions", Precisions).precisions

    @cached_property
    def curves(self) -> dict[str, Curve]:
        from isoline.catalog.models import Acceptance

        return self._section("acceptance", Acceptance).curves

    @cached_property
    def aliases(self) -> Aliases:
        from isoline.catalog.aliases import Aliases

        return self._section("aliases", Aliases)

    @cached_property
    def environment(self) -> Environment:
        from isoline.catalog.engines import Environment

        return self._section("environment", Environment)

    @cached_property
    def _model_names(self) -> dict[str, tuple[str, str | None]]:
        from isoline.catalog.aliases import model_names

        known = {key: {None, *model.checkpoints} for key, model in self.models.items()}
        for alias, target in self.aliases.models.items():
            key, _, checkpoint = target.partition(":")
            if (checkpoint or None) not in known.get(key, ()):
                near = nearest(target, [*known, *(f"{key}:{item}" for item in known.get(key, ()) if item)])
                line = f"models.{alias}: {target!r} is no model of the catalog; {near}"
                raise DocumentError([(str(OWN / "aliases.yaml"), line)])
        return model_names(self.models, self.aliases)

    @cached_property
    def _sku_names(self) -> dict[str, str]:
        from isoline.catalog.aliases import sku_names

        return sku_names(self.skus, self.aliases)

    @cached_property
    def _flags(self) -> dict[str, Flags]:
        from isoline.catalog.engines import Flags

        found: dict[str, Flags] = {}
        folders = [DATA / "args", *([self._own / "args"] if self._own is not None else [])]
        for folder in folders:
            for path in sorted(folder.glob("*.yaml")):
                where = f"args/{path.name}"
                text = read_text(path, where)
                try:
                    flags = Flags.model_validate(_plain_tree(text, where))
                except ValidationError as error:
                    raise DocumentError(problems_of(error, parse_yaml(text, where), where, Flags)) from None
                found[flags.engine] = flags
        return found

    def known_flags(self, engine: str) -> Flags | None:
        """The known arguments of an engine, those of its backend included; None where none were collected."""
        own = self._flags.get(engine)
        backend = self.engines[engine].backend if engine in self.engines else None
        below = self._flags.get(backend) if backend is not None else None
        if own is None or below is None:
            return own or below
        return own.model_copy(update={"flags": below.flags | own.flags})

    def variable_kind(self, name: str) -> str | None:
        """What an environment variable does to a measurement; None where it is not known."""
        from isoline.catalog.environment import kind_of

        return kind_of(name, self.environment)

    def model_names(self) -> dict[str, str]:
        """Every name of a model that :meth:`resolve` knows, and the key that it stands for."""
        return {name: key for name, (key, _) in self._model_names.items()}

    def resolve(self, kind: Kind, name: str) -> str | None:
        """The key that a name in other people's data stands for; None where it is not known.

        SKUs may be given as labels of machines and queues (``cluster:b300-nv``). The vague
        precisions ``fp4`` and ``fp8`` stand for no single one: see :meth:`Model.precision_of`.
        """
        from isoline.catalog.aliases import plain, sku_of_label

        if kind == "model":
            found = self._model_names.get(plain(name).removeprefix("hf:"))
            return found[0] if found else None
        if kind == "sku":
            return sku_of_label(name, self._sku_names, self.aliases.sku_suffixes)
        keys: dict[str, Any] = self.engines if kind == "engine" else self.precisions
        names = self.aliases.engines if kind == "engine" else self.aliases.precisions
        text = plain(name)
        key = text if text in keys else names.get(text)
        return key if key in keys else None  # what an alias stands for may be misspelt

    def resolve_checkpoint(self, name: str) -> tuple[str, str] | None:
        """(model, checkpoint) of a hub id or an alias of one; None where it names no checkpoint."""
        from isoline.catalog.aliases import plain

        found = self._model_names.get(plain(name).removeprefix("hf:"))
        return (found[0], found[1]) if found and found[1] else None

    def acceptance(
        self,
        model: str,
        method: str,
        draft_length: int,
        *,
        thinking: Literal["on", "off"] | None = None,
        draft_model: str | None = None,
        variant: str | None = None,
    ) -> tuple[float, str] | None:
        """(golden acceptance length, name of its curve); None where the table has none, or several.

        ``thinking``, ``draft_model`` and ``variant`` narrow the choice; a curve whose source does not
        say the mode counts for any. Where several are left, the usual ones count.
        """
        fits = {
            name: curve
            for name, curve in self.curves.items()
            if (curve.model, curve.method) == (model, method)
            and str(draft_length) in curve.lengths
            and (thinking is None or curve.thinking in (None, thinking))
            and (draft_model is None or curve.draft_model in (None, draft_model))
            and (variant is None or curve.variant == variant)
        }
        usual = {name: curve for name, curve in fits.items() if curve.usual}
        found = [(curve.lengths[str(draft_length)], name) for name, curve in (usual or fits).items()]
        return found[0] if len({length for length, _ in found}) == 1 else None


def _inherited(key: str, listed: dict[str, Engine]) -> Engine:
    engine = listed[key]
    if engine.backend is None:
        return engine
    if engine.backend not in listed or listed[engine.backend].backend is not None:
        raise DocumentError(
            [("engines", f"{key}: backend {engine.backend!r} is no engine with its own facts")]
        )
    below = listed[engine.backend]
    skipped = {"name", "backend", "process", "container", "health", "source", "dated"}
    taken = {
        name: getattr(below, name)
        for name in type(engine).model_fields
        if name not in skipped and name not in engine.model_fields_set
    }
    return engine.model_copy(update=taken)


_current: ContextVar[Catalog | None] = ContextVar("isoline_catalog", default=None)


@lru_cache(maxsize=8)
def _read(project: Path | None, state: tuple[tuple[str, int, int], ...]) -> Catalog:
    return Catalog(project)


def load_catalog(project: Path | None = None) -> Catalog:
    """The catalog: what ships, and the entries of a project over it.

    :param project: default: the one of :func:`catalog_of`, else none. Read again when its files change,
        inside :func:`catalog_of` once for the whole block.
    :raises DocumentError: when an entry of the project is wrong (sections are read on first use).
    """
    if project is None and (current := _current.get()) is not None:
        return current
    own = project / OWN if project is not None else None
    if own is None or not own.is_dir():
        return _read(None, ())
    files = sorted(own.rglob("*.yaml"))
    state = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
    return _read(project, state)


@contextmanager
def catalog_of(project: Path) -> Iterator[Catalog]:
    """Inside, :func:`load_catalog` is the catalog of this project, for validators that know no project."""
    catalog = load_catalog(project)
    token = _current.set(catalog)
    try:
        yield catalog
    finally:
        _current.reset(token)
