"""Types of the lines of Spark's event log, one per kind, limited to the used fields.

Names are from Spark's ``JsonProtocol``, versions 2 to 4. A field that some versions do not write has the same default
as in Spark's own reader.
"""

from __future__ import annotations

import msgspec

from spark_events.records.query_progress import StreamingProgress

_WORDS = {"id": "ID", "of": "of", "cpu": "CPU", "gc": "GC", "jvm": "JVM"}


def _spark(field: str) -> str:
    return " ".join(_WORDS.get(word, word.capitalize()) for word in field.split("_"))


class _Core(msgspec.Struct, gc=False, rename=_spark):
    """Base of core events; the field ``stage_attempt_id`` is ``Stage Attempt ID`` in the log."""


class _Streaming(msgspec.Struct, gc=False, rename="camel"):
    """Base of streaming and SQL events, which Jackson writes; the field ``run_id`` is ``runId`` in the log."""


class EventKind(msgspec.Struct, gc=False):
    """Name of an event, at any position in the line."""

    name: str = msgspec.field(name="Event")


class LogStartLine(_Core):
    spark_version: str


class RolloverLine(_Core):
    """First line of each file of Databricks."""

    rollover_number: int


class _SystemProperties(msgspec.Struct, gc=False):
    command: str = msgspec.field(name="sun.java.command", default="")


class EnvironmentLine(_Core):
    spark_properties: dict[str, str] = {}
    system_properties: _SystemProperties = msgspec.field(default_factory=_SystemProperties)


class ApplicationStartLine(_Core):
    timestamp: int
    app_name: str
    app_id: str | None = None
    app_attempt_id: str | None = None
    user: str = ""


class ApplicationEndLine(_Core):
    timestamp: int
    exit_code: int | None = msgspec.field(name="ExitCode", default=None)


class OriginProperties(msgspec.Struct, gc=False, omit_defaults=True):
    """Local properties of a job or stage that the shim sends (``JobProperties.java``)."""

    description: str | None = msgspec.field(name="spark.job.description", default=None)
    group: str | None = msgspec.field(name="spark.jobGroup.id", default=None)
    execution: str | None = msgspec.field(name="spark.sql.execution.id", default=None)
    call_site: str | None = msgspec.field(name="callSite.short", default=None)
    query: str | None = msgspec.field(name="sql.streaming.queryId", default=None)
    batch: str | None = msgspec.field(name="streaming.sql.batchId", default=None)
    policy: str | None = msgspec.field(name="spark.sql.streaming.multipleWatermarkPolicy", default=None)
    tags: str | None = msgspec.field(name="spark.job.tags", default=None)
    lineage: str | None = msgspec.field(name="spark.openlineage.context", default=None)


class JobStartLine(_Core):
    job_id: int
    submission_time: int | None = None
    properties: OriginProperties | None = None
    stage_ids: list[int] = msgspec.field(name="Stage IDs", default_factory=list)


class FrameJson(_Core):
    declaring_class: str
    method_name: str
    file_name: str | None = None
    line_number: int = -1


class ExceptionJson(_Core):
    """Exception as Spark writes it, without type and causes."""

    message: str | None = None
    stack_trace: list[FrameJson] = []


class _JobResult(_Core):
    result: str
    exception: ExceptionJson = msgspec.field(default_factory=ExceptionJson)


class JobEndLine(_Core):
    job_id: int
    job_result: _JobResult
    completion_time: int | None = None


class StageInfo(_Core):
    stage_id: int
    number_of_tasks: int
    stage_attempt_id: int = 0
    stage_name: str = ""
    submission_time: int | None = None
    completion_time: int | None = None
    failure_reason: str | None = None


class StageSubmittedLine(_Core):
    stage_info: StageInfo
    properties: OriginProperties | None = None


class Accumulable(_Core):
    """Value that the tasks of a stage have counted; a number is text for a metric of SQL."""

    id: int
    value: object = None


class CompletedStageInfo(StageInfo):
    accumulables: list[Accumulable] = []


class StageCompletedLine(_Core):
    stage_info: CompletedStageInfo


class _StartedTask(_Core):
    index: int
    launch_time: int = 0
    speculative: bool = False
    task_id: int = -1
    executor_id: str = ""


class TaskStartLine(_Core):
    stage_id: int
    task_info: _StartedTask
    stage_attempt_id: int = 0


class BlockManagerAddress(_Core):
    executor_id: str = ""
    host: str = ""


class TaskEndReason(_Core):
    """Reason why a task ended; the fields after ``reason`` are set only for an exception or a fetch failure."""

    reason: str
    class_name: str = ""
    description: str | None = ""
    full_stack_trace: str | None = None
    block_manager_address: BlockManagerAddress | None = None


class _ShuffleRead(_Core):
    remote_bytes_read: int = 0
    local_bytes_read: int = 0
    total_records_read: int = 0
    fetch_wait_time: int = 0


class _ShuffleWrite(_Core):
    shuffle_bytes_written: int = 0
    shuffle_records_written: int = 0
    shuffle_write_time: int = 0


class _Input(_Core):
    bytes_read: int = 0
    records_read: int = 0


class _Output(_Core):
    bytes_written: int = 0
    records_written: int = 0


class TaskMetrics(_Core):
    """Metrics of a task attempt; times are in milliseconds, except CPU and shuffle write times in nanoseconds."""

    executor_deserialize_time: int = 0
    executor_run_time: int = 0
    executor_cpu_time: int = 0
    peak_execution_memory: int = 0
    result_size: int = 0
    jvm_gc_time: int = 0
    result_serialization_time: int = 0
    memory_bytes_spilled: int = 0
    disk_bytes_spilled: int = 0
    shuffle_read_metrics: _ShuffleRead = msgspec.field(default_factory=_ShuffleRead)
    shuffle_write_metrics: _ShuffleWrite = msgspec.field(default_factory=_ShuffleWrite)
    input_metrics: _Input = msgspec.field(default_factory=_Input)
    output_metrics: _Output = msgspec.field(default_factory=_Output)


class ExecutorPeaks(msgspec.Struct, gc=False):
    """Peaks of an executor's memory."""

    heap: int = msgspec.field(name="JVMHeapMemory", default=0)
    offheap: int = msgspec.field(name="JVMOffHeapMemory", default=0)
    python: int = msgspec.field(name="ProcessTreePythonRSSMemory", default=0)


class StageExecutorMetricsLine(_Core):
    """An executor's peaks during a stage; written only with ``spark.eventLog.logStageExecutorMetrics``."""

    executor_id: str
    executor_metrics: ExecutorPeaks


class EndedTask(_Core):
    index: int
    attempt: int = 0
    launch_time: int = 0
    host: str = ""
    speculative: bool = False
    getting_result_time: int = 0
    finish_time: int = 0
    failed: bool = False
    killed: bool = False
    task_id: int = -1
    executor_id: str = ""


class TaskEndLine(_Core):
    stage_id: int
    task_end_reason: TaskEndReason
    task_info: EndedTask | None = None
    stage_attempt_id: int = 0
    task_executor_metrics: ExecutorPeaks | None = None
    task_metrics: TaskMetrics | None = None


class _ExecutorInfo(_Core):
    host: str = ""
    total_cores: int = 0


class ExecutorAddedLine(_Core):
    executor_id: str
    timestamp: int
    executor_info: _ExecutorInfo = msgspec.field(default_factory=_ExecutorInfo)


class ExecutorRemovedLine(_Core):
    executor_id: str
    timestamp: int
    removed_reason: str | None = None


class QueryStartedLine(_Streaming):
    id: str
    run_id: str
    name: str | None = None
    timestamp: str = ""
    job_tags: list[str] = []


class QueryIdleLine(_Streaming):
    id: str
    run_id: str
    timestamp: str = ""


class QueryTerminatedLine(_Streaming):
    id: str
    run_id: str
    exception: str | None = None
    error_class: str | None = msgspec.field(name="errorClassOnException", default=None)


class PlanMetric(_Streaming):
    name: str
    accumulator_id: int


class PlanNode(_Streaming):
    """Node of a physical plan."""

    node_name: str
    simple_string: str = ""
    children: list[PlanNode] = []
    metadata: dict[str, str] = {}
    metrics: list[PlanMetric] = []


class SqlExecutionStartLine(_Streaming):
    execution_id: int
    root_execution_id: int | None = None
    description: str = ""
    physical_plan_description: str = ""
    time: int = 0
    job_tags: list[str] = []
    job_group_id: str | None = None
    spark_plan_info: PlanNode | None = None


class AdaptiveUpdateLine(_Streaming):
    """New plan of an execution, after a stage of adaptive execution."""

    execution_id: int
    spark_plan_info: PlanNode | None = None


class AccumulatorUpdatesLine(_Streaming):
    """Values of metrics that the driver reports, by the ids of their accumulators."""

    execution_id: int
    accum_updates: list[tuple[int, int]] = []


class StatementStartLine(_Streaming):
    id: str
    session_id: str
    statement: str
    start_time: int
    user_name: str = ""


class StatementTimeoutLine(_Streaming):
    id: str
    finish_time: int


class StatementErrorLine(_Streaming):
    id: str
    finish_time: int
    error_msg: str = ""
    error_trace: str = ""


class StatementClosedLine(_Streaming):
    id: str


class OperationStartedLine(_Streaming):
    """Operation of a Spark Connect client."""

    job_tag: str
    operation_id: str
    event_time: int
    session_id: str
    user_id: str
    statement_text: str = ""


class OperationEndedLine(_Streaming):
    """Operation that has succeeded or was cancelled."""

    operation_id: str
    event_time: int


class OperationFailedLine(_Streaming):
    operation_id: str
    event_time: int
    error_message: str = ""


class OperationClosedLine(_Streaming):
    operation_id: str


class SqlExecutionEndLine(_Streaming):
    execution_id: int
    time: int
    error_message: str | None = None


class QueryProgressLine(_Streaming):
    progress: StreamingProgress
