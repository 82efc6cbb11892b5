"""Settings: flag before environment before isoline.toml before default."""

from __future__ import annotations

from pathlib import Path

import pytest

from isoline.errors import InputError
from isoline.settings import SETTINGS, find_project, load_settings


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, and no setting in the environment."""
    for setting in SETTINGS:
        monkeypatch.delenv(setting.env, raising=False)
    root = tmp_path / "p"
    for name in ("recipes", "sweeps"):
        (root / name).mkdir(parents=True)
    monkeypatch.chdir(root)
    return root


def test_the_order(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source wins over the next one; an empty variable is not set."""
    assert load_settings().store == project / "results" / "store"
    (project / "isoline.toml").write_text('store = "from-toml"\n')
    assert load_settings().store == project / "from-toml"
    monkeypatch.setenv("ISOLINE_STORE", "")
    assert load_settings().store == project / "from-toml"
    monkeypatch.setenv("ISOLINE_STORE", "from-env")
    assert load_settings().store == project / "from-env"
    assert load_settings(store=tmp_path / "flag").store == tmp_path / "flag"


def test_paths_are_absolute(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting is relative to the project, a flag to where the person stands."""
    monkeypatch.chdir(project / "recipes")
    settings = load_settings(store="here")
    assert settings.store == project / "recipes" / "here"
    assert settings.warehouse == project / "results" / "warehouse.duckdb"
    assert settings.project == project


def test_the_project_is_found_from_inside(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From any folder inside; outside it is told; ISOLINE_PROJECT names another one."""
    monkeypatch.delenv("ISOLINE_PROJECT", raising=False)
    deep = project / "recipes" / "a" / "b"
    deep.mkdir(parents=True)
    assert find_project(deep) == project
    with pytest.raises(InputError, match="no Isoline project here or above"):
        find_project(tmp_path)
    monkeypatch.setenv("ISOLINE_PROJECT", str(project))
    assert find_project(tmp_path) == project
    monkeypatch.setenv("ISOLINE_PROJECT", str(project / "nowhere"))
    with pytest.raises(InputError, match="ISOLINE_PROJECT is not a folder"):
        find_project()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("store = ", "not valid TOML"),
        ("stor = 'x'", "unknown setting 'stor'"),
        ("store = ['x']", "setting 'store' is no text or number"),
        ("store = true", "setting 'store' is no text or number"),
        ("[store]\na = 1", "setting 'store' is no text or number"),
        ("query_timeout_s = 'soon'", "not a number of seconds above 0: 'soon'"),
        ("query_timeout_s = 0", "not a number of seconds above 0: '0'"),
        ("query_timeout_s = nan", "not a number of seconds above 0: 'nan'"),
        ("query_timeout_s = inf", "not a number of seconds above 0: 'inf'"),
    ],
)
def test_wrong_settings_are_told(project: Path, text: str, words: str) -> None:
    """A file that is no TOML, an unknown name, and a value that cannot be meant are one line each."""
    (project / "isoline.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_settings()
    assert words in caught.value.line()


def test_numbers_in_toml(project: Path) -> None:
    """A number needs no quotes."""
    (project / "isoline.toml").write_text("query_timeout_s = 2.5\n")
    assert load_settings().query_timeout_s == 2.5


def test_bytes_that_are_no_text(project: Path) -> None:
    """A binary isoline.toml is one line."""
    (project / "isoline.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not valid TOML"):
        load_settings()


def test_every_setting_has_a_variable_and_help() -> None:
    """The table is complete, and no two rows share a name or variable."""
    assert (
        len({setting.name for setting in SETTINGS})
        == len({setting.env for setting in SETTINGS})
        == len(SETTINGS)
    )
    assert all(setting.help for setting in SETTINGS)
