"""Tests of the documentation site's hooks. `make docs` builds the site, with warnings as errors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import ROOT

from website import hooks

CONFIG: Any = SimpleNamespace(repo_url="https://host/repo")


def rewritten(source: str, markdown: str) -> str:
    """Return the content of a page after the hooks have run.

    The page is a file in docs/, or a file that the hooks convert to a page.
    """
    uri = hooks._PAGES.get(source, source.removeprefix("docs/"))
    page: Any = SimpleNamespace(file=SimpleNamespace(src_uri=uri, abs_src_path=str(ROOT / source)))
    files: Any = SimpleNamespace(get_file_from_path=lambda _: None)
    text: str = hooks.on_page_markdown(markdown, page, CONFIG, files)
    return text


@pytest.mark.parametrize(
    ("source", "link", "expected"),
    [
        ("README.md", "docs/events.md#events", "events.md#events"),
        ("README.md", "docs/decisions/", "decisions/index.md"),
        (
            "README.md",
            "conf/spark-defaults.conf.template",
            "https://host/repo/blob/main/conf/spark-defaults.conf.template",
        ),
        ("docs/reporters/file.md", "../../CHANGELOG.md", "../changelog.md"),
        ("docs/reporters/file.md", "../events.md", "../events.md"),
        ("docs/python.md", "../examples", "https://host/repo/tree/main/examples"),
        ("docs/python.md", "nowhere.md", "nowhere.md"),
        ("docs/python.md", "#call", "#call"),
        ("docs/python.md", "https://spark.apache.org/", "https://spark.apache.org/"),
    ],
)
def test_links_work_on_github_and_on_the_site(source: str, link: str, expected: str) -> None:
    assert rewritten(source, f"a [b]({link})") == f"a [b]({expected})"


def test_code_is_not_changed() -> None:
    """Only Markdown inside `<details>` is parsed, and only links outside code are changed."""
    text = "`[a](../CHANGELOG.md)`\n```\n[a](../CHANGELOG.md)\n```\n"
    assert rewritten("docs/python.md", text + "<details>") == text + '<details markdown="1">'


def test_a_folder_in_the_navigation_becomes_its_pages() -> None:
    """A folder in the navigation is replaced by its pages, sorted and without the folder's index page."""
    pages = ["a/index.md", "a/x.md", "a/y.md", "b.md"]
    assert hooks._expanded([{"T": ["b.md", "a/*"]}], pages) == [{"T": ["b.md", "a/x.md", "a/y.md"]}]


def test_readme_is_short_and_its_pictures_are_small() -> None:
    assert len(Path(ROOT, "README.md").read_text(encoding="utf-8").splitlines()) <= 120
    for name in ("report.png", "event-logs.png"):
        assert Path(ROOT, "docs/images", name).stat().st_size < 150_000
