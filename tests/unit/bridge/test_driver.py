"""Tests of the thread that sends answers to the driver's JVM."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from spark_events.bridge.driver import DriverAnswers


def shim(error: Exception) -> Any:
    """Return a shim whose JVM does not accept answers."""

    def answer(lines: bytes) -> None:
        raise error

    client = SimpleNamespace(get_thread_connection=lambda: None)
    return SimpleNamespace(answer=answer, _gateway_client=client)


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        (Py4JError("An error occurred while calling o1.answer"), True),
        (Py4JNetworkError("Answer from Java side is empty"), False),
        (ConnectionRefusedError(111, "Connection refused"), False),
    ],
)
def test_an_answer_that_the_driver_rejects_is_logged(
    error: Exception, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of a running JVM is logged. The exit of the JVM is not, because the fetching thread reports it."""
    answers = DriverAnswers(shim(error))
    answers.start()
    with caplog.at_level(logging.DEBUG):
        answers.acknowledge(1, 1)
        answers.close(60)
    assert [record.exc_info is not None for record in caplog.records] == [True] * is_logged
    assert ("the driver rejected an answer" in caplog.text) == is_logged
