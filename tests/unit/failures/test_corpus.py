"""Tests of the verdicts on the corpus of public reports, and of the published figures."""

from __future__ import annotations

import pytest
from failure_corpus import ROOT, Figures, figures, first_verdicts, reports, table, verdicts

from spark_events.failures.classes import CLASSES, UNKNOWN

FOUND = list(reports())
DEVELOPMENT = [one for one in FOUND if not one.is_blind]
BLIND = [one for one in FOUND if one.is_blind]
FIRST = figures(BLIND, first_verdicts())
NOW = figures(BLIND, verdicts(BLIND))


def test_the_corpus_is_large_and_its_halves_share_no_project() -> None:
    assert len(DEVELOPMENT) >= 400
    assert len(BLIND) >= 130
    assert len({one.project for one in BLIND}) >= 130
    assert not {one.project.lower() for one in DEVELOPMENT} & {one.project.lower() for one in BLIND}
    assert {one.failure_class for one in FOUND} <= {*CLASSES, UNKNOWN}


def test_the_page_publishes_the_figures_of_the_blind_half() -> None:
    page = (ROOT / "docs" / "events" / "verdicts.md").read_text(encoding="utf-8")
    assert table(first=FIRST, now=NOW) in page, "copy the first table of: python -m benchmarks verdicts"


@pytest.mark.parametrize(
    "found", [FIRST, NOW, figures(DEVELOPMENT, verdicts(DEVELOPMENT))], ids=["first", "now", "development"]
)
def test_verdicts_reach_the_goal(found: dict[str, Figures]) -> None:
    """A class with ten or more members has a precision of 0.95, the advice of 0.98; three of four are classified.

    The classes together reach it too, except in the first verdicts (0.94), which are stored as they were: four of these
    classes have fewer than ten members and a lower precision.
    """
    for name, one in found.items():
        if one.number >= 10 and not (name == "all classes" and found is FIRST):
            assert one.precision is not None
            assert one.precision >= 0.95, name
    advice, every = found["failure.retry_useful"], found["all classes"]
    assert advice.precision is not None
    assert advice.precision >= 0.98
    assert every.coverage is not None
    assert every.coverage >= 0.75
