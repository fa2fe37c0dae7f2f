"""Tests of the attributes with which a reporter's class sets its batch size and its linger time."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FaultyReporter

from spark_events.dispatch.calls import linger_of, most_of


class _Unreadable(FaultyReporter):
    @property
    def max_batch_size(self) -> int | None:  # type: ignore[override]
        raise LookupError("no size")


def test_valid_and_unset_attributes_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Valid values apply, and unset values cause no message."""
    reporter = FaultyReporter()
    assert (most_of(reporter), linger_of(reporter)) == (None, 0.0)
    reporter.max_batch_size, reporter.linger = 5, 0.5
    assert (most_of(reporter), linger_of(reporter)) == (5, 0.5)
    assert caplog.text == ""


@pytest.mark.parametrize("value", [0, -1, "10", True, 2.5])
def test_an_invalid_batch_size_is_logged(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The message names the class, the attribute, the value and the allowed values."""
    reporter = FaultyReporter()
    reporter.max_batch_size = value
    assert most_of(reporter) is None
    assert f"FaultyReporter: max_batch_size is {value}; allowed: a whole number above 0" in caplog.text


@pytest.mark.parametrize("value", [-1, "0.2", True, float("nan")])
def test_an_invalid_linger_time_is_logged(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The message names the class, the attribute, the value and the allowed values."""
    reporter = FaultyReporter()
    reporter.linger = value
    assert linger_of(reporter) == 0.0
    assert f"FaultyReporter: linger is {value}; allowed: seconds, 0 or more" in caplog.text


def test_an_attribute_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An attribute that cannot be read is logged with the error, and its default applies."""
    assert most_of(_Unreadable()) is None
    assert "_Unreadable: reading max_batch_size failed, so its default applies: LookupError: no size" in caplog.text
