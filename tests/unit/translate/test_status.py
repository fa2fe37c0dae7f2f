"""Tests of the allowed transitions between statuses."""

from __future__ import annotations

import pytest

from spark_events.translate.status import Status

FINAL = ("FINISHED", "FAILED", "CANCELLED", "ENDED", "LOST")


@pytest.mark.parametrize("old", ["RUNNING", *FINAL])
@pytest.mark.parametrize("new", ["RUNNING", *FINAL])
def test_invalid_transition_changes_nothing(old: str, new: str) -> None:
    """Only RUNNING may change, and only to another status. An unknown status may change to any status."""
    is_allowed = old == "RUNNING" and new != "RUNNING"
    status = Status()
    assert status.become(old)
    assert status.become(new) is is_allowed
    assert status.value == (new if is_allowed else old)


def test_final_statuses_are_final() -> None:
    """All statuses but RUNNING are final; an unknown status is not."""
    status = Status()
    assert not status.is_over
    status.become("RUNNING")
    assert not status.is_over
    for value in FINAL:
        status = Status()
        status.become(value)
        assert status.is_over
