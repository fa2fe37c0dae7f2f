"""Sidecar: the process next to the driver that turns records into events.

The sidecar opens its answer channel first, so that it can report every later failure. It runs until its standard input
is closed. If this pipe closes without a goodbye message, the driver was killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from typing import NoReturn

from spark_events.dispatch.process.setup import LogLines, ignore_driver_signals, take_standard_streams
from spark_events.errors import ConfigError, ProtocolError
from spark_events.reporters.log_reporter import DRIVER_LOGGER, severity_of
from spark_events.sidecar.acknowledgements import MessageWriter
from spark_events.sidecar.driver_session import DriverSession, DriverSessionOptions
from spark_events.sidecar.pipe import RecordPipe, line_writer
from spark_events.sidecar.python_program import PythonProgram

_LOG = logging.getLogger(__name__)
#: Time after which a busy thread must release the interpreter lock, in seconds. With Python's default of 5 ms, a
#: reporter in a busy loop would delay the other threads by 5 ms each time.
SWITCH_SECONDS = 0.0005
#: Time to wait for a killed driver to exit, in seconds; its pipe closes slightly before the process exits.
_DEATH_SECONDS = 1.0


class _DriverLog(LogLines):
    """Log handler that sends the sidecar's log lines to the driver's log."""

    def __init__(self, messages: MessageWriter) -> None:
        super().__init__()
        self._messages = messages

    def write(self, logger: str, level: int, line: str) -> None:
        if logger == DRIVER_LOGGER:
            # This line is an event from a log reporter and not a message from the sidecar.
            self._messages.send("event", level=severity_of(level), message=line)
        else:
            self._messages.send("log", level=logging.getLevelName(level), message=line)


def _create_process_group() -> None:
    try:
        os.setsid()
    except OSError:
        # Ignore the error: the process is already the leader of its own group.
        return


def _has_exited(driver: int) -> bool:
    """Return whether the driver has died; wait briefly, because its pipe closes before its process ends."""
    until = time.monotonic() + _DEATH_SECONDS
    while os.getppid() == driver:
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def main() -> NoReturn:
    """Run the sidecar on standard input and output, and exit the process afterwards."""
    # If the driver is already dead, this id belongs to another process. The driver's first line contains the correct
    # id.
    parent = os.getppid()
    ignore_driver_signals()
    _create_process_group()
    sys.setswitchinterval(SWITCH_SECONDS)
    records, replies = take_standard_streams()
    messages = MessageWriter(line_writer(replies))
    driver_log = _DriverLog(messages)
    driver_log.connect()
    code = 0
    program: PythonProgram | None = None
    try:
        driver_session = DriverSession.open(
            RecordPipe(records),
            messages,
            lambda driver: _has_exited(driver or parent),
            DriverSessionOptions(
                log=driver_log, amend=lambda record: record if program is None else program.amend(record)
            ),
        )
        if driver_session is not None:
            program = PythonProgram.of(driver_session.driver or parent)
            driver_session.run()
    except ConfigError as error:
        messages.send("refused", reason="; ".join(error.problems))
        code = 2
    except ProtocolError as error:
        messages.send("refused", reason=str(error))
        code = 2
    except BaseException:
        _LOG.exception("a defect ended the sidecar; report this")
        code = 1
    # Do not use sys.exit, which would wait for threads that a reporter's library left running.
    with contextlib.suppress(OSError, ValueError):
        # Ignore the error: standard error may have been closed by a reporter or by the process that started the driver.
        sys.stderr.flush()
    os._exit(code)
