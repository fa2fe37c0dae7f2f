"""Progress of a batch that takes long: rows, rate and limits, in the log and as an event."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.driver.reports import SCOPE, identity

if TYPE_CHECKING:
    from spark_events.enrichment.driver.micro_batch import MicroBatch
    from spark_events.enrichment.settings import Limits
    from spark_events.enrichment.worker.channel_client import TaskAttempt

__all__ = ["Progress"]

_LOG = logging.getLogger(__name__)
#: A task reports this many times between two reports of the batch.
_REPORTS = 6
_SUMS = ("rows", "attempts", "retries", "throttled", "failures", "in_flight")


class Progress:
    """Sum of what the tasks of a batch have reported; the channel updates it, a thread reads it.

    Args:
        name: the name of the function.
        batch: the identity of the batch.
        limits: the limits of the calls.
        seconds: time between two reports.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        name: str,
        batch: MicroBatch,
        limits: Limits,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.task_seconds = seconds / _REPORTS
        self._name = name
        self._batch = batch
        self._limits = _limits(limits)
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._tasks: dict[int, tuple[TaskAttempt, Mapping[str, Any]]] = {}
        self._began = self._reported = clock()
        self._rows = 0
        self._limited: Counter[str] = Counter()

    def update(self, attempt: TaskAttempt, numbers: Mapping[str, Any]) -> None:
        """Replace the numbers of a partition, unless a later attempt has reported."""
        with self._lock:
            known, _ = self._tasks.get(attempt.partition, (attempt, {}))
            if known.task <= attempt.task:
                self._tasks[attempt.partition] = (attempt, numbers)

    @contextlib.contextmanager
    def reported(self, post: Callable[[dict[str, Any]], object]) -> Iterator[None]:
        """Log the progress and post its event at each interval, until the batch ends."""
        ended = threading.Event()
        thread = threading.Thread(
            target=self._report, args=(ended, post), name="spark-events-enrich-progress", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def event(self) -> dict[str, Any] | None:
        """Return the event about the time since the previous one; None before a task has reported."""
        with self._lock:
            parts = [numbers for _, numbers in self._tasks.values()]
        if not parts:
            return None
        now = self._clock()
        total = {name: sum(part[name] for part in parts) for name in _SUMS}
        limited = sum((Counter(part["limited"]) for part in parts), Counter[str]())
        passed, rows = now - self._reported, total["rows"] - self._rows
        causes = {cause: round(1000 * spent) for cause, spent in (limited - self._limited).most_common()}
        self._reported, self._rows, self._limited = now, total["rows"], limited
        rate = max(0.0, rows / passed) if passed > 0 else 0.0
        what = (
            f"{self._name} on {self._batch}: {total['rows']:,} rows after {now - self._began:,.0f} s "
            f"({rate:,.1f} per second), calls in flight: {total['in_flight']:,}"
        )
        if causes:
            what += f", limited by {next(iter(causes))}"
        return {
            "id": uuid.uuid4().hex,
            "name": "EnrichmentProgressEvent",
            "class_scope": SCOPE,
            "body": f"Enriching with {what}",
            "severity": "INFO",
            "time": time.time_ns() // 1_000_000,
            "attributes": {
                **{f"spark.enrich.{name}": value for name, value in total.items()},
                "spark.enrich.function": self._name,
                "spark.enrich.partitions": len(parts),
                "spark.enrich.duration_ms": round((now - self._began) * 1000),
                "spark.enrich.rows_per_second": round(rate, 3),
                "spark.enrich.limits": json.dumps(self._limits),
                "spark.enrich.limited_by": json.dumps(causes),
                **identity(self._batch),
            },
        }

    def _report(self, ended: threading.Event, post: Callable[[dict[str, Any]], object]) -> None:
        while not ended.wait(self._seconds):
            event = self.event()
            if event is not None:
                _LOG.info("%s", event["body"])
                post(event)


def _limits(limits: Limits) -> dict[str, Any]:
    """Return the limits that the user has set or that are set by default, for the event."""
    given = limits.max_in_flight
    found = {
        "max_in_flight": given if isinstance(given, (int, str)) else [given.min, given.max],
        "max_in_flight_job": limits.max_in_flight_job,
        "rate_limit": limits.requests_per_second,
        "budget": None if limits.budget is None else limits.budget.per_minute,
    }
    return {name: value for name, value in found.items() if value is not None}
