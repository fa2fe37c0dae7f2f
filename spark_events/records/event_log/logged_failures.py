"""Exceptions of failed jobs and stages in the event log, completed from the tasks' exceptions.

Only the tasks' exceptions contain the type and the causes.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import NamedTuple

from spark_events.records.event_log.shapes import ExceptionJson, FrameJson, TaskEndReason
from spark_events.records.types import ExceptionLink, Failure

#: Maximum length of strings in characters, as in the shim (``Text.java``).
LIMIT = 64 * 1024
SHORT_LIMIT = 4_096
_REMEMBERED = 64

_TASK = re.compile(r"most recent failure: .{0,99}?\(TID (\d+)")
# Messages from Spark's scheduler, which always raises a SparkException.
_SPARK_EXCEPTION = re.compile(r"Job aborted|Job \d+ cancelled|\[SPARK_JOB_CANCELLED\]|Job cancelled because")


def beginning(text: str) -> str:
    """Return the beginning of a local property or of a description, like ``Text.java``.

    >>> len(beginning("x" * 1_000_000))
    4123
    """
    if len(text) <= SHORT_LIMIT:
        return text
    return f"{text[:SHORT_LIMIT]}\n... [{len(text) - SHORT_LIMIT} characters cut]"


def cut(text: str) -> str:
    """Shorten a long string by removing its middle, like ``Text.java``.

    A quarter of the limit is used for the last characters.
    """
    if len(text) <= LIMIT:
        return text
    tail = LIMIT // 4
    return f"{text[: LIMIT - tail]}\n... [{len(text) - LIMIT} characters cut] ...\n{text[-tail:]}"


class _TaskFailure(NamedTuple):
    """Exception of a task; ``stage`` is the stage's id and the number of its attempt."""

    stage: tuple[int, int]
    kind: str
    message: str
    trace: str


class Failures:
    """Recent exceptions raised by tasks, to complete the failures of jobs and stages."""

    def __init__(self) -> None:
        self._failures: OrderedDict[int, _TaskFailure] = OrderedDict()

    def note(self, task_id: int, stage: tuple[int, int], reason: TaskEndReason) -> None:
        """Store the exception of a task of a stage attempt."""
        trace = cut(reason.full_stack_trace or f"{reason.class_name}: {reason.description}\n")
        self._failures[task_id] = _TaskFailure(stage, reason.class_name, reason.description or "", trace)
        self._failures.move_to_end(task_id)
        if len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)

    def trace_of_task(self, stage: tuple[int, int], message: str) -> str | None:
        """Return the stack trace of the latest task of a stage attempt that failed with this message."""
        found = (one.trace for one in reversed(self._failures.values()) if (one.stage, one.message) == (stage, message))
        return next(found, None)

    def of_job(self, exception: ExceptionJson) -> Failure:
        """Return the failure of a job; add type and causes if one of its tasks failed with the same exception."""
        message = exception.message or ""
        kind, causes = self._type_and_causes(message)
        head = f"{kind}: {message}" if kind else message
        trace = "\n".join([head, *map(_frame, exception.stack_trace)]) + f"\n{causes}"
        return Failure([ExceptionLink(kind, cut(message))], cut(trace))

    def _type_and_causes(self, message: str) -> tuple[str, str]:
        if _SPARK_EXCEPTION.match(message):
            task = _TASK.search(message)
            known = self._failures.get(int(task[1])) if task else None
            return "org.apache.spark.SparkException", f"Caused by: {known.trace}" if known else ""
        for failure in reversed(self._failures.values()):
            # Since Spark 4, an error raised by the user's code becomes the job's exception without a wrapper.
            if failure.message == message:
                # The message itself may quote a cause.
                _, found, causes = failure.trace[len(failure.kind) + len(message) :].partition("\nCaused by: ")
                return failure.kind, f"Caused by: {causes}" if found else ""
        return "", ""


def _frame(frame: FrameJson) -> str:
    """Format a frame as Java does."""
    file, line = frame.file_name, frame.line_number
    if line == -2:
        location = "Native Method"
    elif file is None:
        location = "Unknown Source"
    else:
        location = f"{file}:{line}" if line >= 0 else file
    return f"\tat {frame.declaring_class}.{frame.method_name}({location})"
