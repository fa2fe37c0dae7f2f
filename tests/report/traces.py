"""Stack traces of invented failures, and what the product says about them: class, evidence, label, line."""

from __future__ import annotations

import functools
from typing import Any

from spark_events.translate.enrichers import TypeEnricher
from spark_events.translate.failures import Diagnostics

#: File, line, function and text of the code that raises a Python exception, by the exception's type.
_CODE = {
    "ValueError": ("/jobs/payments.py", 16, "book", 'raise ValueError("no currency")'),
    "KeyError": ("/jobs/payments.py", 31, "rate_of", "return rates[currency]"),
    "TimeoutError": ("/jobs/payments.py", 48, "settle", "answer = bank.settle(payment, timeout=30)"),
}
_TASK = "Job aborted due to stage failure: Task 3 in stage 8.0 failed 4 times, most recent failure: Lost task 3.3"


def trace_of(cause: str) -> str:
    """Return the trace that Spark prints for a failure: a Python exception in a task, or else a Java exception."""
    kind = cause.partition(":")[0]
    if kind not in _CODE:
        return f"{cause}\n\tat a.B.c(B.java:1)"
    file, line, function, text = _CODE[kind]
    python = f'Traceback (most recent call last):\n  File "{file}", line {line}, in {function}\n    {text}\n{cause}\n'
    head = "org.apache.spark.api.python.PythonException"
    where = f"{_TASK} in stage 8.0 (TID 31) (h2 executor 1)"
    return f"org.apache.spark.SparkException: {where}: {head}: {python}\n\tat a.B.c(B.java:1)"


@functools.cache
def told(cause: str) -> dict[str, Any]:
    """Return the attributes that the product gives a failure."""
    return dict(Diagnostics((TypeEnricher(),)).of_text(trace_of(cause)).attributes)
