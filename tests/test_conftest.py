"""The rules that the root conftest lays on all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

SAMPLE = """
import pytest

def test_skips():
    pytest.skip("no such tool")

@pytest.mark.xfail(reason="known", strict=True)
def test_expected_failure():
    assert False

def test_passes():
    pass
"""


@pytest.fixture
def inner(pytester: pytest.Pytester, project_root: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of one test file under the real root conftest."""
    text = (project_root / "tests/conftest.py").read_text(encoding="utf-8")
    pytester.makeconftest(text)
    for name in ("CI", "SYSTEM", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    return pytester


def test_a_skip_is_counted_on_a_persons_machine(inner: pytest.Pytester) -> None:
    """Without CI a test that lacks its tool skips, with its reason on one line."""
    inner.makepyfile(SAMPLE)
    result = inner.runpytest_subprocess("-ra")
    result.assert_outcomes(passed=1, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(["SKIPPED*no such tool"])


@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("SYSTEM", "1")])
def test_a_skip_fails_where_nothing_may_be_skipped(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """With CI=true or SYSTEM=1 the same skip is a failure that says why; an expected failure is not."""
    monkeypatch.setenv(name, value)
    inner.makepyfile(SAMPLE)
    result = inner.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1, xfailed=1)
    result.stdout.fnmatch_lines(["*skipped although nothing may be*no such tool*"])


def test_a_file_that_skips_itself_fails_too(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A skip while a file is read hides all its tests, so it is an error where nothing may be skipped."""
    monkeypatch.setenv("CI", "true")
    inner.makepyfile("import pytest\npytest.importorskip('no_such_module_here')\ndef test_x(): pass\n")
    result = inner.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    assert result.ret != 0


def test_evidence_names_date_commit_and_machine(evidence, tmp_path: Path) -> None:
    """An evidence page begins with when, which code and where."""
    path = evidence("sample", ["- overhead: 3 s"])
    text = path.read_text(encoding="utf-8")
    assert path.parent == tmp_path or "evidence" in path.parts
    assert text.startswith("# sample\n\n- date: 2")
    assert "- commit: " in text
    assert "cores" in text
    assert text.endswith("- overhead: 3 s\n")
