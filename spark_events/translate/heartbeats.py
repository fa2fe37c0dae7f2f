"""Heartbeats: periodic events that show the state of a running application."""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.clocks import Clocks
from spark_events.event import Severity
from spark_events.event.heartbeat import HEARTBEAT, INTERVAL
from spark_events.records.types import QueryProgress
from spark_events.translate.applications import Applications
from spark_events.translate.commits import is_commit
from spark_events.translate.draft import Draft, counted, present
from spark_events.translate.executors import Executors
from spark_events.translate.jobs import Jobs
from spark_events.translate.offsets import lag
from spark_events.translate.queries import Queries


class Heartbeats:
    """Report the state of the application once per interval, from its start to its termination.

    An interval is measured with the monotonic clock. A heartbeat is also due when the wall clock reaches the next
    multiple of the interval, so that the heartbeats of all applications have the same times.

    Args:
        interval: interval in seconds; None disables heartbeats.
        application: supplies the name and the status.
        queries: supplies the running queries.
        jobs: supplies the running jobs.
        executors: supplies the number of removed executors.
        clocks: the clocks of this process.
    """

    def __init__(
        self,
        interval: float | None,
        application: Applications,
        queries: Queries,
        jobs: Jobs,
        executors: Executors,
        clocks: Clocks,
    ) -> None:
        self._interval = None if interval is None else max(1, round(interval * 1000))
        self._application = application
        self._queries = queries
        self._jobs = jobs
        self._executors = executors
        self._clocks = clocks
        # Time of the next heartbeat by the wall clock, in milliseconds, and by the monotonic clock, in seconds. It
        # is due when either is reached. None while no application runs, or if heartbeats are off.
        self._due: tuple[int, float] | None = None
        self._count = 0
        self._batches = 0
        self._lags: dict[str, int] = {}

    @property
    def next_due(self) -> int | None:
        """Time of the next heartbeat by the current wall clock, in milliseconds since the epoch; None without one."""
        if self._due is None:
            return None
        at, moment = self._due
        left = round((moment - self._clocks.monotonic()) * 1000)
        return min(at, self._clocks.wall_millis() + left)

    def schedule(self, _: object = None) -> None:
        """Make the first heartbeat due, or none; call this method after the application has started or ended."""
        if self._interval is None or self._application.status.value != "RUNNING":
            self._due = None
        elif self._due is None:
            self._due = 0, self._clocks.monotonic()

    def progress(self, record: QueryProgress) -> None:
        """Record commits and lags for the next heartbeat; emit no event."""
        if self._interval is not None:
            progress = record.progress
            self._batches += is_commit(progress)
            lags = [lag(source.end_offset, source.latest_offset) for source in progress.sources]
            known = [rows for rows in lags if rows is not None]
            if known:
                self._lags[progress.run_id] = sum(known)

    def tick(self, now: int) -> Iterator[Draft]:
        """Report a heartbeat if one is due at ``now``, in milliseconds since the epoch."""
        if self._interval is None or self._due is None:
            return
        monotonic = self._clocks.monotonic()
        if now < self._due[0] and monotonic < self._due[1]:
            return
        self._count += 1
        left = self._interval - now % self._interval
        self._due = now + left, monotonic + left / 1000
        running = self._queries.running()
        self._lags = {run.run_id: self._lags[run.run_id] for run in running if run.run_id in self._lags}
        batches, self._batches = self._batches, 0
        executors = self._executors.number
        jobs, removed = len(self._jobs.running_titles()), self._executors.removed_count
        behind = sum(self._lags.values()) if self._lags else None
        facts = [
            f"{_several(len(running), 'query', 'queries')} and {counted(jobs, 'job')} running",
            f"{_several(batches, 'batch', 'batches')} committed since the last heartbeat",
        ]
        facts += [] if executors is None else [counted(executors, "executor")]
        facts += [] if behind is None else [f"{counted(behind, 'row')} behind"]
        facts += [f"{counted(removed, 'executor')} removed so far"] if removed else []
        yield Draft(
            name=HEARTBEAT,
            class_scope="spark.application",
            # The time alone would repeat after the wall clock was set back, and a database would refuse the heartbeat
            # as a duplicate.
            key=("heartbeat", now, self._count),
            body=f"Application '{self._application.name}' is alive: {', '.join(facts)}",
            severity=Severity.DEBUG,
            observed_ts_millis=now,
            attributes=present(
                {
                    INTERVAL: self._interval,
                    "spark.heartbeat.queries": len(running),
                    "spark.heartbeat.jobs": jobs,
                    "spark.heartbeat.batches": batches,
                    "spark.heartbeat.lag": behind,
                    "spark.heartbeat.executors": executors,
                    "spark.heartbeat.executors_removed": removed,
                }
            ),
        )


def _several(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
