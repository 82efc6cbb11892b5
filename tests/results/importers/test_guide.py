"""The guide says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from isoline.results.importers.foreign import Code
from isoline.results.importers.recognise import FORMATS


def test_the_guide_lists_every_format_and_reason(project_root: Path) -> None:
    """docs/imports.md names each format once, in its table, and each reason of quarantine."""
    text = (project_root / "docs/imports.md").read_text(encoding="utf-8")
    formats, _, quarantine = text.partition("## Quarantine")
    assert set(re.findall(r"^\| `([a-z-]+)` \|", formats, re.MULTILINE)) == set(FORMATS)
    reasons = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", quarantine, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(reasons))) == sorted(get_args(Code))
