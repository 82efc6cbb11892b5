"""The rules of the house (DESIGN section 4) that a program can check."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

#: The steps of DESIGN section 4 that exist now, left to right: imports go only to the right.
STEPS: list[set[str]] = [
    {"cli"},
    {"github"},
    {"dashboard"},
    {"gates"},
    {"sweeps"},
    {"load", "accuracy"},
    {"runners"},
    {"predict"},
    {"recipes"},
    {"datasets"},
    {"analysis"},
    {"results"},
    {"catalog"},
]
RANK = {name: rank for rank, names in enumerate(STEPS) for name in names}
#: Modules at the top of the package that all may use.
FOR_ALL = {"errors", "settings", "__init__"}
MAX_LINES = 420
#: The wheels of others bind other versions (DESIGN 6): never imported, always run as programs.
NEVER_IMPORTED = {"aiperf", "xllamacpp"}


def isoline_imports(tree: ast.AST, package: list[str]) -> set[str]:
    """The first parts under ``isoline`` that a module imports anywhere, nested imports too.

    ``package`` is the dotted package of the module, for relative imports.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        names: list[list[str]] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            names = [[*base, alias.name] for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called == "import_module" and isinstance(node.args[0].value, str):
                names = [node.args[0].value.split(".")]
        found.update(parts[1] for parts in names if len(parts) > 1 and parts[0] == "isoline")
    return found


def wrong_imports(source: str, package: str, module: str = "isoline") -> set[str]:
    """The packages that code of ``package`` imports although they are on its left or on its own step."""
    seen = isoline_imports(ast.parse(source), module.split("."))
    return {name for name in seen if name in RANK and name != package and RANK[name] <= RANK[package]}


def modules(root: Path) -> list[Path]:
    return sorted((root / "src/isoline").rglob("*.py"))


def tracked(root: Path) -> list[Path]:
    """The text files that git knows, new ones too."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    ).stdout.decode()
    return [root / name for name in listed.split("\0") if name and (root / name).is_file()]


def text_of(path: Path) -> str | None:
    data = path.read_bytes()
    return None if b"\0" in data[:8192] else data.decode("utf-8", errors="replace")


def test_imports_go_only_to_the_right(project_root: Path) -> None:
    """No module imports a package on its left, or another one on its own step."""
    wrong = []
    for path in modules(project_root):
        parts = path.relative_to(project_root / "src").with_suffix("").parts
        package = parts[1] if len(parts) > 2 else None
        if package is None:
            if parts[1] != "__init__" and isoline_imports(ast.parse(path.read_text()), ["isoline"]) - FOR_ALL:
                wrong.append(f"{path.name}: a module for all imports a package")
            continue
        dotted = ".".join(parts[:-1])
        for name in sorted(wrong_imports(path.read_text(encoding="utf-8"), package, dotted)):
            wrong.append(f"{path.relative_to(project_root)} imports isoline.{name}")
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "package", "expected"),
    [
        ("from isoline.sweeps.planning.plan import x", "load", {"sweeps"}),
        ("def f():\n    import isoline.cli.main", "results", {"cli"}),
        ("from isoline import dashboard", "results", {"dashboard"}),
        ("from isoline.accuracy import x", "load", {"accuracy"}),
        ("from ..sweeps import x", "load", {"sweeps"}),
        ("import importlib\nimportlib.import_module('isoline.runners.x')", "recipes", {"runners"}),
        (
            "from isoline.runners import x\nfrom isoline.errors import y\nfrom isoline.load import z",
            "load",
            set(),
        ),
    ],
)
def test_the_import_check_sees_each_form(source: str, package: str, expected: set[str]) -> None:
    """Plain, nested, relative and dynamic imports are all seen, and allowed ones are not blamed."""
    assert wrong_imports(source, package, f"isoline.{package}") == expected


def test_every_package_has_its_step(project_root: Path) -> None:
    """A new package must be given a place in the order before it can be imported."""
    found = {path.parent.name for path in (project_root / "src/isoline").glob("*/__init__.py")}
    assert found - set(RANK) == set()


def test_foreign_wheels_are_never_imported(project_root: Path) -> None:
    """AIPerf and the engine live in other environments; only the engine's own start script imports it."""
    wrong = []
    for path in modules(project_root):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if {name.split(".")[0] for name in names} & NEVER_IMPORTED and path.name != "llamacpp_server.py":
                wrong.append(str(path.relative_to(project_root)))
    assert wrong == []


def test_modules_stay_small(project_root: Path) -> None:
    """One idea a module: none is longer than about 400 lines."""
    long = {
        str(path.relative_to(project_root)): count
        for path in modules(project_root)
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert long == {}


def test_every_module_says_what_it_is_for(project_root: Path) -> None:
    """Each package and module begins with a docstring."""
    silent = [
        str(path.relative_to(project_root))
        for path in modules(project_root)
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_datasets_folder_is_no_package(project_root: Path) -> None:
    """A library is named ``datasets``; our folder of that name must never hide it."""
    assert (project_root / "datasets").is_dir()
    assert not list((project_root / "datasets").rglob("__init__.py"))


@pytest.mark.parametrize(
    "folder",
    [
        "recipes",
        "sweeps",
        "runners",
        "datasets",
        "results",
        "dashboard",
        ".github",
        "docs",
        "benchmarks",
        "tests",
    ],
)
def test_every_folder_of_the_house_holds_something(project_root: Path, folder: str) -> None:
    """The top-level folders of DESIGN section 4 exist and hold real content."""
    held = [path for path in tracked(project_root) if path.is_relative_to(project_root / folder)]
    assert [path for path in held if path.stat().st_size > 0]


# Built of parts, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(" + "TO" + "DO|FIX" + "ME|X" + "XX)\\b")
MACHINE_PATH = re.compile("(?<![\\w.])/(?:" + "work|root|home/[a-z]+|tmp/w" + ")/")


def test_nothing_is_marked_unfinished(project_root: Path) -> None:
    """Work to be done lies in issues, not in comments."""
    marked = [
        f"{path.relative_to(project_root)}:{number}"
        for path in tracked(project_root)
        if path.suffix in {".py", ".md", ".yaml", ".yml", ".toml", ".sh", ""} and (text := text_of(path))
        for number, line in enumerate(text.splitlines(), start=1)
        if UNFINISHED.search(line)
    ]
    assert marked == []


def test_no_file_names_a_place_of_one_machine(project_root: Path) -> None:
    """No tracked file holds a path of the machine it was written on."""
    named = [
        f"{path.relative_to(project_root)}:{number}: {line.strip()[:80]}"
        for path in tracked(project_root)
        if (text := text_of(path))
        for number, line in enumerate(text.splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert named == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("see /" + "work/main/x", True),
        ("open('/" + "root/.cache/y')", True),
        ("a/" + "work/b", False),
        ("https://example.org/" + "work/x", False),
    ],
)
def test_the_path_check_can_fail(line: str, found: bool) -> None:
    """A path of a machine is found, a relative one or an address is not."""
    assert bool(MACHINE_PATH.search(line)) is found
