"""Tests that the table of events by feature of Spark names tests that observe these events on these versions."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from fakes import ROOT

PAGES = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "events").glob("*.md")}
EVENTS = set(re.findall(r"^## (\w+Event)$", "\n".join(PAGES.values()), re.MULTILINE))
NEWEST = "4.3"
#: Skips of a whole file, by the first version that the file does not skip.
SKIPS = {"(4, 1)": "4.1", "(4,)": "4.0"}
#: Marks of the tests that CI runs on the newest version only.
_MATRIX = re.findall(r'-m "spark ((?:and not \w+ ?)+)"', (ROOT / "Makefile").read_text(encoding="utf-8"))
SKIPPED_MARKS = re.compile(rf"\bmark\.(?:{'|'.join(_MATRIX[0].replace('and not', '').split())})\b")


class Row(NamedTuple):
    """One feature."""

    feature: str
    versions: list[str]
    events: list[str]
    attributes: list[str]
    test: str

    @property
    def source(self) -> str:
        return (ROOT / "tests" / self.test).read_text(encoding="utf-8")

    @property
    def of_file(self) -> str:
        """The markers of all tests of the file."""
        found = re.search(r"^pytestmark = (.+?)\n(?:\]\n|\n)", self.source, re.MULTILINE | re.DOTALL)
        return found[1] if found else ""

    @property
    def is_in_matrix(self) -> bool:
        """Whether CI runs a test of the file on the older versions too."""
        if SKIPPED_MARKS.search(self.of_file):
            return False
        tests = (one for one in self.source.split("\n\n\n") if re.search(r"^def test_", one, re.MULTILINE))
        return any(not SKIPPED_MARKS.search(one.partition("\ndef test_")[0]) for one in tests)


def rows() -> list[Row]:
    lines = [line.strip("| ").split(" | ") for line in PAGES["features"].splitlines() if line.startswith("| ")][1:]
    return [
        Row(
            feature,
            versions.split(", "),
            re.findall(r"\w+Event\b", events),
            re.findall(r"`([\w.]+)`", events),
            test[1:-1],
        )
        for feature, versions, events, test in lines
    ]


ROWS = rows()
ON_SPARK = [row for row in ROWS if row.test.startswith("spark/")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.feature)
def test_the_test_observes_the_events(row: Row) -> None:
    """The named test mentions each event and attribute of the row."""
    jobs = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests/spark/jobs").glob("*.py"))
    for name in (*row.events, *row.attributes):
        assert name in row.source or name in jobs, name
    assert set(row.events) <= EVENTS


@pytest.mark.parametrize("row", ON_SPARK, ids=lambda row: row.feature)
def test_the_test_runs_on_the_versions(row: Row) -> None:
    """A row names the older versions if and only if the matrix runs the test with them, or one test of the file."""
    if "spark_version() >= (4, 1)" in row.of_file:
        assert row.versions == ["3.5", "4.0"]
        return
    assert row.versions[-1] == NEWEST
    first = next((since for skip, since in SKIPS.items() if f"spark_version() < {skip}" in row.of_file), "3.5")
    expected = [version for version in ("3.5", "4.0", NEWEST) if version >= first]
    assert row.versions == (expected if row.is_in_matrix else [NEWEST])


def test_each_event_of_spark_has_a_feature() -> None:
    """Only events of spark-events itself, and of the user, are in no row."""
    own = {"HeartbeatEvent", "EnrichmentProgressEvent", "EventsDroppedEvent", "ReporterStatusChangeEvent"}
    own |= {"ReporterQueueEvent", "DispatcherReportEvent", "TestEvent"}
    assert EVENTS - own == {event for row in ROWS for event in row.events}
