"""The records that the shim sends, one type a kind.

They say what Spark said and nothing more: what it means is decided in ``translate``. A newer shim may
send fields and kinds that are not here; fields are skipped, kinds are :class:`Unknown`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from spark_events.bridge.progress import Progress

__all__ = [
    "MOST_FAILURES",
    "PROTOCOL",
    "Added",
    "AddedEvent",
    "ApplicationEnd",
    "ApplicationStart",
    "BatchStarted",
    "Decoder",
    "Dropped",
    "ExceptionLink",
    "ExecutorRemoved",
    "Failure",
    "Goodbye",
    "Hello",
    "JobEnd",
    "JobStart",
    "JvmShutdown",
    "QueryIdle",
    "QueryProgress",
    "QueryStarted",
    "QueryTerminated",
    "Record",
    "Restored",
    "SettingRecord",
    "SqlExecutionEnd",
    "StageCompleted",
    "StageSubmitted",
    "StageTasks",
    "Unknown",
]

#: Of a stage, one after the other, as Spark has it unless it is told otherwise.
MOST_FAILURES = 4


def _tag(class_name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in class_name).lstrip("_")


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=_tag):
    """One line of the pipe.

    ``seq`` numbers the records that are acknowledged; it is 0 where nothing is.
    ``at`` is the driver's clock when the shim saw it, in milliseconds since the epoch.
    """

    seq: int = 0
    at: int = 0


class SettingRecord(msgspec.Struct, frozen=True):
    """One setting as the user gave it, and where."""

    key: str
    value: str
    origin: str


#: What the shim and this package must agree on.
PROTOCOL = 1


class Hello(_Line, frozen=True, kw_only=True):
    """The first line: protocol, settings, the application's name, the driver's process, and of the predecessors where
    they stopped, what their reporters had counted and how the circuit breakers stood."""

    protocol: int
    settings: list[SettingRecord]
    application: str = ""
    sequence: int = 1
    restarts: int = 0
    driver: int = 0
    before: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)


class Goodbye(_Line, frozen=True, kw_only=True):
    """The last line: everything has been said; the driver waits so many milliseconds for the end.

    It knows how many records were dropped before they came here, also while there was a predecessor.
    """

    within_ms: int
    dropped: int = 0


class Restored(_Line, frozen=True, kw_only=True):
    """A record that a predecessor has dealt with, told again so that its meaning is known."""

    record: msgspec.Raw


class Dropped(_Line, frozen=True, kw_only=True):
    """Records, or events of Spark's, were lost: how many of each kind, and ``where``.

    Where: as ``dropped.where`` of the event has it.
    """

    records: dict[str, int]
    where: str = "handoff"


class ExceptionLink(msgspec.Struct, frozen=True):
    """One exception of a chain."""

    type: str
    message: str | None = None
    error_class: str | None = None
    sql_state: str | None = None


class Failure(msgspec.Struct, frozen=True):
    """An exception: the chain from the outermost to the root, and the trace as Java prints it."""

    chain: list[ExceptionLink]
    trace: str = ""


class ApplicationStart(_Line, frozen=True, kw_only=True):
    """``SparkListenerApplicationStart``, and what was submitted; ``time`` in milliseconds since the epoch.

    ``command`` is ``sun.java.command``. ``main_class`` is the class whose main method runs, where spark-submit read it
    from a jar's manifest. ``namespaces`` are the second words of the application's settings.
    """

    app_id: str | None
    app_name: str
    attempt_id: str | None
    user: str
    time: int
    spark_version: str
    host: str = ""
    command: str = ""
    main_class: str = ""
    py_files: list[str] = []
    namespaces: list[str] = []


class ApplicationEnd(_Line, frozen=True, kw_only=True):
    """``SparkListenerApplicationEnd``, and the evidence of its cause.

    ``exit_code`` is Spark's, which says 0 where it does not know; ``program_exit_code`` is known. A later record
    replaces a ``provisional`` end when the outcome is known; ``stopped_before``: the program failed after it had
    stopped its SparkContext. ``exit_signal`` is the signal that killed the driver's Python.
    """

    time: int
    ending: str
    exit_code: int | None = None
    program_exit_code: int | None = None
    exit_signal: str | None = None
    provisional: bool = False
    stopped_before: bool = False
    failure: Failure | None = None
    #: The last message that the spark-sql shell printed as an error.
    shell_error: str | None = None


class JvmShutdown(_Line, frozen=True, kw_only=True):
    """The JVM goes down in an orderly way, whether or not the application has ended."""


class JobStart(_Line, frozen=True, kw_only=True):
    """``SparkListenerJobStart``, with those of its properties that say what it belongs to."""

    job_id: int
    time: int
    properties: dict[str, str] = msgspec.field(default_factory=dict)


class BatchStarted(_Line, frozen=True, kw_only=True):
    """A query runs the first job of a batch; the shim records no other of its jobs and stages unless one fails.

    Its properties name the query, the batch and the policy of several watermarks.
    """

    properties: dict[str, str] = msgspec.field(default_factory=dict)


class JobEnd(_Line, frozen=True, kw_only=True):
    """``SparkListenerJobEnd``; without a failure it has succeeded."""

    job_id: int
    time: int
    failure: Failure | None = None


class SqlExecutionEnd(_Line, frozen=True, kw_only=True):
    """``SparkListenerSQLExecutionEnd`` of an execution that failed, or of the first that succeeded after a failure.

    ``root_id`` and ``description`` are those of the outermost execution around it.
    """

    execution_id: int
    time: int
    root_id: int | None = None
    description: str | None = None
    error: str | None = None


class StageSubmitted(_Line, frozen=True, kw_only=True):
    """``SparkListenerStageSubmitted``: an attempt of a stage begins."""

    stage_id: int
    attempt: int
    name: str
    tasks: int
    time: int
    properties: dict[str, str] = msgspec.field(default_factory=dict)


class StageTasks(_Line, frozen=True, kw_only=True):
    """An edge in the count of a stage attempt's tasks; ``failed`` counts attempts of tasks."""

    stage_id: int
    attempt: int
    time: int
    status: str
    tasks: int
    running: int
    finished: int
    failed: int


class StageCompleted(_Line, frozen=True, kw_only=True):
    """``SparkListenerStageCompleted``; without a reason it has succeeded.

    ``most_failures`` is ``spark.stage.maxConsecutiveAttempts``: so many attempts may fail one after the other.
    ``task_failure`` is the stack trace of a task of this attempt that failed with the reason as its message.
    ``lost_executor`` and ``lost_host`` say whose shuffle output a task could not fetch.
    """

    stage_id: int
    attempt: int
    name: str
    tasks: int
    time: int
    failed: int = 0
    failure_reason: str | None = None
    task_failure: str | None = None
    lost_executor: str | None = None
    lost_host: str | None = None
    most_failures: int = MOST_FAILURES


class ExecutorRemoved(_Line, frozen=True, kw_only=True):
    """``SparkListenerExecutorRemoved``."""

    executor_id: str
    time: int
    reason: str | None = None


class QueryStarted(_Line, frozen=True, kw_only=True):
    """``QueryStartedEvent``."""

    id: str
    run_id: str
    name: str | None
    timestamp: str


class QueryIdle(_Line, frozen=True, kw_only=True):
    """``QueryIdleEvent`` (3.5 and later): nothing to do, said again and again."""

    id: str
    run_id: str
    timestamp: str


class QueryTerminated(_Line, frozen=True, kw_only=True):
    """``QueryTerminatedEvent``; without an exception it was stopped, or had nothing left to do.

    Spark does not date it. In a log, it happened between ``at`` and ``until``, the times of what is around it.
    """

    id: str
    run_id: str
    exception: str | None = None
    error_class: str | None = None
    until: int | None = None


class QueryProgress(_Line, frozen=True, kw_only=True):
    """``QueryProgressEvent``."""

    progress: Progress


class AddedEvent(msgspec.Struct, frozen=True):
    """An event as a program has made it; ``id`` is the program's own, unique in the application."""

    id: str
    name: str
    class_scope: str
    body: str = ""
    severity: str = "INFO"
    time: int = 0
    attributes: dict[str, Any] = {}


class Added(_Line, frozen=True, kw_only=True):
    """A program has added an event of its own, by ``io.sparkevents.Events.add``."""

    event: AddedEvent


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a kind, or of a shape, that this version does not know."""

    seq: int = 0
    kind: str = ""
    at: int = 0


Record: TypeAlias = (
    Hello
    | Goodbye
    | Restored
    | Dropped
    | ApplicationStart
    | ApplicationEnd
    | JvmShutdown
    | BatchStarted
    | JobStart
    | JobEnd
    | SqlExecutionEnd
    | QueryStarted
    | QueryIdle
    | QueryTerminated
    | QueryProgress
    | StageSubmitted
    | StageTasks
    | StageCompleted
    | ExecutorRemoved
    | Added
)


#: A line that is no JSON, of another shape, no UTF-8, or nested deeper than Python goes.
_NOT_UNDERSTOOD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Decoder:
    """Lines to records; never raises for what a line holds."""

    def __init__(self) -> None:
        self._known = msgspec.json.Decoder(Record)
        self._unknown = msgspec.json.Decoder(Unknown)

    def decode(self, line: bytes | memoryview | msgspec.Raw) -> Record | Unknown:
        """One line; what cannot be understood keeps its number, so that it can be acknowledged."""
        try:
            record: Record = self._known.decode(line)
            return record
        except _NOT_UNDERSTOOD:
            pass
        try:
            return self._unknown.decode(line)
        except _NOT_UNDERSTOOD:
            return Unknown()
