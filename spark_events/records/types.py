"""Types of the records that the shim sends, one per kind.

Records contain facts as Spark reports them; ``translate`` interprets these facts. A newer shim may send other fields
and kinds. Unknown fields are ignored, and a record of an unknown kind becomes :class:`Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from spark_events.records.plan_tables import PlannedNode, tables
from spark_events.records.query_progress import StreamingProgress

#: Spark's default for the maximum number of consecutive failed attempts of a stage.
MOST_FAILURES = 4
#: Names of an application's links, by Spark's keys; the shim contains the same table.
LINKS = {
    "history": "spark.yarn.historyServer.address",
    "tracking": "spark.org.apache.hadoop.yarn.server.webproxy.amfilter.AmIpFilter.param.PROXY_URI_BASES",
    "pod": "spark.kubernetes.driver.pod.name",
    "namespace": "spark.kubernetes.namespace",
    "container": "spark.kubernetes.driver.podTemplateContainerName",
    "submitInDriver": "spark.kubernetes.submitInDriver",
    "parentRun": "spark.openlineage.parentRunId",
    "parentNamespace": "spark.openlineage.parentJobNamespace",
    "parentJob": "spark.openlineage.parentJobName",
    "rootRun": "spark.openlineage.rootParentRunId",
    "rootNamespace": "spark.openlineage.rootParentJobNamespace",
    "rootJob": "spark.openlineage.rootParentJobName",
    "lineageContext": "spark.openlineage.context",
}


def _tag(class_name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in class_name).lstrip("_")


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=_tag):
    """One line of the pipe.

    ``seq`` is the number of a record that needs an acknowledgement, and 0 for other lines. ``at`` is the time at which
    the shim received the event, in milliseconds since the epoch.
    """

    seq: int = 0
    at: int = 0


class SettingRecord(msgspec.Struct, frozen=True):
    """Setting as the user wrote it, and its origin."""

    key: str
    value: str
    origin: str


#: Protocol version, which must be the same in the shim and in this package.
PROTOCOL = 1


class Hello(_Line, frozen=True, kw_only=True):
    """First line of the pipe.

    The line contains the protocol, the settings, the application's name, the driver's process and the state of the
    earlier sidecars. ``version`` is the version of the jar; empty if the shim does not run from a jar. ``sequence`` is
    the number of the first event. ``before`` contains the earlier sidecars' counters and circuit breaker states.
    ``dropped`` is the number of records that were dropped earlier. ``memory`` is what an earlier sidecar asked to
    remember.
    """

    protocol: int
    settings: list[SettingRecord]
    version: str = ""
    application: str = ""
    sequence: int = 1
    driver: int = 0
    before: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    dropped: int = 0
    memory: str = ""


class Goodbye(_Line, frozen=True, kw_only=True):
    """Last line of the pipe.

    After this line, the driver waits at most ``within_ms`` milliseconds for the sidecar to exit. ``dropped`` is the
    number of records that were dropped before they reached this sidecar or an earlier sidecar.
    """

    within_ms: int
    dropped: int = 0


class Restored(_Line, frozen=True, kw_only=True):
    """Record that an earlier sidecar has already reported; the shim repeats it to restore the state."""

    record: msgspec.Raw


class Dropped(_Line, frozen=True, kw_only=True):
    """Number of records that the shim lost, or of events that Spark lost, by kind.

    ``where`` is the place of the loss; its values are those of the event attribute ``spark.events.dropped.where``.
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
    """Exception with its causes.

    ``chain`` begins with the outermost exception and ends with the root cause. ``trace`` is the stack trace as Java
    prints it.
    """

    chain: list[ExceptionLink]
    trace: str = ""


class ApplicationStart(_Line, frozen=True, kw_only=True):
    """``SparkListenerApplicationStart`` with the submitted program.

    ``time`` is in milliseconds since the epoch. ``command`` is ``sun.java.command``. ``main_class`` is the class whose
    main method runs, if spark-submit read the class from a jar's manifest. ``namespaces`` are the second parts of the
    application's setting keys. ``links`` contains URLs, the run that submitted the application, and the driver's place
    on Kubernetes, under the names in :data:`LINKS`, and ``node``. ``settings`` contains Spark's own settings, redacted.
    ``pipeline`` is the name of the declarative pipeline that the application runs, found by the sidecar.
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
    links: dict[str, str] = {}
    settings: dict[str, str] = {}
    pipeline: str | None = None


class ApplicationEnd(_Line, frozen=True, kw_only=True):
    """``SparkListenerApplicationEnd``, with evidence of its cause.

    ``exit_code`` is the code that Spark reports; Spark also reports 0 if it does not know the code.
    ``program_exit_code`` is a code that the shim or the sidecar has confirmed. If ``provisional`` is true, a later
    record replaces this one when the outcome is known. ``stopped_before`` means that the program failed after it had
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
    #: The program's stack frame that called ``System.exit``.
    exit_caller: str | None = None
    #: Last error message that the spark-sql shell printed.
    shell_error: str | None = None


class JvmShutdown(_Line, frozen=True, kw_only=True):
    """Orderly shutdown of the JVM; the application may or may not have ended before."""


class JobStart(_Line, frozen=True, kw_only=True):
    """``SparkListenerJobStart`` with the properties that identify the job's origin.

    ``stages`` contains the ids of the job's stages, at most 1,000.
    """

    job_id: int
    time: int
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    stages: list[int] = msgspec.field(default_factory=list)


class BatchStarted(_Line, frozen=True, kw_only=True):
    """Start of the first job of a query's batch, or of the first SQL execution of a query's run.

    The shim records the batch's further jobs and stages only if one of them fails. The properties contain the query,
    the batch, the policy for several watermarks, and the tags of the jobs. The record of a SQL execution contains the
    tags of the query: those of its client and of its own session.
    """

    properties: dict[str, str] = msgspec.field(default_factory=dict)


class MemoryPeaks(msgspec.Struct, frozen=True, kw_only=True):
    """The largest memory that Spark has measured in one process of a kind, in bytes; 0: not measured.

    Spark measures at a heartbeat and when a task ends, so a process may have used more before it died.
    ``executor`` is the executor of the failed task, whose peaks these are; empty: unknown, so the peaks are the highest
    of any executor. ``executor_offheap`` is memory of the JVM outside the heap. ``executor_python`` is that of an
    executor's Python processes, measured only with ``spark.executor.processTreeMetrics.enabled``.
    """

    executor: str = ""
    driver_heap: int = 0
    executor_heap: int = 0
    executor_offheap: int = 0
    executor_python: int = 0


class JobEnd(_Line, frozen=True, kw_only=True):
    """``SparkListenerJobEnd``; a job without a failure has succeeded.

    ``ui`` is the address of the driver's UI. ``peaks`` is None if the job succeeded.
    """

    job_id: int
    time: int
    failure: Failure | None = None
    peaks: MemoryPeaks | None = None
    ui: str = ""


class SqlExecutionStart(_Line, frozen=True, kw_only=True):
    """``SparkListenerSQLExecutionStart`` of an execution outside micro-batches.

    ``root_id`` and ``description`` belong to the outermost enclosing execution. ``plan`` contains those nodes of the
    physical plan that name tables and paths. Secrets in their texts are redacted, and the texts have at most 4,096
    characters in total. ``tags`` and ``group`` are those of the execution's jobs, if the Spark version
    reports them.
    """

    execution_id: int
    time: int
    root_id: int | None = None
    description: str | None = None
    plan: list[PlannedNode] = []
    tags: str = ""
    group: str | None = None

    @property
    def reads(self) -> list[str]:
        """Tables and paths that the execution reads, each once."""
        return tables(self.plan)[0]

    @property
    def writes(self) -> list[str]:
        """Tables and paths that the execution writes, each once."""
        return tables(self.plan)[1]


class SqlExecutionEnd(_Line, frozen=True, kw_only=True):
    """``SparkListenerSQLExecutionEnd`` of a failed execution, or of the first success of a job group after a failure.

    ``root_id`` and ``description`` belong to the outermost enclosing execution.
    """

    execution_id: int
    time: int
    root_id: int | None = None
    description: str | None = None
    error: str | None = None


class Insertion(msgspec.Struct, frozen=True, kw_only=True):
    """One insertion of a statement with several: its command, redacted, and its metrics by Spark's names."""

    node: str
    metrics: dict[str, int] = {}


class DataWritten(_Line, frozen=True, kw_only=True):
    """Success of an outermost SQL execution that has written data, or of a write within a micro-batch.

    ``started`` is the time of the execution's start. ``nodes`` are the commands of the execution and of its nested
    executions, redacted, by execution id. ``metrics`` are the write's metrics that Spark reported, by Spark's names.
    ``insertions`` are those of a statement with several, which has no ``metrics``; empty for other writes.
    ``query_id``, ``run_id`` and ``batch_id`` are those of the micro-batch; None outside micro-batches.
    """

    execution_id: int
    time: int
    started: int
    nodes: dict[int, str] = {}
    metrics: dict[str, int] = {}
    insertions: list[Insertion] = []
    query_id: str | None = None
    run_id: str | None = None
    batch_id: int | None = None


class StatementStarted(_Line, frozen=True, kw_only=True):
    """``SparkListenerThriftServerOperationStart``: the Thrift server starts a statement.

    ``statement_id`` is the job group of the statement's jobs. ``session_id``, ``user`` and ``statement`` describe the
    client's session and the statement's text; "" if unknown. ``started`` is the time of the start, in milliseconds
    since the epoch.
    """

    statement_id: str
    time: int
    started: int = 0
    session_id: str = ""
    user: str = ""
    statement: str = ""


class StatementTimedOut(StatementStarted, frozen=True, kw_only=True):
    """``SparkListenerThriftServerOperationTimeout``: the Thrift server cancels a statement after its query timeout."""


class StatementFailed(StatementStarted, frozen=True, kw_only=True):
    """``SparkListenerThriftServerOperationError`` or ``SparkListenerConnectOperationFailed``: a statement failed.

    ``tag`` is the tag of the operation's jobs in Spark Connect, where ``statement_id`` is the operation's id; None for
    the Thrift server. ``error`` is the message, and ``trace`` the stack trace, which only the Thrift server reports.
    """

    tag: str | None = None
    error: str = ""
    trace: str = ""


class PipelineCommandStarted(StatementStarted, frozen=True, kw_only=True):
    """``SparkListenerConnectOperationStarted`` of a command that defines or runs a declarative pipeline.

    ``statement`` is the command in the text format of protocol buffers, without the plan that it contains.
    """


class PipelineCommandEnded(StatementStarted, frozen=True, kw_only=True):
    """``SparkListenerConnectOperationFinished`` of such a command, which has succeeded."""


class PipelineCommandCancelled(StatementStarted, frozen=True, kw_only=True):
    """``SparkListenerConnectOperationCanceled`` of such a command, for example because its client was interrupted."""


class StageSubmitted(_Line, frozen=True, kw_only=True):
    """``SparkListenerStageSubmitted``: an attempt of a stage begins."""

    stage_id: int
    attempt: int
    name: str
    tasks: int
    time: int
    properties: dict[str, str] = msgspec.field(default_factory=dict)


class StageTasks(_Line, frozen=True, kw_only=True):
    """Change of a stage attempt's status, with its task counts.

    ``failed`` is the number of failed task attempts.
    """

    stage_id: int
    attempt: int
    time: int
    status: str
    tasks: int
    running: int
    finished: int
    failed: int


class TaskTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the task attempts that ended; times in milliseconds.

    It has many fields, because it is one record of the shim.

    ``failed`` and ``killed`` count attempts. ``speculative`` counts second copies of running tasks when they start,
    because a copy that loses may end after its stage, and ``speculative_won`` counts those that finished first.
    ``task_ms`` is the total time from launch to finish of all attempts; during this time, an attempt occupies executor
    cores. ``retried_ms`` is the same total for failed and killed attempts only. Spark sends no metrics for an attempt
    whose executor was lost, so the other sums exclude such attempts. ``scheduler_delay_ms`` is computed as in Spark's
    UI. ``peak_execution_memory`` is the largest value of any attempt, in bytes.
    """

    tasks: int = 0
    failed: int = 0
    killed: int = 0
    speculative: int = 0
    speculative_won: int = 0
    task_ms: int = 0
    retried_ms: int = 0
    run_ms: int = 0
    cpu_ms: int = 0
    gc_ms: int = 0
    deserialize_ms: int = 0
    scheduler_delay_ms: int = 0
    result_serialize_ms: int = 0
    getting_result_ms: int = 0
    result_bytes: int = 0
    input_bytes: int = 0
    input_rows: int = 0
    output_bytes: int = 0
    output_rows: int = 0
    shuffle_read_bytes: int = 0
    shuffle_read_rows: int = 0
    fetch_wait_ms: int = 0
    shuffle_write_bytes: int = 0
    shuffle_write_rows: int = 0
    shuffle_write_ms: int = 0
    spill_memory_bytes: int = 0
    spill_disk_bytes: int = 0
    peak_execution_memory: int = 0


class StageTotals(TaskTotals, frozen=True, kw_only=True):
    """Totals of a stage attempt, from its submission to its completion.

    Tasks that finish after the completion are not included. A duration is the time from launch to finish of a
    successful task attempt. Quantiles are at most 0.8 % below the exact value and never below the minimum
    (``event_log/sketch.py``). ``slowest_*`` describe the successful attempt with the longest duration.
    ``largest_input_bytes`` and ``median_input_bytes`` are the input plus shuffle read of one successful attempt.
    ``started`` and ``ended`` are milliseconds since the epoch; ``started`` is 0 if Spark sent no time. ``cpus`` is
    ``spark.task.cpus``, the number of cores that a task occupies.
    """

    cpus: int = 1
    started: int = 0
    ended: int = 0
    duration_p50_ms: int = 0
    duration_p95_ms: int = 0
    duration_max_ms: int = 0
    slowest_task: int = -1
    slowest_attempt: int = 0
    slowest_executor: str = ""
    slowest_host: str = ""
    largest_input_bytes: int = 0
    median_input_bytes: int = 0


class ApplicationTotals(_Line, frozen=True, kw_only=True):
    """Cumulative totals of the application.

    It has many fields, because it is one record of the shim.

    The shim sends the totals every ``events.summary.interval``, and when the application ends (``final``). Because the
    shim computes the totals, a restart of the sidecar does not reset them. They include micro-batches, although the
    jobs and stages of micro-batches produce no records. ``totals`` includes running stages. ``jobs`` and ``stages``
    count the jobs and stage attempts that ended; those that were cancelled have not failed. ``busy_ms`` is
    ``spark.task.cpus`` times the sum of two times: ``totals.task_ms``, and the time since launch of all running task
    attempts in running stages; at most ``core_ms``.
    ``core_ms`` is the integral of the number of executor cores over time; for a local application, the driver's cores
    count. For ``core_ms``, ``cores_now`` and the memory peaks, zero means unknown: the listener was added after
    executors, or no measurement arrived.
    """

    time: int
    final: bool = False
    jobs: int = 0
    jobs_failed: int = 0
    jobs_cancelled: int = 0
    stages: int = 0
    stages_failed: int = 0
    stages_cancelled: int = 0
    totals: TaskTotals = msgspec.field(default_factory=TaskTotals)
    busy_ms: int = 0
    core_ms: int = 0
    cores_now: int = 0
    peak_driver_heap_bytes: int = 0
    peak_executor_heap_bytes: int = 0
    peak_driver_offheap_bytes: int = 0
    peak_executor_offheap_bytes: int = 0
    peak_driver_python_bytes: int = 0
    peak_executor_python_bytes: int = 0


class StageCompleted(_Line, frozen=True, kw_only=True):
    """Record of a ``SparkListenerStageCompleted``.

    A stage attempt without a failure reason has succeeded. ``most_failures`` is ``spark.stage.maxConsecutiveAttempts``,
    the number of consecutive attempts that may fail. ``task_failure`` is the stack trace of the failed task whose
    message is the reason for the stage's failure. ``lost_executor`` and ``lost_host`` identify the executor whose
    shuffle output a task could not fetch. ``totals`` is None if the stage began before the listener was added, and
    ``peaks`` if the attempt succeeded.
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
    totals: StageTotals | None = None
    peaks: MemoryPeaks | None = None


class ExecutorAdded(_Line, frozen=True, kw_only=True):
    """Record of a ``SparkListenerExecutorAdded``."""

    executor_id: str
    time: int
    host: str = ""
    cores: int = 0


class ExecutorRemoved(_Line, frozen=True, kw_only=True):
    """``SparkListenerExecutorRemoved``, with the number of tasks that were running on the executor and their stages."""

    executor_id: str
    time: int
    reason: str | None = None
    host: str | None = None
    tasks: int = 0
    stages: list[int] = []


class Exclusion(_Line, frozen=True, kw_only=True):
    """An executor or a node that Spark excludes after failures, or includes again.

    Either ``executor_id`` or ``host`` is given. ``stage_id`` is None if the exclusion concerns the application.
    ``failures`` is the number of failed tasks of the executor, or of failed executors of the node.
    """

    time: int
    excluded: bool
    executor_id: str | None = None
    host: str | None = None
    failures: int = 0
    stage_id: int | None = None
    attempt: int = 0


class Unschedulable(_Line, frozen=True, kw_only=True):
    """A stage attempt with a task that no executor may run, because of exclusions; or its end. Never in event logs."""

    time: int
    unschedulable: bool
    stage_id: int
    attempt: int = 0


class LongestTask(msgspec.Struct, frozen=True):
    """The longest-running task of a stage; ``time`` is its start, in milliseconds since the epoch."""

    task: int
    executor: str
    host: str
    time: int


class RunningStage(msgspec.Struct, frozen=True, kw_only=True):
    """Running stage attempt, with its task counts."""

    stage_id: int
    attempt: int
    name: str
    tasks: int
    time: int
    running: int = 0
    finished: int = 0
    properties: dict[str, str] = {}
    longest: LongestTask | None = None


class PythonFrame(NamedTuple):
    """Frame of a Python stack."""

    file: str
    line: int
    function: str


class QueryThread(msgspec.Struct, frozen=True, kw_only=True):
    """Thread of a running query.

    ``busy_since`` is 0 while the query waits for its next trigger or for data. ``frames`` are
    ``package.Class.method(File:line)``, innermost first, without frames that do not help to locate the thread. If the
    thread waits for a Python function, ``python`` contains the stacks of all Python functions that the JVM is calling,
    innermost frame first.
    """

    run_id: str
    busy_since: int = 0
    continuous: bool = False
    frames: list[str] = []
    python: list[list[PythonFrame]] = []

    @property
    def is_in_python(self) -> bool:
        """Whether the thread waits for a Python function."""
        return any(frame.startswith("py4j.reflection.PythonProxyHandler.") for frame in self.frames)


class Inspection(_Line, frozen=True, kw_only=True):
    """Answer from the shim to a request for the running work.

    ``asked`` and ``overdue`` repeat the values of the request. ``idle_since`` is the time at which the last task ended;
    0 while a task runs. ``executors`` is -1 if the number is unknown because the listener was added after executors.
    Each element of ``jobs`` is a job id, followed by the ids of the job's stages.
    """

    asked: int
    overdue: str = ""
    queries: list[QueryThread] = []
    jobs: list[list[int]] = []
    stages: list[RunningStage] = []
    idle_since: int = 0
    executors: int = -1
    cores: int = 0


class StageWaited(_Line, frozen=True, kw_only=True):
    """Time during which the tasks of a stage attempt waited and no task of any stage ran.

    The wait lasted from ``since`` to ``time``. Only a replay creates this record.
    """

    stage: RunningStage
    since: int
    time: int
    executors: int = -1
    cores: int = 0


class QueryStarted(_Line, frozen=True, kw_only=True):
    """Record of a ``QueryStartedEvent``; ``tags`` are those of the query's jobs, in Spark 4 and later."""

    id: str
    run_id: str
    name: str | None
    timestamp: str
    tags: str = ""


class QueryIdle(_Line, frozen=True, kw_only=True):
    """``QueryIdleEvent`` (Spark 3.5 and later), repeated while the query finds no data."""

    id: str
    run_id: str
    timestamp: str
    committed_through: int | None = None


class QueryTerminated(_Line, frozen=True, kw_only=True):
    """``QueryTerminatedEvent``; a query without an exception was stopped or has processed all its data.

    ``ui`` is the address of the driver's UI; ``committed_through`` as in :class:`QueryProgress`.

    Spark's event contains no time. In an event log, the query ended between ``at`` and ``until``, the times of the
    preceding and the following line.
    """

    id: str
    run_id: str
    exception: str | None = None
    error_class: str | None = None
    until: int | None = None
    ui: str = ""
    committed_through: int | None = None


class QueryProgress(_Line, frozen=True, kw_only=True):
    """Record of a ``QueryProgressEvent``.

    ``asynchronous`` states whether Spark may write the batch's commit after this report; None if unknown, as in an
    event log and for a Spark Connect client. If so, ``committed_through`` is the batch of the last entry that Spark has
    written in ``commits/``; None if unknown.
    """

    progress: StreamingProgress
    asynchronous: bool | None = None
    committed_through: int | None = None


class AddedEvent(msgspec.Struct, frozen=True):
    """Event that a user's program adds.

    The program assigns ``id``, which is unique in the application.
    """

    id: str
    name: str
    class_scope: str
    body: str = ""
    severity: str = "INFO"
    time: int = 0
    attributes: dict[str, Any] = {}


class Added(_Line, frozen=True, kw_only=True):
    """Call to ``io.sparkevents.Events.add`` by a user's program."""

    event: AddedEvent


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """Line of a kind or format that this version does not know."""

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
    | SqlExecutionStart
    | SqlExecutionEnd
    | DataWritten
    | StatementStarted
    | StatementTimedOut
    | StatementFailed
    | PipelineCommandStarted
    | PipelineCommandEnded
    | PipelineCommandCancelled
    | QueryStarted
    | QueryIdle
    | QueryTerminated
    | QueryProgress
    | StageSubmitted
    | StageTasks
    | StageCompleted
    | ApplicationTotals
    | ExecutorAdded
    | ExecutorRemoved
    | Exclusion
    | Unschedulable
    | Inspection
    | Added
)


#: Errors that the decoder raises for a line that is not JSON, has another format, is not UTF-8, or is nested too
#: deeply.
_NOT_UNDERSTOOD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


_known: Callable[[bytes | memoryview | msgspec.Raw], Record] = msgspec.json.Decoder(Record).decode
_unknown = msgspec.json.Decoder(Unknown).decode


def decode(line: bytes | memoryview | msgspec.Raw) -> Record | Unknown:
    """Decode one line to a record, and raise no error, whatever the line contains.

    An unknown line keeps its number, so that the line can be acknowledged.
    """
    try:
        return _known(line)
    except _NOT_UNDERSTOOD:
        pass
    try:
        return _unknown(line)
    except _NOT_UNDERSTOOD:
        return Unknown()
