"""Tests of the attributes with which a reporter's class sets its batch size and its linger time."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FaultyReporter

from spark_events.dispatch.reporter_calls import linger_of, most_of, rest_of
from spark_events.event import Severity
from spark_events.reporters.reporter import Rest


def made() -> FaultyReporter:
    """Return a reporter of a new class, because a message appears once per class."""

    class Pager(FaultyReporter):
        pass

    return Pager()


def test_valid_and_unset_attributes_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Valid values apply, and unset values cause no message."""
    reporter = made()
    assert (most_of(reporter), linger_of(reporter)) == (None, 0.0)
    reporter.max_batch_size, reporter.linger = 5, 0.5
    assert (most_of(reporter), linger_of(reporter)) == (5, 0.5)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (-1, "-1"), ("10", "of type str"), (True, "True"), (2.5, "2.5")]
)
def test_an_invalid_batch_size_is_logged_once(value: Any, shown: str, caplog: pytest.LogCaptureFixture) -> None:
    """The message names the class, the attribute, the value and the allowed values."""
    reporter = made()
    reporter.max_batch_size = value
    assert [most_of(reporter) for _ in range(3)] == [None] * 3
    assert caplog.messages == [
        f"reporter class Pager: max_batch_size is ignored: it is {shown}; allowed: a whole number above 0; correct the "
        "class"
    ]


@pytest.mark.parametrize(
    ("value", "shown"), [(-1, "-1"), ("0.2", "of type str"), (True, "True"), (float("nan"), "nan")]
)
def test_an_invalid_linger_time_is_logged_once(value: Any, shown: str, caplog: pytest.LogCaptureFixture) -> None:
    """The message names the class, the attribute, the value and the allowed values."""
    reporter = made()
    reporter.linger = value
    assert [linger_of(reporter) for _ in range(3)] == [0.0] * 3
    assert caplog.messages == [
        f"reporter class Pager: linger is ignored: it is {shown}; allowed: seconds, 0 or more; correct the class"
    ]


@pytest.mark.parametrize("value", [60.0, Rest(-1.0), Rest(float("nan")), Rest(1.0, "ERROR")])  # type: ignore[arg-type]
def test_an_invalid_rest_is_logged_once(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    reporter = made()
    reporter.rest = value
    assert [rest_of(reporter) for _ in range(3)] == [Rest()] * 3
    assert len(caplog.messages) == 1
    reporter.rest = Rest(3_600.0, Severity.ERROR)
    assert rest_of(reporter) == Rest(60.0, Severity.ERROR)


def test_another_invalid_value_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    reporter = made()
    for value in (0, 0, -1):
        reporter.max_batch_size = value
        most_of(reporter)
    assert len(caplog.messages) == 2


def test_an_attribute_that_raises_is_logged_without_the_text_of_its_error(caplog: pytest.LogCaptureFixture) -> None:
    """The text of the error may contain a secret."""

    class Unreadable(FaultyReporter):
        @property
        def max_batch_size(self) -> int | None:  # type: ignore[override]
            raise LookupError("password")

    reporter = Unreadable()
    assert [most_of(reporter) for _ in range(3)] == [None] * 3
    assert caplog.messages == [
        "reporter class Unreadable: max_batch_size is ignored: it raises LookupError when it is read; correct the class"
    ]
