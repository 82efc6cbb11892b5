"""Hostile recipes: nothing in one reaches beyond the server that it describes."""

from __future__ import annotations

from typing import Any

import pytest

AGG = "deepseek-r1-0528/sglang-b200-fp8-block"


@pytest.mark.parametrize(
    "value",
    [
        "$(curl example.org)",
        "`id`",
        "x; rm -rf y",
        "x && y",
        "x | tee y",
        "x > y",
        "$HOME",
        "${HOME}",
        "<model>",
        "a\\nb",
        "a\\x1b[31m",
        "/etc/passwd",
        "x=/srv/.ssh/id",
        "/var/run/docker.sock",
        "/models/../etc",
        "../up",
        "/modelsx/y",
        "http://example.org/x",
        "tcp://10.0.0.7:5000",
        "{file.plain.jinja},/home/me",
    ],
)
def test_values_that_reach_out(lint_project: Any, value: str) -> None:
    """Shell syntax, control characters, paths of a machine and other machines are errors anywhere."""
    for old, new in (
        ('SPEC_V2: "1"', f'SPEC_V2: "{value}"'),
        (
            "speculative-algorithm: EAGLE",
            f'speculative-algorithm: EAGLE\n    deepep-config: {{a: ["{value}"]}}',
        ),
        ('"{url}"', f'"{value}"'),
    ):
        before = lint_project.read(AGG)
        lint_project.spoil(AGG, old, new)
        found = lint_project.lint(AGG)
        assert any(item.rule == "danger" for item in found), [item.text() for item in found]
        assert "\x1b" not in "".join(item.text() for item in found)
        lint_project.write(f"recipes/{AGG}.yaml", before)


@pytest.mark.parametrize(
    "value",
    [
        "EAGLE",
        "1,2,4",
        "/models/draft",
        "/opt/rocm/lib",
        "{scratch}/cache",
        "http://127.0.0.1:{port.router}",
        "http://{host}:{port}/x",
        "a/b",
        "deepseek-ai/DeepSeek-R1-0528",
        "fp8_e4m3",
        "tcp://*:{port.router}"[:6] + "localhost:5",
    ],
)
def test_values_that_are_fine(lint_project: Any, value: str) -> None:
    """Plain values, paths inside the image and addresses of the launch itself are no danger."""
    lint_project.spoil(AGG, 'SPEC_V2: "1"', f'SPEC_V2: "{value}"')
    assert [item.text() for item in lint_project.lint(AGG) if item.rule == "danger"] == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("chunked-prefill-size: 16384", "privileged: true", "is about the container"),
        ("chunked-prefill-size: 16384", 'volume: "a:b"', "is about the container"),
        ('SPEC_V2: "1"', 'SPEC_V2: "1", HF_TOKEN: abc', "HF_TOKEN looks like a secret"),
        ('SPEC_V2: "1"', 'SPEC_V2: "1", PYTHONSTARTUP: x', "decides which code runs"),
        ("ports: [router]", "ports: [router]\n    env: {AWS_SECRET_ACCESS_KEY: x}", "not a recipe's to set"),
        ("vllm-router, --port", "docker, run, --privileged, --port", "'docker' runs other programs"),
        ("vllm-router, --port", "/usr/bin/sudo, --port", "'sudo' runs other programs"),
        ("vllm-router, --port", "vllm-router, --privileged, --port", "asks for privileges"),
    ],
)
def test_privileges_and_secrets(lint_project: Any, old: str, new: str, words: str) -> None:
    """Privileges, secrets, and programs that run other programs are errors."""
    line = lint_project.spoil(AGG, old, new) + new.count("\n")
    found = [item for item in lint_project.lint(AGG) if item.rule == "danger" and words in item.what]
    assert [(item.severity, item.line) for item in found] == [("error", line)]


def test_a_file_that_is_a_link_out_of_the_folder(lint_project: Any) -> None:
    """A listed file that links elsewhere would bring a machine's own file into a launch."""
    file = lint_project.root / "recipes/deepseek-r1-0528/plain.jinja"
    file.unlink()
    file.symlink_to("/etc/hostname")
    (found,) = [item for item in lint_project.lint(AGG) if item.rule == "files"]
    assert "is a link that leaves the folder" in found.what


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2]",
        "a: &x 1\nb: *x\n",
        "a: !!python/object:os.system x\n",
        "{" * 60,
        "\x00",
        "a: 1\na: 2\n",
        "- x\n" * 3,
    ],
)
def test_files_that_are_no_recipes(lint_project: Any, text: str) -> None:
    """Whatever stands in a file, the lint says a line of it and goes on with the others."""
    lint_project.write("recipes/deepseek-r1-0528/sglang-b200-fp8-block-bad.yaml", text)
    found = lint_project.lint()
    assert {item.rule for item in found} == {"schema"}
    assert all(item.severity == "error" and item.file.endswith("-bad.yaml") and item.mend for item in found)
