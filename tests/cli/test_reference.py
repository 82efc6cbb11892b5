"""The generated page of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer

from isoline.cli.main import COMMANDS, run
from isoline.cli.output import FormatOption
from isoline.cli.reference import PAGE, render_reference
from isoline.settings import SETTINGS


def test_the_page_agrees_with_the_program(project_root: Path) -> None:
    """docs/cli.md is what `make docs` would write now."""
    assert (project_root / PAGE).read_text(encoding="utf-8") == render_reference()


def test_the_page_names_every_command_and_setting(project_root: Path) -> None:
    """No visible command and no setting is left out; hidden ones are."""
    text = (project_root / PAGE).read_text(encoding="utf-8")
    for entry in COMMANDS:
        assert (f"## isoline {entry.name}\n" in text) is not entry.hidden
    for setting in SETTINGS:
        assert f"`{setting.env}`" in text


def test_options_defaults_and_arguments_are_shown() -> None:
    """Each option stands with its values, default and help, each argument in the usage line."""
    app = typer.Typer(add_completion=False)
    group = typer.Typer(help="Fruits.")
    app.add_typer(group, name="fruit")

    @group.command("eat")
    def eat(
        name: Annotated[str, typer.Argument(help="Which fruit.")],
        count: Annotated[int, typer.Option("--count", help="How many | at once.")] = 3,
        format: FormatOption = "table",
        secret: Annotated[bool, typer.Option("--secret", hidden=True)] = False,
    ) -> None:
        """Eat it."""

    text = render_reference(typer.main.get_group(app))
    assert "## isoline fruit\n\nFruits.\n" in text
    assert "### isoline fruit eat\n\nEat it.\n" in text
    assert "isoline fruit eat [OPTIONS]" in text
    assert "How many \\| at once." in text
    assert "[default: 3]" in text
    assert "--format <table\\|json\\|csv>" in text
    assert "--secret" not in text


def test_check_sees_an_old_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``reference --check`` exits with 2 and the remedy until the page is written, and writes nothing."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "sweeps").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run(["reference", "--check"]) == 2
    assert "make docs" in capsys.readouterr().err
    assert not (tmp_path / PAGE).exists()
    assert run(["reference"]) == 0
    assert run(["reference", "--check"]) == 0
