"""The end of an application: its own record, or the death of its driver."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from spark_events.records.types import ApplicationEnd
from spark_events.translate.applications import Applications
from spark_events.translate.deadlines.deadlines import Deadlines
from spark_events.translate.draft import Draft
from spark_events.translate.drops import Drops
from spark_events.translate.heartbeats import Heartbeats
from spark_events.translate.jobs import Jobs
from spark_events.translate.queries import Queries
from spark_events.translate.timed_parts import TimedParts

__all__ = ["DIED", "Endings"]

DIED = "its driver died without reporting its end"


class Endings:
    """End the application, and before it what still runs.

    Args:
        application: the application.
        queries: the running and the failed queries.
        jobs: the running jobs.
        deadlines: the overdue work, which ends with the driver.
        heartbeats: they stop at the end.
        timed: the timers, with commits that were merged and events that were counted.
        drops: whether records are missing. If so, work without an end record may have ended.
    """

    def __init__(
        self,
        application: Applications,
        queries: Queries,
        jobs: Jobs,
        deadlines: Deadlines,
        heartbeats: Heartbeats,
        timed: TimedParts,
        drops: Drops,
    ) -> None:
        self._application = application
        self._queries = queries
        self._jobs = jobs
        self._deadlines = deadlines
        self._heartbeats = heartbeats
        self._timed = timed
        self._drops = drops
        self._provisional: ApplicationEnd | None = None

    def ended(self, record: ApplicationEnd) -> Iterator[Draft]:
        """Report the end of the application, unless the record is provisional."""
        yield from self._timed.flush()
        if record.provisional:
            self._provisional = record
            return
        running = self._running()
        # After a drop, the end of a running job may be among the lost records.
        if not self._drops.is_missing_any:
            yield from self._jobs.application_ended(record.time)
        yield from self._application.ended(record, self._queries.failed(), running)

    def driver_lost(self, at: int, orderly: bool, how: str) -> Iterator[Draft]:
        """Report the loss of the driver; see :meth:`Translator.driver_lost`."""
        if self._provisional is not None and not self._application.status.is_over:
            # The program had stopped Spark before the driver was killed, so the provisional end is the final one.
            yield from self.ended(msgspec.structs.replace(self._provisional, provisional=False))
        else:
            yield from self._timed.flush()
            # Work that hung is over, so its incident is; the loss is an incident of its own.
            yield from self._deadlines.driver_lost(at)
            yield from self._application.lost(at, orderly, self._running(), how)
        self._heartbeats.schedule()

    def _running(self) -> list[str]:
        """Return the titles of the running queries and jobs, according to the records."""
        queries = [f"query '{title}'" for title in self._queries.running_titles()]
        # The record of a job's completion may be among the dropped records.
        return queries if self._drops.is_missing_any else queries + self._jobs.running_titles()
