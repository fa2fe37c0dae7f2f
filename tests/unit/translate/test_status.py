"""Tests of the allowed transitions between statuses."""

from __future__ import annotations

import pytest

from spark_events.translate.status import APPLICATION, JOB, QUERY, STAGE, Status, Transitions

TABLES = {"application": APPLICATION, "query": QUERY, "job": JOB, "stage": STAGE}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_next_status_is_defined(table: Transitions) -> None:
    """The table contains every status, and no status has a transition to itself."""
    for status, following in table.items():
        assert following <= table.keys()
        assert status not in following


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_invalid_transition_changes_nothing(table: Transitions) -> None:
    """A transition that is not in the table changes nothing. An unknown status may change to any status."""
    for old, following in table.items():
        for new in table:
            status = Status(table)
            assert status.become(old)
            assert status.become(new) is (new in following)
            assert status.value == (new if new in following else old)


@pytest.mark.parametrize(("name", "ends"), [("application", 5), ("query", 2), ("job", 3), ("stage", 0)])
def test_final_statuses_are_final(name: str, ends: int) -> None:
    """Final statuses of applications, query runs and jobs do not change. A finished stage may run tasks again."""
    over = [value for value in TABLES[name] if Status(TABLES[name], value).is_over]
    assert len(over) == ends
    assert not Status(TABLES[name]).is_over
