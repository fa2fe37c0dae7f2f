"""Deadlines of jobs, of the application, and of stages that receive no resources."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from spark_events.event import AttributeValue
from spark_events.records.types import ApplicationStart, Inspection, JobEnd, JobStart, RunningStage, StageWaited
from spark_events.translate.bounded import put
from spark_events.translate.deadlines.edges import Edges, Work
from spark_events.translate.deadlines.hanging_places import attributes_of, longest, tasks_of
from spark_events.translate.draft import Draft, counted
from spark_events.translate.executions import Executions
from spark_events.translate.origin import Origin, in_brackets, origin_of
from spark_events.translate.queries import Queries

__all__ = ["ApplicationDeadline", "JobDeadlines", "StageDeadline"]

#: Maximum number of running jobs, reached only if most records of completed jobs were lost.
_RUNNING = 16_384
#: Pause between two inspections of an overdue stage.
_LOOK_MILLIS = 1_000


def _millis(seconds: float | None) -> int:
    return 0 if seconds is None else round(seconds * 1000)


class JobDeadlines:
    """Deadlines of running jobs outside micro-batches; micro-batches have their own rule.

    Args:
        edges: the overdue deadlines of the application.
        limit: seconds; None: the rule is off.
        queries: to find the query that a job belongs to.
        executions: describes the SQL execution that a job belongs to.
    """

    def __init__(self, edges: Edges, limit: float | None, queries: Queries, executions: Executions) -> None:
        self._edges = edges
        self._limit = _millis(limit)
        self._queries = queries
        self._executions = executions
        self._jobs: OrderedDict[int, tuple[int, Origin]] = OrderedDict()
        self._stepped = 0

    def due(self) -> Iterator[int]:
        """Yield the times at which events are due; stop at the first job on time, because later jobs started later."""
        for job, (since, _) in self._jobs.items():
            name = f"job|{job}"
            at = self._edges.due(name, since, self._limit)
            if at is not None:
                yield at
            if self._edges.since(name) is None:
                return

    def asked(self, now: int) -> list[int]:
        """Return the ids of jobs whose next event is due; a request covers a limited number."""
        moments = ((job, self._edges.due(f"job|{job}", since, self._limit)) for job, (since, _) in self._jobs.items())
        due = (job for job, at in moments if at is not None and at <= now)
        return list(itertools.islice(due, 100))

    def clock_stepped(self, by: int, now: int) -> None:
        """Move all times by the step of the wall clock, in milliseconds; the clock shows ``now`` after the step."""
        self._stepped = now if by > 0 else 0
        for job, (since, origin) in self._jobs.items():
            self._jobs[job] = (since + by, origin)

    def started(self, record: JobStart) -> None:
        """Apply the start of a job; emit no event."""
        origin = origin_of(record.properties, self._queries, self._executions)
        if not origin.is_streaming:
            # An earlier time is one of the clock before its step.
            put(self._jobs, record.job_id, (max(record.time, self._stepped), origin), _RUNNING)

    def ended(self, record: JobEnd) -> Iterator[Draft]:
        """Apply the completion of a job. For an event log, the record's times prove whether the job was overdue."""
        known = self._jobs.get(record.job_id)
        if known is None:
            return
        if record.seq == 0:
            yield from self._judge(record.job_id, record.time, ())
        del self._jobs[record.job_id]
        yield from self._close(record.job_id, known[1], record.time)

    def application_ended(self, at: int, proven: bool) -> Iterator[Draft]:
        """End the deadlines of all jobs."""
        for job, (_, origin) in list(self._jobs.items()):
            if proven:
                yield from self._judge(job, at, ())
            yield from self._close(job, origin, at)
        self._jobs.clear()

    def inspected(self, record: Inspection, asked: Sequence[int], forgiven: int) -> Iterator[Draft]:
        """Yield the events of jobs that are due, according to an inspection.

        Args:
            record: the inspection, with the jobs that are running.
            asked: ids of the jobs in the request; the end of a job that is missing in the answer was lost.
            forgiven: end of the driver's last pause; no time before it counts. Milliseconds since the epoch.
        """
        rows = {job: stage_ids for job, *stage_ids in record.jobs}
        for job in sorted({*rows, *asked}):
            if job not in self._jobs:
                continue
            since, origin = self._jobs[job]
            if job not in rows:
                del self._jobs[job]
                yield from self._close(job, origin, record.at)
                continue
            self._jobs[job] = (max(since, forgiven), origin)
            yield from self._judge(job, record.at, [s for s in record.stages if s.stage_id in rows[job]])

    def _judge(self, job: int, now: int, stages: Sequence[RunningStage]) -> Iterator[Draft]:
        since, origin = self._jobs[job]
        where = tasks_of(stages, now)
        sentence = f"Job {job}{origin.clause} has been running"
        work = _job(job, origin, longest(stages))
        yield from self._edges.judge(work, self._limit, since, now, sentence, where and f": {where}")

    def _close(self, job: int, origin: Origin, at: int) -> Iterator[Draft]:
        yield from self._edges.close(_job(job, origin, {}), at, f"Job {job}{origin.clause} ended")


def _job(job: int, origin: Origin, details: dict[str, AttributeValue | None]) -> Work:
    return Work(f"job|{job}", "job", (job,), {"spark.job.id": job, **origin.attributes, **details})


class StageDeadline:
    """Deadline of a stage that has waiting tasks while no task of the application runs.

    The deadline applies to one stage at a time: the oldest stage with waiting tasks. The sidecar asks the shim twice
    per limit, so that it misses no wait, and again when the limit has passed.

    Args:
        edges: the overdue deadlines of the application.
        limit: seconds; None: the rule is off.
        queries: to find the query that a stage belongs to.
        executions: describes the SQL execution that a stage belongs to.
    """

    def __init__(self, edges: Edges, limit: float | None, queries: Queries, executions: Executions) -> None:
        self._edges = edges
        self._limit = _millis(limit)
        self._queries = queries
        self._executions = executions
        self._looked: int | None = None
        self._stepped = 0
        self._waiting: tuple[RunningStage, int] | None = None

    def begins(self, at: int) -> None:
        """Start monitoring for waiting stages when the application starts."""
        if self._limit:
            self._looked = max(at, self._looked or 0)

    def due(self) -> Iterator[int]:
        """Yield the times at which the sidecar must ask the shim."""
        if self._looked is None:
            return
        if self._waiting is None:
            yield self._looked + max(1, self._limit // 2)
            return
        stage, since = self._waiting
        # Ask about an overdue stage every second, because no record shows that the stage has recovered.
        overdue = self._edges.since(_stage_name(stage)) is not None
        yield self._looked + _LOOK_MILLIS if overdue else max(self._looked + 1, since + self._limit)

    def clock_stepped(self, by: int, now: int) -> None:
        """Move all times by the step of the wall clock, in milliseconds; the clock shows ``now`` after the step."""
        self._stepped = now if by > 0 else 0
        if self._looked is not None:
            self._looked += by
        if self._waiting is not None:
            stage, since = self._waiting
            self._waiting = stage, since + by

    def inspected(self, record: Inspection, forgiven: int) -> Iterator[Draft]:
        """Yield the events of the oldest waiting stage, and of a stage that has recovered."""
        if not self._limit:
            return
        self._looked = record.at
        waiting = [s for s in record.stages if s.running + s.finished < s.tasks] if record.idle_since else []
        stage = min(waiting, key=lambda s: (s.stage_id, s.attempt), default=None)
        before = self._waiting
        if before is not None and (stage is None or _stage_name(before[0]) != _stage_name(stage)):
            yield from self._close(before[0], record.at, "no longer waits for resources")
        self._forget_unknown(stage)
        if stage is None:
            self._waiting = None
            return
        if before is not None and _stage_name(before[0]) == _stage_name(stage):
            waits_since = before[1]
        else:
            waits_since = min(max(stage.time, record.idle_since, self._stepped), record.at)
        since = self._edges.since(_stage_name(stage)) or max(waits_since, forgiven)
        self._waiting = (stage, since)
        yield from self._judge(stage, since, record.at, record.executors, record.cores)

    def waited(self, record: StageWaited) -> Iterator[Draft]:
        """Apply a resource wait that an event log proves."""
        yield from self._judge(record.stage, record.since, record.time, record.executors, record.cores)
        yield from self._close(record.stage, record.time, "no longer waits for resources")

    def application_ended(self, at: int) -> Iterator[Draft]:
        """End the deadline, because the application has ended."""
        if self._waiting is not None:
            yield from self._close(self._waiting[0], at, "ended without resources")

    def _forget_unknown(self, stage: RunningStage | None) -> None:
        """If the stage that the preceding sidecar reported no longer waits, forget it; emit no event.

        The time and the cause of the stage's recovery are unknown.
        """
        known = "" if stage is None else _stage_name(stage)
        for name in self._edges.names():
            if name.startswith("resources|") and name != known:
                self._edges.forget(name)

    def _judge(self, stage: RunningStage, since: int, now: int, executors: int, cores: int) -> Iterator[Draft]:
        waiting = stage.tasks - stage.running - stage.finished
        known = ""
        details: dict[str, AttributeValue | None] = {}
        if executors >= 0:
            known = f"; {counted(executors, 'executor')} with {counted(cores, 'core')} known"
            details = {"spark.deadline.executors": executors, "spark.deadline.cores": cores}
        tasks = counted(waiting, "task", ("waits", "wait"))
        sentence = f"{self._title(stage)} gets no resources: {tasks} and none has been running"
        yield from self._edges.judge(self._work(stage, since, details), self._limit, since, now, sentence, known)

    def _close(self, stage: RunningStage, at: int, how: str) -> Iterator[Draft]:
        yield from self._edges.close(self._work(stage, 0, {}), at, f"{self._title(stage)} {how}")

    def _title(self, stage: RunningStage) -> str:
        origin = origin_of(stage.properties, self._queries, self._executions)
        return f"Stage {stage.stage_id}{in_brackets(stage.name)}{origin.beside(stage.name)}"

    def _work(self, stage: RunningStage, since: int, details: dict[str, AttributeValue | None]) -> Work:
        origin = origin_of(stage.properties, self._queries, self._executions)
        attributes = {**origin.attributes, **attributes_of(stage), **details}
        return Work(_stage_name(stage), "resources", (stage.stage_id, stage.attempt, since), attributes)


def _stage_name(stage: RunningStage) -> str:
    return f"resources|{stage.stage_id}|{stage.attempt}"


class ApplicationDeadline:
    """Deadline of the running application.

    Args:
        edges: the overdue deadlines of the application.
        limit: seconds; None: the rule is off.
    """

    def __init__(self, edges: Edges, limit: float | None) -> None:
        self._edges = edges
        self._limit = _millis(limit)
        self._since: int | None = None
        self._title = ""

    def due(self) -> Iterator[int]:
        """Yield the time at which the next event is due."""
        if self._since is not None and (at := self._edges.due("application", self._since, self._limit)) is not None:
            yield at

    def clock_stepped(self, by: int) -> None:
        """Move all times by the step of the wall clock, in milliseconds."""
        if self._since is not None:
            self._since += by

    def started(self, record: ApplicationStart) -> None:
        """Apply the start of the application."""
        self._title = record.app_name
        self._since = record.time if self._limit else None

    def inspected(self, record: Inspection, forgiven: int) -> Iterator[Draft]:
        """Yield the events that are due."""
        if self._since is not None:
            self._since = max(self._since, forgiven)
            yield from self._judge(record.at, tasks_of(record.stages, record.at))

    def ended(self, at: int, proven: bool) -> Iterator[Draft]:
        """End the deadline. For an event log, the record's times prove whether the limit had passed."""
        if self._since is None:
            return
        if proven:
            yield from self._judge(at, "")
        yield from self._edges.close(_APPLICATION, at, f"Application '{self._title}' ended")

    def _judge(self, now: int, where: str) -> Iterator[Draft]:
        assert self._since is not None
        sentence = f"Application '{self._title}' has been running"
        yield from self._edges.judge(_APPLICATION, self._limit, self._since, now, sentence, where and f": {where}")


_APPLICATION = Work("application", "application", ("application",), {})
