"""All settings in one table: flag > environment > ``isoline.toml`` > default (DESIGN 5.7)."""

from __future__ import annotations

import math
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from isoline.errors import InputError


@dataclass(frozen=True)
class Setting:
    """One setting. ``default`` is relative to the project folder where it is a path."""

    name: str
    env: str
    default: str
    help: str
    is_path: bool = True


SETTINGS: tuple[Setting, ...] = (
    Setting("store", "ISOLINE_STORE", "results/store", "where sealed bundles land"),
    Setting("warehouse", "ISOLINE_WAREHOUSE", "results/warehouse.duckdb", "the DuckDB file"),
    Setting(
        "state",
        "ISOLINE_STATE",
        ".isoline",
        "environments, weights, leases and owner records of this machine",
    ),
    Setting(
        "aiperf_bin",
        "AIPERF_BIN",
        "",
        "the aiperf program; empty: the one in the state folder",
        is_path=False,
    ),
    Setting("uv_bin", "ISOLINE_UV", "", "the uv program; empty: the one on PATH or in .venv", is_path=False),
    Setting(
        "query_timeout_s",
        "ISOLINE_QUERY_TIMEOUT_S",
        "30",
        "time limit of `results query` and of the dashboard's queries, seconds",
        is_path=False,
    ),
    Setting(
        "price_tier",
        "ISOLINE_PRICE_TIER",
        "",
        "the tier of the price list that plans count with; empty: the list's own default",
        is_path=False,
    ),
    Setting(
        "trend_min_change",
        "ISOLINE_TREND_MIN_CHANGE",
        "0.025",
        "share by which a night must differ at least to be suspicious",
        is_path=False,
    ),
    Setting(
        "trend_factor",
        "ISOLINE_TREND_FACTOR",
        "2.3",
        "standard errors by which a night must differ at least",
        is_path=False,
    ),
    Setting(
        "trend_confirm_factor",
        "ISOLINE_TREND_CONFIRM_FACTOR",
        "2.8",
        "standard errors by which a re-measurement must differ to confirm alone",
        is_path=False,
    ),
    Setting(
        "trend_window",
        "ISOLINE_TREND_WINDOW",
        "20",
        "nights behind a baseline, at most",
        is_path=False,
    ),
    Setting(
        "trend_min_nights",
        "ISOLINE_TREND_MIN_NIGHTS",
        "7",
        "nights behind a baseline, at least",
        is_path=False,
    ),
)


@dataclass(frozen=True)
class Settings:
    """Resolved settings. All paths are absolute."""

    project: Path
    store: Path
    warehouse: Path
    state: Path
    aiperf_bin: str
    uv_bin: str
    query_timeout_s: float
    price_tier: str = ""
    trend_min_change: float = 0.025
    trend_factor: float = 2.3
    trend_confirm_factor: float = 2.8
    trend_window: int = 20
    trend_min_nights: int = 7


def find_project(start: Path | None = None) -> Path:
    """The project folder: the nearest folder at or above ``start`` that holds ``recipes/`` and ``sweeps/``.

    ``ISOLINE_PROJECT`` overrides the search.

    :raises InputError: when there is none.
    """
    named = os.environ.get("ISOLINE_PROJECT")
    if named:
        path = Path(named).resolve()
        if not path.is_dir():
            raise InputError("ISOLINE_PROJECT is not a folder", where=str(path))
        return path
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "recipes").is_dir() and (folder / "sweeps").is_dir():
            return folder
    raise InputError(
        "no Isoline project here or above (a folder with recipes/ and sweeps/)",
        where=str(here),
        remedy="change to one or set ISOLINE_PROJECT",
    )


def _from_toml(project: Path) -> dict[str, str]:
    path = project / "isoline.toml"
    if not path.is_file():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not valid TOML: {error}", where=str(path)) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    known = {setting.name for setting in SETTINGS}
    for key in table:
        if key not in known:
            raise InputError(
                f"unknown setting {key!r}", where=str(path), remedy=f"known: {', '.join(sorted(known))}"
            )
        if isinstance(table[key], bool) or not isinstance(table[key], str | int | float):
            raise InputError(f"setting {key!r} is no text or number", where=str(path))
    return {key: str(value) for key, value in table.items()}


def load_settings(project: Path | None = None, **flags: str | Path | None) -> Settings:
    """Resolve every setting; ``flags`` are values given on the command line (None = not given)."""
    root = project or find_project()
    toml = _from_toml(root)
    values: dict[str, str] = {}
    for setting in SETTINGS:
        flag = flags.get(setting.name)
        value = (
            str(flag)
            if flag is not None
            else os.environ.get(setting.env) or toml.get(setting.name, setting.default)
        )
        values[setting.name] = value
    timeout = _number(values, "query_timeout_s", "a number of seconds above 0")
    nights = {
        name: _number(values, name, "a whole number above 0") for name in ("trend_window", "trend_min_nights")
    }
    for name, count in nights.items():
        if not count.is_integer():
            raise _not_a("a whole number above 0", name, values[name])

    def path_of(name: str) -> Path:
        # A flag is relative to where the person stands, a setting to the project.
        base = Path.cwd() if flags.get(name) is not None else root
        return (base / values[name]).resolve()

    return Settings(
        project=root,
        store=path_of("store"),
        warehouse=path_of("warehouse"),
        state=path_of("state"),
        aiperf_bin=values["aiperf_bin"],
        uv_bin=values["uv_bin"],
        query_timeout_s=timeout,
        price_tier=values["price_tier"],
        trend_min_change=_number(values, "trend_min_change", "a share above 0"),
        trend_factor=_number(values, "trend_factor", "a number above 0"),
        trend_confirm_factor=_number(values, "trend_confirm_factor", "a number above 0"),
        trend_window=int(nights["trend_window"]),
        trend_min_nights=int(nights["trend_min_nights"]),
    )


def _not_a(what: str, name: str, value: str) -> InputError:
    env = next(setting.env for setting in SETTINGS if setting.name == name)
    return InputError(f"not {what}: {value!r}", where=f"{name} ({env})")


def _number(values: dict[str, str], name: str, what: str) -> float:
    try:
        value = float(values[name])
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise _not_a(what, name, values[name])
    return value
