"""Tests that the pages of the documentation stay short, and their lines too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import ROOT

#: Maximum number of words of a page. What is longer is a guide and a reference, or is divided by topic.
WORDS = 2_000
#: Maximum length of a line of prose, in characters.
LINE = 140
PAGES = sorted(ROOT.glob("docs/**/*.md"))
_NO_PROSE = re.compile(r"```.*?```|<!--.*?-->", re.DOTALL)


def long_lines(text: str) -> list[str]:
    """Return the long lines of prose: neither code, nor rows of a table, nor images."""
    lines = _NO_PROSE.sub("", text).splitlines()
    return [line for line in lines if len(line) > LINE and not line.lstrip().startswith(("|", "![", "<"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_at_most_2000_words(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= WORDS


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_wrapped(page: Path) -> None:
    assert long_lines(page.read_text(encoding="utf-8")) == []


def test_long_prose_is_found() -> None:
    """Control: the check finds a long line of prose only."""
    long = "word " * 40
    assert long_lines(f"short\n{long}\n| {long} |\n```\n{long}\n```\n![{long}](a.png)\n") == [long]
