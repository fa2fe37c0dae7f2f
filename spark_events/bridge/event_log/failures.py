"""Exceptions in the event log: Spark writes a job's without type and causes; its tasks know more."""

from __future__ import annotations

import re
from collections import OrderedDict

from spark_events.bridge.event_log.shapes import ExceptionJson, FrameJson, TaskEndReason
from spark_events.bridge.records import ExceptionLink, Failure

__all__ = ["LIMIT", "JobFailures", "cut"]

#: The shim cuts texts to the same size (``Text.java``).
LIMIT = 64 * 1024
_REMEMBERED = 64

_TASK = re.compile(r"most recent failure: .*?\(TID (\d+)")
# What only the scheduler says, always as this type.
_SPARK_EXCEPTION = re.compile(r"Job aborted|Job \d+ cancelled|\[SPARK_JOB_CANCELLED\]|Job cancelled because")


def cut(text: str) -> str:
    """Keeps the beginning and a quarter for the end, as ``Text.java`` does."""
    if len(text) <= LIMIT:
        return text
    tail = LIMIT // 4
    return f"{text[: LIMIT - tail]}\n... [{len(text) - LIMIT} characters cut] ...\n{text[-tail:]}"


class JobFailures:
    """The last exceptions of tasks, for the jobs that fail of them."""

    def __init__(self) -> None:
        self._failures: OrderedDict[int, tuple[str, str, str]] = OrderedDict()

    def note(self, task_id: int, reason: TaskEndReason) -> str:
        """Remember the exception of a task; return its stack trace."""
        trace = cut(reason.full_stack_trace or f"{reason.class_name}: {reason.description}\n")
        self._failures[task_id] = (reason.class_name, reason.description or "", trace)
        self._failures.move_to_end(task_id)
        if len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)
        return trace

    def of_job(self, exception: ExceptionJson) -> Failure:
        """A job's failure, with the type and the causes that can be told."""
        message = exception.message or ""
        kind, causes = self._type_and_causes(message)
        head = f"{kind}: {message}" if kind else message
        trace = "\n".join([head, *map(_frame, exception.stack_trace)]) + f"\n{causes}"
        return Failure([ExceptionLink(kind, cut(message))], cut(trace))

    def _type_and_causes(self, message: str) -> tuple[str, str]:
        if _SPARK_EXCEPTION.match(message):
            task = _TASK.search(message)
            known = self._failures.get(int(task[1])) if task else None
            return "org.apache.spark.SparkException", f"Caused by: {known[2]}" if known else ""
        for kind, description, trace in reversed(self._failures.values()):
            # Since Spark 4 an error of the user's is handed on as it is.
            if description == message:
                _, found, causes = trace.partition("\nCaused by: ")
                return kind, f"Caused by: {causes}" if found else ""
        return "", ""


def _frame(frame: FrameJson) -> str:
    """As Java prints it."""
    file, line = frame.file_name, frame.line_number
    if line == -2:
        place = "Native Method"
    elif file is None:
        place = "Unknown Source"
    else:
        place = f"{file}:{line}" if line >= 0 else file
    return f"\tat {frame.declaring_class}.{frame.method_name}({place})"
