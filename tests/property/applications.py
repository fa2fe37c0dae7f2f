"""Generated applications, as records that the shim may send, and invariants of their events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from fakes import START, application_end, application_start, query_started, query_terminated
from hypothesis import strategies as st

from spark_events import Event, Severity

#: Allowed next statuses of each status. Any status may be the first status.
APPLICATION: dict[str, set[str]] = {
    "RUNNING": {"FINISHED", "FAILED", "CANCELLED", "ENDED", "LOST"},
    **{final: set() for final in ("FINISHED", "FAILED", "CANCELLED", "ENDED", "LOST")},
}
QUERY: dict[str, set[str]] = {"RUNNING": {"FINISHED", "FAILED"}, "FINISHED": set(), "FAILED": set()}
JOB: dict[str, set[str]] = {**QUERY, "RUNNING": {"FINISHED", "FAILED", "CANCELLED"}, "CANCELLED": set()}
STAGE: dict[str, set[str]] = {
    "NOT_ALL_RUNNING_OR_FINISHED": {"ALL_RUNNING_OR_FINISHED", "ALL_FINISHED"},
    "ALL_RUNNING_OR_FINISHED": {"NOT_ALL_RUNNING_OR_FINISHED", "ALL_FINISHED"},
    # If an executor is lost, the output of finished tasks may be lost too; such tasks run again.
    "ALL_FINISHED": {"NOT_ALL_RUNNING_OR_FINISHED", "ALL_RUNNING_OR_FINISHED"},
}
WATERMARK: dict[str, set[str]] = {"ACTIVE": {"IDLE"}, "IDLE": {"ACTIVE"}}
FETCH = "org.apache.spark.shuffle.FetchFailedException: Failed to connect to h1\n\tat a.B.c(B.java:1)"
ABORTED = "Job aborted due to stage failure: Task 0 in stage {stage}.0 failed 1 times, most recent failure: Lost task"
FAILURE = {"chain": [{"type": "java.io.IOException", "message": "disk"}], "trace": "java.io.IOException: disk\n"}
TOTALS = {"tasks": 2, "task_ms": 6, "duration_p50_ms": 3, "duration_max_ms": 3, "slowest_task": 1}
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
#: Tag of the work of a Spark Connect client.
TAG = "SparkConnect_OperationTag_User_ada_Session_{0}_Operation_{0}".format("839c8b37-e5f1-4496-83ce-6ca71c9ee9bb")


def iso(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


@dataclasses.dataclass
class _Query:
    name: str
    watermark: bool
    policy: str
    tags: str = ""
    run: str = ""
    runs: int = 0
    batch: int = -1
    offsets: list[int] = dataclasses.field(default_factory=lambda: [0, 0])
    newest: list[int] = dataclasses.field(default_factory=lambda: [0, 0])
    now_at: int = 0

    def watermark_now(self) -> int:
        """Compute the watermark as Spark does.

        The watermark is the minimum or maximum (by policy) over the sources' newest event times, minus 10 s. It never
        decreases.
        """
        each = [max(0, newest - 10_000) for newest in self.newest]
        self.now_at = max(self.now_at, min(each) if self.policy == "min" else max(each))
        return self.now_at


class Application:
    """Builder of an application's records in order. Each step advances the clock of the application."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.now = START
        self.committed: set[tuple[str, int]] = set()
        self._jobs = self._stages = 0
        self._queries = [_Query("q0", True, "min", TAG), _Query("q1", True, "max"), _Query("q2", False, "min")]
        self._add(application_start())

    def _add(self, record: dict[str, Any]) -> None:
        self.records.append({**record, "at": self.now})

    def passes(self, millis: int) -> None:
        """Advance the clock without adding records."""
        self.now += millis

    def job(self, properties: dict[str, str], fails: bool, retries: int) -> None:
        """Add a job with one stage, including ``retries`` retried attempts."""
        self._jobs += 1
        self._stages += 1
        self._add({"kind": "job_start", "job_id": self._jobs, "time": self.now, "properties": properties})
        for attempt in range(retries + 1):
            last = attempt == retries
            about = {"stage_id": self._stages, "attempt": attempt, "tasks": 2}
            self._add({"kind": "stage_submitted", "name": "s", **about, "time": self.now, "properties": properties})
            edges = [("ALL_RUNNING_OR_FINISHED", 2, 0, 0)]
            if last and not fails:
                edges += [
                    ("NOT_ALL_RUNNING_OR_FINISHED", 1, 0, 1),
                    ("ALL_RUNNING_OR_FINISHED", 2, 0, 1),
                    ("ALL_FINISHED", 0, 2, 1),
                ]
            for status, running, finished, failed in edges:
                self.now += 3
                counts = {"running": running, "finished": finished, "failed": failed}
                self._add({"kind": "stage_tasks", **about, "time": self.now, "status": status, **counts})
            reason = FETCH if not last else ABORTED.format(stage=self._stages) if fails else None
            if not last:
                gone = {"executor_id": str(self._jobs), "time": self.now, "reason": "killed"}
                self._add({"kind": "executor_removed", **gone})
            self._add(
                {"kind": "stage_completed", "name": "s", **about, "time": self.now, "failed": 1}
                | {"failure_reason": reason, "totals": {**TOTALS, "started": self.now - 3, "ended": self.now}}
            )
        failure = FAILURE if fails else None
        self._add({"kind": "job_end", "job_id": self._jobs, "time": self.now, "failure": failure})

    def trigger(self, which: int, rows: list[int], jobs: int, took: int) -> None:
        """Add a micro-batch of a query. If the query does not run, start it first."""
        query = self._queries[which]
        if not query.run:
            query.runs += 1
            query.run = f"{query.name}-r{query.runs}"
            self._add(query_started(query.run, query.name, query.name, timestamp=iso(self.now), tags=query.tags))
        query.batch += 1
        began = self.now
        for _ in range(jobs):
            self.job(self._properties(query), False, 0)
        self.now = max(self.now, began + took)
        before = list(query.offsets)
        query.offsets = [offset + count for offset, count in zip(before, rows, strict=True)]
        event_time = {}
        if query.watermark:
            event_time = {"watermark": iso(query.watermark_now())}
            if sum(rows):
                query.newest = [began if count else old for count, old in zip(rows, query.newest, strict=True)]
                event_time["max"] = iso(began)
        sources = [
            {
                "description": f"KafkaV2[{index}]",
                "startOffset": {"t": {"0": before[index], "1": 7}},
                "endOffset": {"t": {"0": query.offsets[index], "1": 7}},
                "numInputRows": count,
            }
            for index, count in enumerate(rows)
        ]
        progress = {
            "id": query.name,
            "runId": query.run,
            "name": query.name,
            "timestamp": iso(began),
            "batchId": query.batch,
            "numInputRows": sum(rows),
            "durationMs": {"addBatch": 1, "triggerExecution": self.now - began},
            "eventTime": event_time,
            "stateOperators": [{"numRowsTotal": 1, "numRowsDroppedByWatermark": rows[1] % 3}],
            "sources": sources,
            "sink": {"description": "noop"},
        }
        self._add({"kind": "query_progress", "progress": progress})
        self.committed.add((query.run, query.batch))

    def nothing_to_do(self, which: int) -> None:
        """Add repeated idle reports of a query, in the format of Spark 3.5 or of earlier versions."""
        query = self._queries[which]
        if query.run and query.runs % 2:
            self._add({"kind": "query_idle", "id": query.name, "run_id": query.run, "timestamp": iso(self.now)})
        elif query.run:
            idle = {"id": query.name, "runId": query.run, "timestamp": iso(self.now), "batchId": query.batch + 1}
            self._add({"kind": "query_progress", "progress": {**idle, "durationMs": {"latestOffset": 1}}})

    def ends(self, which: int, fails: bool) -> None:
        """Stop a query, or fail a job of the query's next batch."""
        query = self._queries[which]
        if query.run:
            if fails:
                properties = {**self._properties(query), "streaming.sql.batchId": str(query.batch + 1)}
                self.job(properties, True, 0)
            exception = "java.io.IOException: disk" if fails else None
            self._add(query_terminated(query.run, query.name, exception=exception))
            query.run = ""

    def over(self) -> None:
        """End the application with exit code 0."""
        for which in range(len(self._queries)):
            self.ends(which, False)
        self._add(application_end(time=self.now))

    def _properties(self, query: _Query) -> dict[str, str]:
        batch = str(query.batch)
        batch_of = {"sql.streaming.queryId": query.name, "streaming.sql.batchId": batch, POLICY: query.policy}
        return {**batch_of, "spark.job.tags": query.tags}


@st.composite
def applications(draw: st.DrawFn) -> Application:
    """Generate complete applications, with records in order."""
    application = Application()
    queries = st.integers(0, 2)
    for what in draw(
        st.lists(st.sampled_from(["batch", "batch", "batch", "idle", "end", "job", "pause"]), max_size=25)
    ):
        application.passes(draw(st.sampled_from([1, 40, 5_000])))
        if what == "batch":
            rows = draw(st.lists(st.sampled_from([0, 0, 4]), min_size=2, max_size=2))
            application.trigger(draw(queries), rows, draw(st.integers(0, 2)), draw(st.sampled_from([0, 30, 90_000])))
        elif what == "idle":
            application.nothing_to_do(draw(queries))
        elif what == "end":
            application.ends(draw(queries), draw(st.booleans()))
        elif what == "job":
            tags = draw(st.sampled_from(["", TAG]))
            application.job(
                {"callSite.short": "count at x:1", "spark.job.tags": tags}, draw(st.booleans()), draw(st.integers(0, 2))
            )
        else:
            application.passes(draw(st.sampled_from([20_000, 100_000, 4_000_000])))
    application.over()
    return application


def check(events: Iterable[Event]) -> None:
    """Check the invariants that hold for any records.

    No event is repeated, no transition is invalid, and what has to be read names the client that caused it.
    """
    checked = list(events)
    assert len({event.event_id for event in checked}) == len(checked)
    assert [event.sequence for event in checked] == list(range(1, len(checked) + 1))
    last: dict[tuple[object, ...], str] = {}
    for event in checked:
        if event.severity >= Severity.WARN and "spark.connect.user_id" in event.attributes:
            assert "(user 'ada', session 839c8b37)" in event.body, event
        if "spark.status.new" not in event.attributes or event.class_scope == "spark.executor":
            continue
        subject, table = _subject(event)
        old, new = event.attributes.get("spark.status.old"), event.attributes["spark.status.new"]
        assert new in table
        # The first status of a query run contains the last status of the previous run.
        restart = event.attributes.get("spark.streaming.query.restart", False)
        if old is not None and not restart:
            assert new in table[str(old)], event
        if subject in last and not restart:
            assert old == last[subject], event
        last[subject] = str(new)


def _subject(event: Event) -> tuple[tuple[object, ...], dict[str, set[str]]]:
    attributes = event.attributes
    if event.name == "AllSubtasksStatusChangeEvent":
        return ("stage", attributes["spark.stage.id"], attributes["spark.stage.attempt"]), STAGE
    run = attributes.get("spark.streaming.query.run_id")
    if event.name == "WatermarkStatusChangeEvent":
        return (
            run,
            attributes["spark.watermark.subject"],
            attributes.get("spark.source.index"),
            attributes.get("spark.source.partition"),
        ), WATERMARK
    entity = attributes["spark.entity"]
    if entity == "application":
        return ("application",), APPLICATION
    return (("query", run), QUERY) if entity == "query" else (("job", attributes["spark.job.id"]), JOB)
