"""The sidecar: the process beside the driver that makes events of records and delivers them.

First of all it starts its answers, so that whatever goes wrong can be said. It lives as long as its
standard input: a pipe that closes without a goodbye is how it learns that the driver was killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from typing import NoReturn

from spark_events.bridge.answers import Answers
from spark_events.bridge.pipe import RecordPipe, line_writer
from spark_events.bridge.python_program import PythonProgram
from spark_events.dispatch.process.log_lines import LogLines
from spark_events.dispatch.process.signals import leave_signals_alone
from spark_events.dispatch.process.streams import take_standard_streams
from spark_events.driver_session import DriverSession
from spark_events.errors import ConfigError, ProtocolError
from spark_events.reporters.log import DRIVER_LOGGER, severity_of

__all__ = ["main"]

_LOG = logging.getLogger(__name__)
#: How long a thread that computes keeps the others waiting for the interpreter's lock. Python's own 5 ms are meant for
#: throughput; here a reporter that spins must not cost the others that much at each of their turns.
SWITCH_SECONDS = 0.0005
#: A driver that was killed is gone for the system a moment after its pipe has closed.
_DEATH_SECONDS = 1.0


class _DriverLog(LogLines):
    """What the sidecar itself has to say goes into the driver's log."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self._answers = answers

    def tell(self, logger: str, level: int, line: str) -> None:
        if logger == DRIVER_LOGGER:
            # What a reporter hands over, not what the sidecar has to say.
            self._answers.send("event", level=severity_of(level), message=line)
        else:
            self._answers.send("log", level=logging.getLevelName(level), message=line)


def _leave_the_driver_s_group() -> None:
    try:
        os.setsid()
    except OSError:
        # Already the leader of a group of its own.
        return


def _is_gone(driver: int) -> bool:
    """Whether the driver has died, which may show a moment after its pipe has closed."""
    deadline = time.monotonic() + _DEATH_SECONDS
    while os.getppid() == driver:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def main() -> NoReturn:
    """Runs the sidecar on standard input and output, and ends the process."""
    # Of a driver that dies before this, whatever takes its children in; hence the driver says who it is.
    parent = os.getppid()
    leave_signals_alone()
    _leave_the_driver_s_group()
    sys.setswitchinterval(SWITCH_SECONDS)
    records, told = take_standard_streams()
    answers = Answers(line_writer(told))
    driver_log = _DriverLog(answers)
    driver_log.connect()
    code = 0
    program: PythonProgram | None = None
    try:
        session = DriverSession(
            RecordPipe(records),
            answers,
            lambda: _is_gone(session.driver or parent),
            log=driver_log,
            amend=lambda end: end if program is None else program.amend(end),
        )
        if session.begin():
            program = PythonProgram.of(session.driver or parent)
            session.run()
    except ConfigError as error:
        answers.send("refused", reason="; ".join(error.problems))
        code = 2
    except ProtocolError as error:
        answers.send("refused", reason=str(error))
        code = 2
    except BaseException:
        _LOG.exception("the sidecar has failed")
        code = 1
    # Not sys.exit: a reporter's library may have left threads behind that would never end.
    with contextlib.suppress(OSError, ValueError):
        # It may be closed: by who has started the driver, or by a reporter.
        sys.stderr.flush()
    os._exit(code)
