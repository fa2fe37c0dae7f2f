"""Tests of the pages on enrichment: their length, and the names that the generated reference contains."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import yaml
from fakes import ROOT

import spark_events
from spark_events import enrichment

GUIDE = ROOT / "docs" / "enrichment.md"
PAGES = sorted((ROOT / "docs" / "enrichment").glob("*.md"))


@pytest.mark.parametrize("page", [GUIDE, *PAGES], ids=lambda page: page.name)
def test_a_page_has_at_most_2000_words(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= 2_000


def test_the_guide_links_to_every_page() -> None:
    linked = set(re.findall(r"\]\(enrichment/([\w.]+)", GUIDE.read_text(encoding="utf-8")))
    assert linked == {page.name for page in PAGES}


def test_both_functions_have_the_same_twelve_arguments() -> None:
    """Twelve is the ceiling: a further argument belongs to one of the option classes."""
    arguments = list(inspect.signature(spark_events.enrich_batch).parameters)
    assert arguments == [
        "df", "fn", "output", "input_cols", "resource", "key", "batch_size", "limits", "retry", "on_failure", "cache",
        "replay",
    ]  # fmt: skip
    assert list(inspect.signature(spark_events.enrich).parameters) == arguments
    page = (ROOT / "docs" / "enrichment" / "reference.md").read_text(encoding="utf-8")
    assert len(arguments) == 12
    assert "the same twelve arguments" in page


def test_each_public_name_is_described_on_one_page() -> None:
    """The API reference describes the names that the reference of enrichment lacks."""
    page = (ROOT / "docs" / "enrichment" / "reference.md").read_text(encoding="utf-8")
    described = re.findall(r"^::: spark_events\.(\w+)$", page, re.MULTILINE)
    assert sorted(described) == sorted([*enrichment.__all__, "EnrichmentError"])
    _, _, options = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8").partition("::: spark_events\n")
    excluded = [item.removeprefix("!") for item in yaml.safe_load(options)["options"]["filters"]]
    left = {name for name in spark_events.__all__ if not any(re.search(item, name) for item in excluded)}
    assert left == set(spark_events.__all__) - set(described) - {"__version__"}
