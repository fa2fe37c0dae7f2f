"""Tests of the log handler of processes that serve a pipe."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from spark_events.dispatch.process.setup import LogLines
from spark_events.reporters.log_reporter import DRIVER_LOGGER


class Broken(LogLines):
    """Log handler whose lines cannot be forwarded."""

    def write(self, logger: str, level: int, line: str) -> None:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.fixture
def broken() -> Iterator[Broken]:
    """Return the handler. After the test, the loggers that its constructor changes have their former state."""
    loggers = logging.getLogger("spark_events"), logging.getLogger(DRIVER_LOGGER)
    before = [(logger, type(logger), logger.level) for logger in loggers]
    yield Broken()
    for logger, kind, level in before:
        logger.__class__ = kind
        logger.setLevel(level)


def test_a_line_that_cannot_be_forwarded_is_written_to_standard_error(
    broken: Broken, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line that cannot be forwarded appears on standard error, without secrets, and the handler raises no error."""
    broken.hide = lambda text: text.replace("t0psecret", "***")
    record = logging.LogRecord("library", logging.ERROR, "", 0, "refused %s", ("t0psecret",), None)
    assert broken.handle(record)
    assert capfd.readouterr().err == (
        "[spark-events] library: refused *** (this line cannot be forwarded to the driver's log: BrokenPipeError:"
        " [Errno 32] Broken pipe)\n"
    )
