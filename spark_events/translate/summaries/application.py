"""Events with the totals of an application.

The totals cover work, failures, core-hours, memory, bytes, cost and streaming queries.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator

from spark_events.event import AttributeValue, Severity
from spark_events.records.types import ApplicationTotals, QueryProgress
from spark_events.translate.applications import Applications
from spark_events.translate.bounded import put
from spark_events.translate.commits import is_commit
from spark_events.translate.draft import Draft, counted, present
from spark_events.translate.queries import Queries
from spark_events.translate.summaries.stage_problems import took
from spark_events.translate.summaries.summary_config import SummaryConfig

__all__ = ["ApplicationSummaries"]

_HOUR = 3_600_000
#: Maximum number of queries, and of enrichment functions, that have totals of their own.
_MOST_NAMES = 20
_OTHERS = "(others)"
_NAME_LIMIT = 100
#: Maximum number of remembered causes of failure, which are needed to count the failures of a job and of its stage as
#: one failure.
_REMEMBERED = 1_024
#: Sums over all tasks; each becomes an attribute ``spark.summary.<name>``.
_SUMS = (
    *("run_ms", "cpu_ms", "gc_ms", "fetch_wait_ms", "retried_ms", "input_bytes", "input_rows", "output_bytes"),
    *("output_rows", "shuffle_read_bytes", "shuffle_write_bytes", "spill_memory_bytes", "spill_disk_bytes"),
)
#: Memory peaks; each becomes an attribute ``spark.summary.<name>``, and 0 means unknown.
_PEAKS = (
    *("peak_driver_heap_bytes", "peak_executor_heap_bytes", "peak_driver_offheap_bytes"),
    *("peak_executor_offheap_bytes", "peak_driver_python_bytes", "peak_executor_python_bytes"),
)
#: Number of histogram buckets per doubling of the duration. A value differs from the middle of its bucket by at most
#: 0.6 %.
_BUCKETS = 64


class _QueryNumbers:
    """Totals of a query over all its runs."""

    def __init__(self) -> None:
        self._batches: Counter[int] = Counter()
        self._overdue: set[str] = set()
        self._overdue_since = 0
        self._overdue_ms = 0
        self.rows = 0

    def committed(self, rows: int, took_ms: int) -> None:
        self.rows += rows
        self._batches[round(_BUCKETS * math.log2(max(1, took_ms)))] += 1

    def deadline(self, rule: str, is_overdue: bool, at: int) -> None:
        """Record a change of a deadline's status.

        Time during which several deadlines are overdue counts only once.
        """
        if is_overdue:
            self._overdue_since = min(at, self._overdue_since) if self._overdue else at
            self._overdue.add(rule)
            return
        if self._overdue == {rule}:
            self._overdue_ms += max(0, at - self._overdue_since)
        self._overdue.discard(rule)

    def attributes(self, title: str, now: int) -> dict[str, AttributeValue | None]:
        since = self._overdue_since if self._overdue else now
        values = {
            "batches": self._batches.total(),
            "rows": self.rows,
            "duration_p50_ms": self._quantile(0.5),
            "duration_p99_ms": self._quantile(0.99),
            "overdue_ms": self._overdue_ms + max(0, now - since),
        }
        return {f"spark.query.{title}.{name}": value for name, value in values.items()}

    def _quantile(self, fraction: float) -> int | None:
        rank = math.ceil(fraction * self._batches.total())
        for bucket, count in sorted(self._batches.items()):
            rank -= count
            if rank <= 0:
                return round(2 ** (bucket / _BUCKETS))
        return None


class ApplicationSummaries:
    """Summaries of the application: one per interval while it runs, and one when it ends.

    The driver counts jobs, stages, tasks and cores. Since its own start, the sidecar counts queries, enrichments, and
    failures by class.

    Args:
        config: the price of a core-hour.
        application: supplies the application's name.
        queries: supplies the last reported batch of each run.
    """

    def __init__(self, config: SummaryConfig, application: Applications, queries: Queries) -> None:
        self._price = config.core_hour_price
        self._application = application
        self._runs = queries
        self._queries: dict[str, _QueryNumbers] = {}
        self._failures: Counter[str] = Counter()
        # Number of failures by fingerprint of the cause, and by entity (stage, job, query, application).
        self._failed: OrderedDict[str, Counter[str]] = OrderedDict()
        self._usage: dict[str, int | float] = {}
        self._enrich_cost: int | float | None = None
        self._observers = {
            "JobFailureEvent": self._failure,
            "DeadlineStatusChangeEvent": self._deadline,
            "EnrichmentEvent": self._enrichment,
        }

    def progress(self, record: QueryProgress) -> None:
        """Count a committed batch; emit no event."""
        progress = record.progress
        run = self._runs.run(progress.id, progress.run_id, progress.name)
        if is_commit(progress) and progress.batch_id > run.batches.last_reported:
            numbers = self._query(progress.name or progress.id[:8])
            numbers.committed(progress.rows, progress.duration_ms.get("triggerExecution", 0))

    def observe(self, draft: Draft) -> None:
        """Count a failure, a deadline of a query, or an enrichment."""
        observer = self._observers.get(draft.name)
        if observer is not None:
            observer(draft)

    def ended(self, record: ApplicationTotals) -> Iterator[Draft]:
        """Report the totals of the application."""
        totals, hours = record.totals, record.core_ms / _HOUR
        used = record.busy_ms / _HOUR
        details: dict[str, AttributeValue | None] = {
            "spark.summary.final": record.final,
            "spark.summary.jobs": record.jobs,
            "spark.summary.jobs_failed": record.jobs_failed,
            "spark.summary.jobs_cancelled": record.jobs_cancelled,
            "spark.summary.stages": record.stages,
            "spark.summary.stages_failed": record.stages_failed,
            "spark.summary.stages_cancelled": record.stages_cancelled,
            "spark.summary.task_attempts": totals.tasks,
            "spark.summary.tasks_failed_attempts": totals.failed,
            "spark.summary.tasks_killed": totals.killed,
            **{f"spark.summary.{name}": getattr(totals, name) for name in _SUMS},
            "spark.summary.core_hours_used": used,
            "spark.summary.cores": record.cores_now or None,
            **{f"spark.summary.{name}": getattr(record, name) or None for name in _PEAKS},
        }
        cost = hours * self._price if hours and self._price is not None else None
        if hours:
            idle = max(0.0, hours - used)
            details |= {"spark.summary.core_hours": hours, "spark.summary.core_hours_idle": idle}
        if cost is not None:
            details |= {"spark.summary.cost": cost, "spark.summary.core_hour_price": self._price}
        details |= {f"spark.summary.failures.{name}": count for name, count in sorted(self._failures.items())}
        for title, numbers in self._queries.items():
            details |= numbers.attributes(title, record.time)
        details |= {f"spark.summary.enrich.{function}.usage": usage for function, usage in self._usage.items()}
        details["spark.summary.enrich.cost"] = self._enrich_cost
        yield Draft(
            name="ApplicationSummaryEvent",
            class_scope="spark.application",
            key=("summary", "end" if record.final else record.time),
            body=self._sentence(record, hours, used, cost),
            severity=Severity.INFO,
            observed_ts_millis=record.time,
            attributes=present(details),
        )

    def _sentence(self, record: ApplicationTotals, hours: float, used: float, cost: float | None) -> str:
        totals = record.totals
        facts = [f"{record.jobs_failed:,} of {counted(record.jobs, 'job')} failed"]
        if record.jobs_cancelled:
            facts[0] += f" and {counted(record.jobs_cancelled, 'job', ('was', 'were'))} cancelled"
        if hours:
            idle = max(0.0, 1 - used / hours)
            facts.append(f"its tasks used {_short(used)} of {_short(hours)} core-hours ({idle:.0%} idle)")
        else:
            facts.append(f"its tasks used {_short(used)} core-hours")
        if cost is not None:
            facts.append(f"its core-hours cost {_short(cost)}")
        if totals.failed or totals.killed:
            verbs = ("failed or was killed", "failed or were killed")
            attempts = counted(totals.failed + totals.killed, "task attempt", verbs)
            facts.append(f"{attempts} after {took(totals.retried_ms)} in total")
        when = "has ended" if record.final else "runs"
        return f"Application '{self._application.name}' {when}: {', '.join(facts)}"

    def _query(self, title: str) -> _QueryNumbers:
        return self._queries.setdefault(_counted_as(title, self._queries), _QueryNumbers())

    def _failure(self, draft: Draft) -> None:
        """Count a failure once, although several levels report it.

        A stage fails together with its job: two stages, their two jobs and their two queries are two failures, whatever
        the order of the records. Therefore, the number of failures with the same cause is the largest number at any
        single level.
        """
        attributes = draft.attributes
        cause = str(attributes.get("failure.fingerprint"))
        levels = self._failed.pop(cause, Counter())
        before = max(levels.values(), default=0)
        levels[str(attributes.get("spark.entity"))] += 1
        if max(levels.values()) > before:
            self._failures[str(attributes.get("failure.class", "UNKNOWN"))] += 1
        put(self._failed, cause, levels, _REMEMBERED)

    def _deadline(self, draft: Draft) -> None:
        attributes = draft.attributes
        query = attributes.get("spark.streaming.query.id")
        if query is None:
            return
        title = str(attributes.get("spark.streaming.query.name") or str(query)[:8])
        rule = f"{attributes.get('spark.deadline.rule')}{attributes.get('spark.deadline.topic', '')}"
        is_overdue = attributes.get("spark.status.new") == "OVERDUE"
        self._query(title).deadline(rule, is_overdue, draft.observed_ts_millis)

    def _enrichment(self, draft: Draft) -> None:
        attributes = draft.attributes
        cost, usage = attributes.get("spark.enrich.cost"), attributes.get("spark.enrich.usage")
        if isinstance(cost, int | float):
            self._enrich_cost = (self._enrich_cost or 0) + cost
        if isinstance(usage, int | float):
            # Each enrichment function has its own unit of usage, such as tokens or characters.
            function = _counted_as(str(attributes.get("spark.enrich.function") or _OTHERS), self._usage)
            self._usage[function] = self._usage.get(function, 0) + usage


def _counted_as(name: str, known: Collection[str]) -> str:
    """Return the name of a query or function; ``(others)`` for a new name if too many names are known."""
    name = name[:_NAME_LIMIT]
    return name if name in known or len(known) < _MOST_NAMES else _OTHERS


def _short(number: float) -> str:
    return f"{number:,.2f}" if number >= 1 else f"{number:.2g}"
