"""Events with the totals of a stage attempt, and the reasons why the stage was slow."""

from __future__ import annotations

from spark_events.event import AttributeValue, Severity
from spark_events.records.cancellation import is_cancellation
from spark_events.records.types import StageCompleted
from spark_events.translate.draft import Draft, counted, present
from spark_events.translate.executions import Executions
from spark_events.translate.executors import Executors
from spark_events.translate.origin import Origin
from spark_events.translate.queries import Queries
from spark_events.translate.summaries.stage_problems import problems, took
from spark_events.translate.summaries.summary_config import SummaryConfig

__all__ = ["StageSummaries"]

#: Totals; each becomes an attribute ``spark.stage.<name>``.
_TOTALS = (
    *("run_ms", "cpu_ms", "gc_ms", "deserialize_ms", "scheduler_delay_ms", "result_serialize_ms", "getting_result_ms"),
    *("task_ms", "retried_ms", "fetch_wait_ms", "result_bytes", "input_bytes", "input_rows", "output_bytes"),
    *("output_rows", "shuffle_read_bytes", "shuffle_read_rows", "shuffle_write_bytes", "shuffle_write_rows"),
    *("shuffle_write_ms", "spill_memory_bytes", "spill_disk_bytes", "largest_input_bytes", "median_input_bytes"),
)
#: Totals of the successful task attempts; unknown if no attempt succeeded.
_OF_SUCCESSES = (
    *("duration_p50_ms", "duration_p95_ms", "duration_max_ms", "slowest_task", "slowest_attempt"),
    *("slowest_executor", "slowest_host"),
)


class StageSummaries:
    """Summaries of stage attempts.

    Args:
        config: the thresholds of problems.
        executors: supplies the cores.
        queries: shows whether a query is running. Its micro-batches may use cores, but their stages are not recorded.
        executions: supplies sources and targets of SQL executions.
    """

    def __init__(
        self,
        config: SummaryConfig,
        executors: Executors,
        queries: Queries,
        executions: Executions,
    ) -> None:
        self._config = config
        self._executors = executors
        self._queries = queries
        self._executions = executions

    def of(self, record: StageCompleted, title: str, clause: str, origin: Origin, is_alone: bool) -> Draft | None:
        """Return the summary of an ended stage attempt; None without totals.

        Args:
            record: the attempt's completion.
            title: number, attempt and name of the stage, for the event's body.
            clause: the stage's origin, in brackets.
            origin: supplies the attributes of the stage's job.
            is_alone: whether no other stage attempt ran at the same time.
        """
        totals = record.totals
        if totals is None:
            return None
        core_ms = self._executors.core_ms(totals.started, totals.ended) if totals.started else None
        own_ms = core_ms if is_alone and not self._queries.running() else None
        # Without any core, the executors are unknown, or the driver runs the tasks itself.
        waited_ms = self._executors.without_cores_ms(totals.started, totals.ended) if core_ms else 0
        found = problems(record.tasks, totals, own_ms, self._config, waited_ms)
        known = totals.started > 0
        reason = record.failure_reason
        ended = "failed" if reason is None or not is_cancellation(reason) else "was cancelled"
        verb = "took" if reason is None else f"{ended} after"
        body = f"{title} {verb} "
        body += f"{took(totals.ended - totals.started)}" if known else "an unknown time"
        body += f" with {counted(record.tasks, 'task')}{clause}"
        if totals.speculative:
            lost = totals.speculative - totals.speculative_won
            body += f"; of its speculative copies, {totals.speculative_won:,} won and {lost:,} lost"
        details: dict[str, AttributeValue | None] = {
            "spark.stage.id": record.stage_id,
            "spark.stage.attempt": record.attempt,
            "spark.stage.name": record.name,
            "spark.stage.tasks_total": record.tasks,
            "spark.stage.task_attempts": totals.tasks,
            "spark.stage.tasks_failed_attempts": totals.failed,
            "spark.stage.tasks_killed": totals.killed,
            "spark.stage.tasks_speculative": totals.speculative,
            "spark.stage.tasks_speculative_won": totals.speculative_won,
            "spark.stage.duration_ms": totals.ended - totals.started if known else None,
            "spark.stage.core_ms": core_ms or None,
            "spark.stage.peak_execution_memory_bytes": totals.peak_execution_memory,
            "spark.stage.lost_ms": max((problem.lost_ms for problem in found), default=None),
        }
        names = (*_TOTALS, *(_OF_SUCCESSES if totals.slowest_task >= 0 else ()))
        details |= {f"spark.stage.{name}": getattr(totals, name) for name in names}
        details |= {f"problem.{problem.kind}": problem.text for problem in found}
        attributes = {**present(details), **origin.attributes}
        attributes |= self._executions.attributes(attributes.get("spark.sql.execution.id"))
        return Draft(
            name="StageSummaryEvent",
            class_scope="spark.stage",
            key=("stage-summary", record.stage_id, record.attempt),
            body="; ".join([body, *(f"{problem.text} ({problem.kind})" for problem in found)]),
            severity=Severity.WARN if found else Severity.DEBUG,
            observed_ts_millis=record.time,
            attributes=attributes,
        )
