"""Exit hooks of the driver's Python: report to the JVM how the program ended.

Spark does not learn how a plain ``python app.py`` ended, and under spark-submit it learns only the exit code. The
hooks wrap ``sys.excepthook`` and ``sys.exit``, and report when the interpreter exits. ``raise SystemExit(3)`` without
``sys.exit``, ``os._exit`` and signals bypass them.

A container dies with its first process. If that is Python or Python's parent, the JVM would be killed before it has
delivered the end, so Python's exit also waits for the JVM that it started.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import subprocess
import sys
import traceback
from types import TracebackType
from typing import Any, NoReturn

from spark_events.bridge import python_stacks

#: The key that announces the hooks to the shim; not below ``spark.events.``, where every key is a setting.
REPORTS_EXIT = "spark.sparkEventsPythonReportsExit"
_DEEPEST = 20
#: Seconds that Spark may take to stop, beyond the shutdown timeout of the events.
_STOP_SECONDS = 20.0
#: Since Python 3.12, the traceback of an uncaught SystemExit begins with the outermost frame.
_TRACES_ARE_COMPLETE = sys.version_info >= (3, 12)


class _Program:
    """The last exception that may have ended this program.

    Attributes:
        patience: seconds that Python's exit may wait for the end of the JVM.
    """

    def __init__(self) -> None:
        self.patience = _STOP_SECONDS
        self._pid = os.getpid()
        self._last: BaseException | None = None
        self._excepthook = sys.excepthook

    def install(self) -> None:
        """Wrap the two functions and register the report."""
        sys.excepthook = self._uncaught
        sys.exit = self._exits
        # Exit functions run last in, first out: the wait follows the report and the program's later exit functions.
        atexit.register(self._await_jvm)
        self.report_first()

    def report_first(self) -> None:
        """Register the report so that it runs before the exit functions that are registered by now."""
        atexit.unregister(self._tell)
        atexit.register(self._tell)

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._last = error
        self._excepthook(kind, error, trace)

    def _exits(self, status: object = None, /) -> NoReturn:
        self._last = SystemExit(status)
        raise self._last

    def _tell(self) -> None:
        if os.getpid() != self._pid:
            return
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        if gateway is None:
            return
        # The JVM may already have exited.
        with contextlib.suppress(Exception):
            gateway.jvm.io.sparkevents.listener.PythonProgram.ends(json.dumps(self._account()))

    def _await_jvm(self) -> None:
        """End the JVM as Python's own end would, by closing its standard input, and wait for it."""
        from pyspark import SparkContext

        if 1 not in (os.getpid(), os.getppid()):
            # Not in a container: the JVM outlives Python, and the sidecar sees Python's exit code.
            return
        # Under spark-submit the JVM started Python, and there is no process to wait for.
        jvm = getattr(SparkContext._gateway, "proc", None)
        if os.getpid() != self._pid or jvm is None:
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            jvm.stdin.close()
            jvm.wait(self.patience)

    def _account(self) -> dict[str, Any]:
        error = self._last
        if error is None or hasattr(sys, "ps1") or sys.flags.interactive or not _left_the_program(error):
            # Normal return, or a SystemExit that bypassed sys.exit: the code is unknown.
            return {}
        if isinstance(error, KeyboardInterrupt):
            return {"signal": "SIGINT"}
        if isinstance(error, SystemExit):
            return {"exit_code": _status(error.code)}
        return {"exit_code": 1, "failure": _failure(error)}


def _left_the_program(error: BaseException) -> bool:
    """Return whether the exception left the outermost frame.

    A program that caught the exception may have continued.
    """
    trace = error.__traceback__
    if trace is None:
        # Before Python 3.12, no frame is added to a SystemExit that nothing catches.
        return not _TRACES_ARE_COMPLETE
    # A frame that catches an exception continues on another line.
    is_last = trace.tb_frame.f_lineno == trace.tb_lineno
    return is_last and (trace.tb_frame.f_back is None or not _TRACES_ARE_COMPLETE)


def _status(code: object) -> int:
    """Return the exit code that the interpreter sets for the code of a SystemExit."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _failure(error: BaseException) -> dict[str, Any]:
    """Return the exception in the form of the shim's records."""
    chain: list[dict[str, Any]] = []
    link: BaseException | None = error
    while link is not None and len(chain) < _DEEPEST:
        chain.append(_link(link))
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return {"chain": chain, "trace": "".join(traceback.format_exception(error))}


def _link(error: BaseException) -> dict[str, Any]:
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        message = str(error)
    except Exception as wrong:
        message = f"(its message is unknown: str() raises {type(wrong).__name__})"
    return {
        "type": name,
        "message": message,
        "error_class": _asked(error, "getCondition") or _asked(error, "getErrorClass"),
        "sql_state": _asked(error, "getSqlState"),
    }


def _asked(error: BaseException, method: str) -> str | None:
    """Return the result of a method of a PySpark exception, or None.

    The methods of Spark 3.5 raise if the exception has no such value.
    """
    with contextlib.suppress(Exception):
        answer = getattr(error, method)()
        return answer if isinstance(answer, str) else None
    return None


@functools.cache
def _installed() -> _Program:
    program = _Program()
    program.install()
    python_stacks.serve()
    return program


def install(shutdown_timeout: float) -> None:
    """Install the hooks, and answer the sidecar's questions for Python stacks.

    Further calls in this process only change the timeout.

    Args:
        shutdown_timeout: seconds that the last events have for delivery.
    """
    _installed().patience = shutdown_timeout + _STOP_SECONDS


def install_for(jvm: Any, shutdown_timeout: float) -> None:
    """Install the hooks and announce them to a running JVM."""
    install(shutdown_timeout)
    # The report must run before the streams stop, whose exit function may have been registered after it.
    _installed().report_first()
    jvm.io.sparkevents.listener.PythonProgram.willReport()
