"""Exceptions of the driver's Python, in the format of the shim's records.

``spark-events run`` also loads this file into programs whose Python is of another version, or lacks spark-events.
Therefore it imports only the standard library, and is valid in Python 3.8.

The alternative, to read the traceback from the program's standard error through a pipe, was rejected: standard error
would not be a terminal, the driver's JVM and the sidecar outlive the program and would write to a closed pipe, and a
printed traceback lacks Spark's error conditions.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from typing import Any

#: Variable with the path of the file for the exception that ends a program.
VARIABLE = "SPARK_EVENTS_EXCEPTION"
#: Exit code of a program that an exception has ended.
UNCAUGHT = 1
#: Set by the script spark-submit, and by spark-submit for the Python that it starts.
_BELOW_SUBMIT, _STARTED_BY_SUBMIT = "SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT"
_DEEPEST = 20


def failure_of(error: BaseException) -> dict[str, Any]:
    """Return the exception as JSON in the format of the shim's records."""
    chain: list[dict[str, Any]] = []
    link: BaseException | None = error
    while link is not None and len(chain) < _DEEPEST:
        chain.append(_link(link))
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return {"chain": chain, "trace": "".join(traceback.format_exception(type(error), error, error.__traceback__))}


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
        "error_class": _call_method(error, "getCondition") or _call_method(error, "getErrorClass"),
        "sql_state": _call_method(error, "getSqlState"),
    }


def _call_method(error: BaseException, method: str) -> str | None:
    """Call a method of a PySpark exception, and return the result or None.

    In Spark 3.5, these methods raise an error if the exception lacks the value.
    """
    with contextlib.suppress(Exception):
        answer = getattr(error, method)()
        return answer if isinstance(answer, str) else None
    return None


def record_uncaught() -> None:
    """Record the exception that ends this program in the file that the variable names.

    The file describes the last Python program that the command starts: a new program deletes it. Processes that this
    program starts are not programs of the command, and neither are Spark's workers and the sidecar below spark-submit.
    """
    path = os.environ.pop(VARIABLE, None)
    if path is None or (_BELOW_SUBMIT in os.environ and _STARTED_BY_SUBMIT not in os.environ):
        return
    with contextlib.suppress(OSError):
        os.unlink(path)
    pid, show = os.getpid(), sys.excepthook

    def uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        show(kind, error, trace)
        if os.getpid() == pid and isinstance(error, Exception):
            # The command works without the file, and this program must not end in another way because of it.
            with contextlib.suppress(Exception):
                _write(path, json.dumps(failure_of(error)))

    sys.excepthook = uncaught


def _write(path: str, text: str) -> None:
    """Write a file at once, so that a program that is killed meanwhile leaves no part of it."""
    with open(f"{path}.part", "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    os.replace(f"{path}.part", path)
