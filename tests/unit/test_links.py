"""Tests of the links between the pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub generates from a page's headings."""
    found = set()
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_point_to_existing_files_and_headings(page: Path) -> None:
    """Links between pages point to existing files and headings. Links to other sites are not checked."""
    broken = []
    for target in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(target)
    assert broken == []


def test_a_broken_link_is_detected(tmp_path: Path) -> None:
    """Control: the check of links detects missing files and headings."""
    page = tmp_path / "page.md"
    page.write_text("# What `enrich` does, in short\n## Retry-After\n")
    assert anchors(page) == {"what-enrich-does-in-short", "retry-after"}
