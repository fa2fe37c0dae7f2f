"""Events of invented applications, in the form in which reporters store events."""

from __future__ import annotations

import dataclasses
import random
from datetime import datetime, timezone
from typing import Any

from report.traces import told, trace_of
from spark_events import Event, Severity
from spark_events.event import Attributes

START = 1_795_000_000_000
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


def iso(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclasses.dataclass
class Story:
    """Builder of the events of applications."""

    events: list[Event] = dataclasses.field(default_factory=list)

    def add(
        self, name: str, at: int, attributes: dict[str, Any], severity: Severity = Severity.INFO, body: str = ""
    ) -> Event:
        number = len(self.events) + 1
        event = Event(
            name=name,
            class_scope="spark.test",
            body=body or f"{name} {number}",
            severity=severity,
            observed_ts_millis=at,
            event_id=f"{number:032x}",
            sequence=number,
            attributes=Attributes(attributes),
        )
        self.events.append(event)
        return event

    def application(self, name: str, app_id: str) -> ApplicationStory:
        return ApplicationStory(self, {"spark.app.id": app_id, "spark.app.name": name})


@dataclasses.dataclass
class ApplicationStory:
    """Builder of the events of one run of an application."""

    story: Story
    base: dict[str, Any]

    def status(self, new: str, at: int, **more: Any) -> None:
        old = {} if new == "RUNNING" else {"spark.status.old": "RUNNING"}
        about = {"spark.entity": "application", "spark.status.new": new, **old, **more}
        self.story.add("JobStatusChangeEvent", at, {**self.base, **about})

    def query(self, name: str, run: str, query_id: str | None = None) -> QueryStory:
        ids = {
            "spark.streaming.query.id": query_id or f"id-{name}",
            "spark.streaming.query.run_id": run,
            "spark.streaming.query.name": name,
        }
        return QueryStory(self.story, {**self.base, **ids})

    def failure(self, at: int, entity: str = "job", cause: str = "ValueError: no currency", **more: Any) -> None:
        add_failure(self.story, self.base, at, entity, cause, more)

    def executor(self, executor: str, status: str, at: int, **more: Any) -> None:
        about = {"spark.executor.id": executor, "spark.status.new": status, **more}
        severity = Severity.WARN if status == "LOST" else Severity.DEBUG
        self.story.add("ExecutorStatusChangeEvent", at, {**self.base, **about}, severity)

    def event(self, name: str, at: int, severity: Severity = Severity.INFO, **attributes: Any) -> None:
        self.story.add(name, at, {**self.base, **attributes}, severity)


@dataclasses.dataclass
class QueryStory(ApplicationStory):
    """Builder of the events of one run of a query."""

    batch: int = -1

    def status(self, new: str, at: int, **more: Any) -> None:
        old = {} if new == "RUNNING" else {"spark.status.old": "RUNNING"}
        about = {"spark.entity": "query", "spark.status.new": new, **old, **more}
        self.story.add("JobStatusChangeEvent", at, {**self.base, **about})

    def commit(self, at: int, took: int, rows: int = 100, lag: int | None = None, batches: int = 1) -> None:
        self.batch += batches
        about: dict[str, Any] = {
            "spark.batch.id": self.batch,
            "spark.batch.count": batches,
            "spark.batch.rows_input": rows,
            "spark.batch.duration.trigger_execution_ms": took,
        }
        if lag is not None:
            about |= {"spark.watermark.time": iso(at - lag - SECOND), "spark.batch.event_time_max": iso(at - SECOND)}
        self.story.add("BatchCommitEvent", at, {**self.base, **about})


def add_failure(story: Story, base: dict[str, Any], at: int, entity: str, cause: str, more: dict[str, Any]) -> None:
    about = {
        "spark.entity": entity,
        **told(cause),
        "failure.will_retry": False,
        "exception.stacktrace": trace_of(cause),
        **more,
    }
    story.add("JobFailureEvent", at, {**base, **about}, Severity.ERROR, f"The {entity} failed: {cause}")


def add_stage(story: Story, base: dict[str, Any], at: int, stage: int, slow: bool) -> None:
    """Add the summary of a stage. A slow stage loses ``stage`` seconds to skew and spills."""
    about: dict[str, Any] = {"spark.stage.id": stage, "spark.stage.attempt": 0, "spark.stage.name": "csv at etl.py:9"}
    about["spark.stage.duration_ms"] = 60 * SECOND + stage
    about |= {"spark.stage.duration_p50_ms": SECOND, "spark.stage.duration_p95_ms": 2 * SECOND}
    about["spark.stage.duration_max_ms"] = stage * SECOND
    name, body = "StageSummaryEvent", f"{base['spark.app.name']}: stage {stage} [csv at etl.py:9] took 1 min"
    if slow:
        about |= {"problem.skew": f"one of 200 tasks took {stage} s", "spark.stage.lost_ms": stage * SECOND}
        about["problem.spill"] = "its tasks spilled 3 GiB to disk"
    story.add(name, at, {**base, **about}, Severity.WARN if slow else Severity.DEBUG, body)


def add_summary(story: Story, base: dict[str, Any], at: int, hours: float, idle: float, cost: float | None) -> None:
    """Add a summary of the application with cumulative values, like a real summary."""
    about: dict[str, Any] = {"spark.summary.core_hours": hours, "spark.summary.core_hours_idle": idle}
    about["spark.summary.core_hours_used"] = hours - idle
    if cost is not None:
        about["spark.summary.cost"] = cost
    story.add("ApplicationSummaryEvent", at, {**base, **about})


def busy_day(seed: int = 1) -> Story:
    """Return one day of events that fill every part of the report, such as a restarted stream and a nightly batch."""
    pick = random.Random(seed)
    story = Story()
    at = START
    run = 0
    end = START + 20 * HOUR
    while at < end:
        run += 1
        app = story.application("clickstream", f"application_1_{run:04d}")
        app.status("RUNNING", at)
        queries = [app.query(name, f"{name}-{run}") for name in ("clicks-per-minute", "book-payments", "sessions")]
        for number in range(4):
            app.executor(str(number), "ADDED", at + number * 5 * SECOND, **{"spark.executor.cores": 4})
        for query in queries:
            query.status("RUNNING", at + 10 * SECOND)
        over = min(end, at + pick.randrange(2, 7) * HOUR)
        now = at + 30 * SECOND
        lost = False
        while now < over:
            for index, query in enumerate(queries):
                slow = 40 if pick.random() < 0.004 else 1
                took = int(pick.lognormvariate(8 + index / 2, 0.4)) * slow
                wave = 1 + abs(((now - START) / HOUR) % 12 - 6)
                query.commit(
                    min(now + took, over), took, int(pick.gauss(600 * wave, 80)) + 1, lag=took + 30_000 + index * 9_000
                )
            if not lost and pick.random() < 0.01:
                lost = True
                app.executor("2", "LOST", now, **{"spark.executor.loss": "MEMORY_LIMIT"})
                queries[0].failure(
                    now, "stage", "FetchFailedException: Failed to connect to h1", **{"failure.will_retry": True}
                )
            now += 2 * MINUTE
        last = over >= end
        if not last:
            cause = "KeyError: 'CHF'" if run == 2 else "ValueError: no currency"
            queries[1].failure(over - SECOND, "job", cause)
            queries[1].failure(over, "query", cause)
            queries[1].status("FAILED", over)
            app.failure(over + 2 * SECOND, "application", cause)
            app.status("FAILED", over + 2 * SECOND)
        at = over + pick.randrange(2, 40) * MINUTE
    idle: dict[str, Any] = {
        "spark.watermark.subject": "source",
        "spark.source.index": 1,
        "spark.source.description": "Kafka[clicks]",
    }
    idle |= {"spark.watermark.idle_since_millis": end - 60 * MINUTE, "spark.watermark.held_back_by": "source 1"}
    idle |= {"spark.status.new": "IDLE"}
    queries[0].event("WatermarkStatusChangeEvent", end - 50 * MINUTE, Severity.WARN, **idle)
    late: dict[str, Any] = {"spark.deadline.subject": "batch", "spark.deadline.rule": "batch", "spark.batch.id": 41}
    late |= {"spark.deadline.limit_ms": 300_000, "spark.deadline.location": "Sink.scala:12 in Sink.write"}
    late |= {"spark.status.new": "OVERDUE"}
    queries[2].event("DeadlineStatusChangeEvent", end - 20 * MINUTE, Severity.WARN, **late)
    for index, calls in enumerate((9_400, 8_000)):
        numbers = {"calls": calls, "attempts": calls + 12, "retries": 12, "timeouts": 7, "latency.p99_ms": 97.5 + index}
        about: dict[str, Any] = {
            "function": "lookup (/jobs/users.py:12)",
            "outcome": "settled",
            "failures": 0,
            **numbers,
        }
        named = {f"spark.enrich.{key}": value for key, value in about.items()}
        queries[1].event("EnrichmentEvent", end - (9 - index) * MINUTE, **named)
    for day in range(3):
        nightly = story.application("nightly-report", f"application_2_{day:04d}")
        begin = START + (2 + 6 * day) * HOUR
        nightly.status("RUNNING", begin)
        nightly.executor("1", "ADDED", begin + SECOND)
        if day == 2:
            nightly.failure(begin + 9 * MINUTE, "job", "AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] orders")
            nightly.failure(begin + 10 * MINUTE, "application", "AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] orders")
        nightly.status("FAILED" if day == 2 else "FINISHED", begin + 10 * MINUTE)
        for number in range(3):
            add_stage(story, nightly.base, begin + (2 + number) * MINUTE, 10 * day + number, slow=number > 0)
        add_summary(story, nightly.base, begin + 5 * MINUTE, hours=1.0 + day, idle=0.25, cost=None)
        add_summary(story, nightly.base, begin + 10 * MINUTE, hours=4.0 + day, idle=1.5, cost=0.5 * day)
    lost_records: dict[str, Any] = {
        "spark.events.dropped.where": "handoff",
        "spark.events.dropped.reason": "queue-full",
    }
    lost_records |= {"spark.events.dropped.count": 17}
    story.application("nightly-report", "application_2_0002").event(
        "EventsDroppedEvent", START + 15 * HOUR, **lost_records
    )
    return story
