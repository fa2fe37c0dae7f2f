"""Exit hooks of the driver's Python: report to the JVM how the program ended.

Spark does not know how a plain ``python app.py`` ended. Under spark-submit, Spark knows only the exit code. The hooks
wrap ``sys.excepthook`` and ``sys.exit``, and send a report when the interpreter exits. They cannot detect ``os._exit``,
signals, or ``raise SystemExit(3)`` without ``sys.exit``.

A container stops when its first process exits. If the first process is Python or Python's parent, Python's exit would
kill the JVM before the JVM has delivered the last events. Therefore Python's exit also waits for the JVM that Python
started.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import logging
import os
import subprocess
import sys
from types import TracebackType
from typing import Any, NoReturn

from spark_events.sidecar import python_stacks
from spark_events.sidecar.python_exceptions import failure_of

#: Spark property that announces the installed hooks to the shim. Its name does not start with ``spark.events.``,
#: because that prefix is reserved for settings.
REPORTS_EXIT = "spark.sparkEventsPythonReportsExit"
_LOG = logging.getLogger(__name__)
#: Time limit for Spark to stop, in addition to the shutdown timeout of the events, in seconds.
_STOP_SECONDS = 20.0
#: Since Python 3.12, the traceback of an uncaught SystemExit begins with the outermost frame.
_TRACES_ARE_COMPLETE = sys.version_info >= (3, 12)


class _Program:
    """Last exception that may have ended this program.

    Attributes:
        patience: how long Python's exit may wait for the JVM to exit, in seconds.
    """

    def __init__(self) -> None:
        self.patience = _STOP_SECONDS
        self._pid = os.getpid()
        self._last: BaseException | None = None
        self._excepthook = sys.excepthook

    def install(self) -> None:
        """Wrap ``sys.excepthook`` and ``sys.exit``, and register the report as an exit function."""
        sys.excepthook = self._uncaught
        sys.exit = self._exits
        # Python runs exit functions in reverse order of registration. Because the wait is registered first, it runs
        # last, after the report and the program's own exit functions.
        atexit.register(self._await_jvm)
        self.report_first()

    def report_first(self) -> None:
        """Register the report again, so that it runs before all exit functions registered so far."""
        atexit.unregister(self._report)
        atexit.register(self._report)

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._last = error
        self._excepthook(kind, error, trace)

    def _exits(self, status: object = None, /) -> NoReturn:
        self._last = SystemExit(status)
        raise self._last

    def _report(self) -> None:
        if os.getpid() != self._pid:
            return
        from py4j.protocol import Py4JNetworkError
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        if gateway is None:
            return
        try:
            gateway.jvm.io.sparkevents.listener.PythonProgram.ends(json.dumps(self._account()))
        except Exception as error:
            # Without a connection, the JVM has already exited and needs no report.
            level = logging.DEBUG if isinstance(error, (Py4JNetworkError, OSError)) else logging.WARNING
            _LOG.log(
                level,
                "cannot report to the JVM how this program ended, so the application's outcome may be unknown: %r",
                error,
            )

    def _await_jvm(self) -> None:
        """Close the JVM's standard input, as Python's exit would, and wait for the JVM to exit."""
        from pyspark import SparkContext

        if 1 not in (os.getpid(), os.getppid()):
            # Outside a container, do not wait: the JVM outlives Python, and the sidecar reads Python's exit code.
            return
        # Under spark-submit, the JVM started Python, so Python has no JVM to wait for.
        jvm = getattr(SparkContext._gateway, "proc", None)
        if os.getpid() != self._pid or jvm is None:
            return
        with contextlib.suppress(OSError):  # the JVM has already closed the pipe
            jvm.stdin.close()
        try:
            jvm.wait(self.patience)
        except subprocess.TimeoutExpired:
            _LOG.warning(
                "the JVM has not exited within %g s, so its last events may be missing: the container ends now;"
                " increase spark.events.shutdown.timeout",
                self.patience,
            )

    def _account(self) -> dict[str, Any]:
        error = self._last
        if error is None or hasattr(sys, "ps1") or sys.flags.interactive or not _is_uncaught(error):
            # The exit code is unknown: the main program returned, or a SystemExit was raised without sys.exit.
            return {}
        if isinstance(error, KeyboardInterrupt):
            return {"signal": "SIGINT"}
        if isinstance(error, SystemExit):
            return {"exit_code": _status(error.code)}
        return {"exit_code": 1, "failure": failure_of(error)}


def _is_uncaught(error: BaseException) -> bool:
    """Return whether the exception reached the top of the program, uncaught by any frame.

    A program that caught the exception may have continued and exited for another reason.
    """
    trace = error.__traceback__
    if trace is None:
        # Before Python 3.12, the traceback of an uncaught SystemExit lacks the outermost frame.
        return not _TRACES_ARE_COMPLETE
    # After a frame has caught an exception, the frame continues on another line.
    is_last = trace.tb_frame.f_lineno == trace.tb_lineno
    return is_last and (trace.tb_frame.f_back is None or not _TRACES_ARE_COMPLETE)


def _status(code: object) -> int:
    """Return the process exit code that corresponds to a SystemExit's code."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


@functools.cache
def _installed() -> _Program:
    program = _Program()
    program.install()
    python_stacks.serve()
    return program


def install(shutdown_timeout: float) -> None:
    """Install the hooks, and answer the sidecar's requests for Python stacks.

    Further calls in this process only change the timeout.

    Args:
        shutdown_timeout: time limit for the delivery of the last events, in seconds.
    """
    _installed().patience = shutdown_timeout + _STOP_SECONDS


def install_for(jvm: Any, shutdown_timeout: float) -> None:
    """Install the hooks and announce them to a running JVM."""
    install(shutdown_timeout)
    # Register the report again, so that it runs before the exit function that stops the streams. That function may have
    # been registered later than the first report.
    _installed().report_first()
    jvm.io.sparkevents.listener.PythonProgram.willReport()
