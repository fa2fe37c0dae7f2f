"""Tests of calls to the driver's JVM that fail."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from spark_events.sidecar.acknowledgements import Acknowledgements
from spark_events.stream.driver_bridge import DriverMessageWriter, DriverRecords


def shim(error: Exception) -> Any:
    """Return a shim whose calls fail."""

    def call(_: object) -> None:
        raise error

    client = SimpleNamespace(get_thread_connection=lambda: None)
    return SimpleNamespace(answer=call, fetch=call, _gateway_client=client)


ERRORS = pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        (Py4JError("An error occurred while calling o1.answer"), True),
        (Py4JNetworkError("Answer from Java side is empty"), False),
        (ConnectionRefusedError(111, "Connection refused"), False),
    ],
)


@ERRORS
def test_an_answer_that_the_driver_rejects_is_logged(
    error: Exception, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of a running JVM is logged. The exit of the JVM is not, because the fetching thread reports it."""
    answers = DriverMessageWriter(shim(error))
    answers.start()
    with caplog.at_level(logging.DEBUG):
        Acknowledgements(answers, 1, 100).complete(lambda: (1, 0))
        answers.close(60)
    assert [record.exc_info is not None for record in caplog.records] == [True] * is_logged
    assert ("the driver rejected an answer" in caplog.text) == is_logged


@ERRORS
def test_a_fetch_that_the_driver_rejects_is_logged(
    error: Exception, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Any error ends the records. Only an error of a running JVM is logged."""
    records = DriverRecords(shim(error))
    assert records.read() == []
    assert (records.closed, records.failure) == (True, error)
    assert ("cannot fetch records from the driver" in caplog.text) == is_logged
