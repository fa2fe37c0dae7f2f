"""Tests of deadlines: overdue work is reported once with its location; other work is not reported."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest
from fakes import START, application_end, application_start, decoded, query_progress, query_started, query_terminated

from spark_events import Event
from spark_events.config import Settings
from spark_events.errors import ConfigError
from spark_events.records.types import QueryThread, RunningStage, StageWaited
from spark_events.translate.deadlines.hanging_places import place_of
from spark_events.translate.translation_config import read
from spark_events.translate.translator import Translator
from spark_events.translate.user_code import UserCode

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
LIMIT = {"events.deadline.batch": "5min", "events.deadline.resources": "off"}
KAFKA = [
    "jdk.internal.misc.Unsafe.park(Unsafe.java)",
    "org.apache.kafka.common.internals.KafkaFutureImpl.get(KafkaFutureImpl.java:165)",
    "org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin.$anonfun$fetchLatestOffsets$1(KafkaOffsetReaderAdmin.scala:7)",
    "org.apache.spark.sql.kafka010.KafkaMicroBatchStream.latestOffset(KafkaMicroBatchStream.scala:112)",
    "org.apache.spark.sql.execution.streaming.MicroBatchExecution.constructNextBatch(MicroBatchExecution.scala:470)",
]


def iso(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class Driver:
    """Simulated driver with its own clock. The driver records the events and answers the sidecar's queries."""

    def __init__(self, settings: Mapping[str, str] | None = None, translator: Translator | None = None) -> None:
        self.config = read(Settings.of(LIMIT if settings is None else settings))
        self.translator = translator or Translator(self.config)
        self.now = START
        self.events: list[Event] = []
        self.records: list[dict[str, Any]] = []
        self.threads: dict[str, Callable[[], dict[str, Any]]] = {}
        self.stages: list[dict[str, Any]] = []
        self.jobs: list[list[int]] = []
        self.idle_since = 0
        self.questions = 0
        #: Until this time, the driver is paused and does not answer.
        self.stands_until = 0
        #: Sum of the steps of the wall clock; the shim measures durations with the monotonic clock.
        self.stepped = 0
        self._unanswered: dict[str, Any] | None = None
        if translator is None:
            self.tell(application_start(time=self.now, main_class="com.acme.jobs.Orders"))

    def tell(self, record: dict[str, Any]) -> None:
        numbered = {**record, "seq": len(self.records) + 1, "at": self.now}
        self.records.append(numbered)
        self.take(self.translator.translate(decoded(numbered)))

    def take(self, events: list[Event]) -> None:
        names = ("DeadlineStatusChangeEvent",)
        self.events += [event for event in events if event.name in names]

    def start(self, run: str = "r1", query: str = "q1", name: str = "clicks") -> None:
        self.tell(query_started(run, query, name, timestamp=iso(self.now)))
        self.works(run)

    def works(self, run: str = "r1", frames: list[str] | None = None, **more: Any) -> None:
        since = self.now - self.stepped
        about = {"run_id": run, "frames": frames or KAFKA, **more}
        self.threads[run] = lambda: {**about, "busy_since": since + self.stepped}

    def waits(self, run: str = "r1") -> None:
        self.threads[run] = lambda: {"run_id": run, "frames": ["org.apache.spark.util.SystemClock.waitTillTime(C:1)"]}

    def commits(self, batch: int, run: str = "r1", query: str = "q1", took: int = 0, **changes: Any) -> None:
        durations = {"addBatch": 1, "triggerExecution": took}
        self.tell(query_progress(batch, run, query, timestamp=iso(self.now - took), durationMs=durations, **changes))

    def idles(self, run: str = "r1", query: str = "q1") -> None:
        self.tell({"kind": "query_idle", "id": query, "run_id": run, "timestamp": iso(self.now)})

    def passes(self, millis: int) -> list[Event]:
        """Advance the clock by a duration, and return the events in this time."""
        seen, until = len(self.events), self.now + millis
        while True:
            due = self.translator.next_due
            waiting = self._unanswered
            if waiting is not None and self.stands_until <= until:
                self.now, self._unanswered = self.stands_until, None
                self.answer(waiting)
            elif due is not None and due <= until:
                self.now = max(self.now, due)
                self.take(self.translator.tick(self.now))
                question = self.translator.deadlines.take_question()
                if question is not None and self.now < self.stands_until:
                    self._unanswered = self._unanswered or question
                elif question is not None:
                    self.answer(question)
            else:
                break
        self.now = until
        return self.events[seen:]

    def sets_clock(self, by: int) -> None:
        """Set the clock of the machine ahead, or back, by some milliseconds."""
        self.now += by
        self.stepped += by
        self.translator.clock_stepped(by, self.now)

    def answer(self, question: dict[str, Any]) -> None:
        self.questions += 1
        wanted = question["runs"]
        queries = [thread() for thread in self.threads.values()]
        queries = [q if q["run_id"] in wanted else {**q, "frames": []} for q in queries]
        jobs = [row for row in self.jobs if row[0] in question["jobs"]]
        answer = {"queries": queries, "stages": self.stages, "jobs": jobs, "idle_since": self.idle_since}
        asked = {"asked": question["asked"], "overdue": question["overdue"]}
        self.tell({"kind": "inspection", "executors": 2, "cores": 8, **asked, **answer})

    def restarts_sidecar(self) -> None:
        """Replace the sidecar. The new sidecar receives the records that the shim has kept."""
        self.translator = Translator(self.config)
        kept: dict[str, dict[str, Any]] = {}
        for record in self.records:
            if record["kind"] in ("application_start", "query_started", "query_progress", "inspection", "job_start"):
                kept[f"{record['kind']} {record.get('run_id')}"] = record
        for record in sorted(kept.values(), key=lambda r: r["seq"]):
            self.translator.restore(decoded(record))


def changes(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(e.attributes["spark.deadline.rule"], e.attributes["spark.status.new"], e.severity.value) for e in events]  # type: ignore[misc]


def stage(stage_id: int = 7, **changes: Any) -> dict[str, Any]:
    counts = {"tasks": 8, "running": 1, "finished": 7}
    longest = {"task": 3, "executor": "2", "host": "host-2", "time": START}
    about = {"stage_id": stage_id, "attempt": 0, "name": "count at x.py:3", "time": START, "longest": longest}
    return {**about, **counts, **changes}


def test_an_overdue_batch_makes_a_warning_an_error_and_a_recovery() -> None:
    """An overdue batch causes three events: WARN at the limit, ERROR at three times the limit, INFO at its commit."""
    driver = Driver()
    driver.start()
    driver.commits(40)
    driver.works()
    assert driver.passes(5 * MINUTE - 1) == []
    (late,) = driver.passes(1)
    assert changes([late]) == [("batch", "OVERDUE", "WARN")]
    assert late.body == (
        "shop: query 'clicks' has not committed batch 41 for 5 min (limit 5 min):"
        " waiting in KafkaOffsetReaderAdmin.fetchLatestOffsets, looking for new data"
    )
    expected = {"spark.deadline.subject": "batch", "spark.status.old": "ON_TIME", "spark.batch.id": 41}
    expected |= {"spark.deadline.limit_ms": 300_000, "spark.deadline.elapsed_ms": 300_000}
    assert late.attributes.items() >= expected.items()
    assert driver.passes(10 * MINUTE - 1) == []
    (very_late,) = driver.passes(1)
    assert changes([very_late]) == [("batch", "OVERDUE", "ERROR")]
    assert driver.passes(HOUR) == []
    driver.commits(41)
    recovered = driver.events[-1]
    assert changes([recovered]) == [("batch", "ON_TIME", "INFO")]
    assert recovered.body == "shop: query 'clicks' committed batch 41 after 75 min (limit 5 min)"
    assert len(driver.events) == len({event.event_id for event in driver.events}) == 3


def test_waiting_for_a_trigger_does_not_count() -> None:
    """A query with an hourly trigger is not overdue between triggers. It becomes overdue if its next trigger hangs."""
    driver = Driver({**LIMIT, "events.deadline.progress": "5min"})
    driver.start()
    for batch in range(5):
        driver.works()
        driver.passes(MINUTE)
        driver.commits(batch)
        driver.waits()
        assert driver.passes(HOUR - MINUTE) == []
    driver.works()
    assert driver.passes(5 * MINUTE - 1) == []
    assert changes(driver.passes(2 * SECOND)) == [("batch", "OVERDUE", "WARN"), ("progress", "OVERDUE", "INFO")]


def test_available_now_and_once_are_judged_batch_by_batch() -> None:
    """In queries with AvailableNow or Once, each batch has a deadline. The query's termination cancels the deadline."""
    driver = Driver()
    driver.start()
    for batch in range(20):
        assert driver.passes(4 * MINUTE) == []
        driver.commits(batch)
    assert changes(driver.passes(6 * MINUTE)) == [("batch", "OVERDUE", "WARN")]
    driver.tell(query_terminated())
    assert driver.events[-1].body == "shop: query 'clicks' ended after 6 min (limit 5 min)"
    assert driver.passes(HOUR) == []


def test_continuous_queries_are_not_judged() -> None:
    """Continuous queries have no deadlines, because they report neither commits nor idle triggers."""
    driver = Driver({**LIMIT, "events.deadline.progress": "5min"})
    driver.start()
    driver.works(continuous=True)
    assert driver.passes(24 * HOUR) == []
    assert driver.questions < 10


def test_a_real_time_batch_counts_like_any_other() -> None:
    """A batch in real-time mode lasts as long as its trigger, and has a longer limit."""
    driver = Driver({**LIMIT, "events.deadline.query.clicks.batch": "12min"})
    driver.start()
    for batch in range(10):
        assert driver.passes(10 * MINUTE) == []
        driver.commits(batch)
    assert changes(driver.passes(13 * MINUTE)) == [("batch", "OVERDUE", "WARN")]


def test_progress_counts_from_the_last_idle_report() -> None:
    """If its source hangs, a query is overdue although no batch runs. The next idle report is the recovery."""
    driver = Driver({"events.deadline.progress": "2min", "events.deadline.resources": "off"})
    driver.start()
    for _ in range(60):
        driver.passes(10 * SECOND)
        driver.idles()
    (late,) = driver.passes(2 * MINUTE)
    assert late.body.startswith(
        "shop: query 'clicks' has not committed a batch, nor reported itself idle, for 2 min (limit"
    )
    assert late.attributes["spark.deadline.subject"] == "query"
    driver.idles()
    assert driver.events[-1].body == "shop: query 'clicks' found no new data after 2 min (limit 2 min)"
    assert len(driver.passes(2 * MINUTE)) == 1
    assert len({event.event_id for event in driver.events}) == 3


def test_a_query_may_have_its_own_limit() -> None:
    """A key with a query's name overrides the limit of all queries for this query, or disables the limit."""
    own = {"events.deadline.query.a.b.batch": "1min", "events.deadline.query.slow.batch": "off"}
    driver = Driver({**LIMIT, **own})
    for number, name in enumerate(["a.b", "slow", "other"]):
        driver.start(f"r{number}", f"q{number}", name)
    events = driver.passes(2 * MINUTE)
    assert [event.attributes["spark.streaming.query.name"] for event in events] == ["a.b"]
    events = driver.passes(4 * MINUTE)
    assert {event.attributes["spark.streaming.query.name"] for event in events} == {"a.b", "other"}


def test_a_batch_that_runs_a_job_names_the_task_that_takes_longest() -> None:
    """The event names the longest-running task with its stage, executor and host, because this task may hang."""
    driver = Driver()
    driver.start()
    driver.works(frames=["org.apache.spark.scheduler.DAGScheduler.runJob(DAGScheduler.scala:986)"])
    driver.stages = [stage(properties={"sql.streaming.queryId": "q1"}), stage(8, properties={})]
    (late,) = driver.passes(6 * MINUTE)
    assert "stage 7 [count at x.py:3] has 7 of 8 tasks done, 1 running, 0 waiting" in late.body
    assert late.body.endswith("task 3 on executor 2 (host-2) has been running for 5 min")
    assert late.attributes["spark.deadline.task_host"] == "host-2"
    assert late.attributes["spark.stage.id"] == 7


def test_a_stage_without_resources_is_overdue_by_default() -> None:
    """By default, a stage is overdue if it has no running tasks for the time limit.

    The event contains the numbers of tasks, executors and cores.
    """
    driver = Driver({})
    driver.passes(10 * MINUTE)
    driver.stages = [stage(running=0, finished=0, time=driver.now, longest=None)]
    driver.idle_since = 1
    assert driver.passes(2 * MINUTE - 1) == []
    (late,) = driver.passes(1)
    assert changes([late]) == [("resources", "OVERDUE", "WARN")]
    assert late.body == (
        "shop: stage 7 [count at x.py:3] gets no resources: 8 tasks wait and none has been running for 2 min"
        " (limit 2 min); 2 executors with 8 cores known"
    )
    assert late.attributes["spark.deadline.executors"] == 2
    driver.stages = [stage(running=8, finished=0)]
    driver.idle_since = 0
    assert changes(driver.passes(2 * SECOND)) == [("resources", "ON_TIME", "INFO")]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("count at NativeMethodAccessorImpl.java:0", " [count]"),
        ("$anonfun$withThreadLocalCaptured$1 at CompletableFuture.java:1768", " (count)"),
    ],
)
def test_overdue_work_has_the_name_of_its_sql_execution(name: str, shown: str) -> None:
    """Texts about an overdue job or stage contain the description of its SQL execution once."""
    properties = {"spark.sql.execution.id": "7"}
    driver = Driver({"events.deadline.job": "1h", "events.deadline.resources": "5min"})
    described = {"execution_id": 7, "time": START, "description": "count at NativeMethodAccessorImpl.java:0"}
    driver.tell({"kind": "sql_execution_start", **described})
    driver.tell({"kind": "job_start", "job_id": 3, "time": START, "properties": properties})
    driver.jobs = [[3, 7]]
    driver.stages = [stage(running=0, finished=0, longest=None, name=name, properties=properties)]
    driver.idle_since = 1
    waiting, _, running = driver.passes(HOUR)
    assert waiting.body.startswith(f"shop: stage 7{shown} gets no resources")
    assert running.body.startswith("shop: job 3 (count) has been running")


def test_a_stage_that_waits_for_other_stages_is_on_time() -> None:
    """While other tasks of the application use the cores, a stage whose tasks are all pending is not overdue."""
    driver = Driver({})
    driver.stages = [stage(running=0, finished=0), stage(8)]
    assert driver.passes(24 * HOUR) == []


def test_jobs_and_applications_have_limits() -> None:
    """Jobs and applications have limits. Jobs of micro-batches have none, because their batches have limits."""
    limits = {"events.deadline.job": "5min", "events.deadline.application": "1h", "events.deadline.resources": "off"}
    driver = Driver(limits)
    driver.tell({"kind": "job_start", "job_id": 3, "time": START, "properties": {"spark.job.description": "nightly"}})
    driver.tell({"kind": "job_start", "job_id": 4, "time": START, "properties": {"sql.streaming.queryId": "q1"}})
    driver.jobs, driver.stages = [[3, 7], [4, 8]], [stage(), stage(8)]
    (late,) = driver.passes(6 * MINUTE)
    assert late.body.startswith(
        "shop: job 3 (nightly) has been running for 5 min (limit 5 min): stage 7 [count at x.py:3] ha"
    )
    assert (late.attributes["spark.job.id"], late.attributes["spark.deadline.task_executor"]) == (3, "2")
    driver.tell({"kind": "job_end", "job_id": 3, "time": driver.now})
    assert driver.events[-1].body == "shop: job 3 (nightly) ended after 6 min (limit 5 min)"
    assert changes(driver.passes(HOUR)) == [("application", "OVERDUE", "WARN")]
    driver.tell(application_end(time=driver.now))
    assert changes(driver.events[-1:]) == [("application", "ON_TIME", "INFO")]
    assert driver.passes(24 * HOUR) == []


def test_a_job_whose_end_was_lost_is_not_overdue() -> None:
    """A job that the driver no longer runs is forgotten: it never becomes overdue, or its incident is closed."""
    driver = Driver({"events.deadline.job": "5min", "events.deadline.resources": "off"})
    for job in (3, 4):
        driver.tell({"kind": "job_start", "job_id": job, "time": START})
    driver.jobs = [[4, 8]]
    assert changes(driver.passes(6 * MINUTE)) == [("job", "OVERDUE", "WARN")]
    assert driver.events[-1].attributes["spark.job.id"] == 4
    driver.jobs = []
    assert changes(driver.passes(HOUR)) == [("job", "ON_TIME", "INFO")]
    questions = driver.questions
    driver.passes(24 * HOUR)
    assert driver.questions == questions


def test_every_overdue_job_is_reported_with_few_requests() -> None:
    """A request covers 100 jobs, so 150 overdue jobs need two requests."""
    driver = Driver({"events.deadline.job": "5min", "events.deadline.resources": "off"})
    driver.jobs = [[job, job] for job in range(150)]
    for job, _ in driver.jobs:
        driver.tell({"kind": "job_start", "job_id": job, "time": START})
    assert {event.attributes["spark.job.id"] for event in driver.passes(6 * MINUTE)} == set(range(150))
    assert driver.questions == 2


def test_a_query_whose_end_was_lost_is_not_overdue() -> None:
    """A query without a thread has ended: its deadlines end, and the sidecar does not ask without a pause."""
    driver = Driver({"events.deadline.batch": "5min", "events.deadline.resources": "off"})
    driver.start()
    assert changes(driver.passes(6 * MINUTE)) == [("batch", "OVERDUE", "WARN")]
    del driver.threads["r1"]
    assert changes(driver.passes(HOUR)) == [("batch", "ON_TIME", "INFO")]
    assert driver.questions < 20


def test_a_query_whose_end_was_lost_is_not_lagging() -> None:
    """A query without a thread has ended, so its backlog no longer counts."""
    driver = Driver({"events.deadline.lag": "1000", "events.deadline.lag-time": "5min"})
    driver.start()
    driver.commits(1, sources=[{"endOffset": 1, "latestOffset": 5_000}])
    driver.threads.clear()
    assert driver.passes(HOUR) == []


def test_a_late_answer_ends_no_job() -> None:
    """The answer to an earlier request does not name the jobs of the last request, which are still running."""
    driver = Driver({"events.deadline.job": "5min", "events.deadline.resources": "off"})
    driver.tell({"kind": "job_start", "job_id": 3, "time": START})
    driver.jobs = [[3, 7]]
    driver.now += 5 * MINUTE
    driver.take(driver.translator.tick(driver.now))
    question = driver.translator.deadlines.take_question()
    assert question is not None
    jobs, driver.jobs = driver.jobs, []
    driver.answer({**question, "asked": question["asked"] - 1})
    driver.jobs = jobs
    assert changes(driver.passes(MINUTE)) == [("job", "OVERDUE", "WARN")]


def test_running_jobs_do_not_delay_the_next_deadline() -> None:
    """The next deadline is that of the oldest job on time, or the next one of an overdue job."""
    driver = Driver({"events.deadline.job": "5min", "events.deadline.resources": "off"})
    for job in range(3):
        properties = {"callSite.short": f"count at etl.py:{job}"}
        driver.tell({"kind": "job_start", "job_id": job, "time": driver.now, "properties": properties})
        driver.jobs.append([job, job])
        driver.passes(MINUTE)
    assert driver.translator.deadlines.next_due == START + 5 * MINUTE
    driver.passes(150 * SECOND)
    assert [e.attributes["spark.job.id"] for e in driver.events] == [0]
    assert driver.translator.deadlines.next_due == START + 6 * MINUTE
    driver.passes(10 * MINUTE)
    assert changes(driver.events) == [("job", "OVERDUE", "WARN")] * 3 + [("job", "OVERDUE", "ERROR")] * 1


@pytest.mark.parametrize(
    ("offset", "topic", "subject"),
    [(lambda n: {"clicks": {"0": n, "1": 0}}, "clicks", "topic 'clicks'"), (lambda n: n, None, "source 0")],
)
def test_a_backlog_that_stays_is_overdue(offset: Callable[[int], Any], topic: str | None, subject: str) -> None:
    """A backlog that stays above the limit is overdue, per topic or for a source whose offset is a single number."""
    driver = Driver({"events.deadline.lag": "1000", "events.deadline.lag-time": "5min"})
    driver.start()

    def commits(batch: int, behind: int) -> None:
        driver.commits(batch, sources=[{"endOffset": offset(batch), "latestOffset": offset(batch + behind)}])
        driver.waits()

    commits(1, 2_000)
    driver.passes(4 * MINUTE)
    commits(2, 1_000)
    assert driver.passes(HOUR) == []
    commits(3, 3_000)
    driver.passes(3 * MINUTE)
    commits(4, 1_234)
    (late,) = driver.passes(2 * MINUTE)
    assert late.body == (
        f"shop: {subject} of query 'clicks' has had more than 1,000 unread rows for 5 min (limit 5 min):"
        " 1,234 rows at the last commit"
    )
    assert late.attributes.get("spark.deadline.topic") == topic
    commits(5, 0)
    assert changes(driver.events[-1:]) == [("lag", "ON_TIME", "INFO")]


@pytest.mark.parametrize(
    ("unit", "limit", "large", "small", "attribute", "body"),
    [
        ("records", "1000", 2_000, 1_000, ("rows", 2_000), "more than 1,000 unread rows {}: 2,000 rows"),
        ("bytes", "1m", 2**21, 2**20, ("bytes", 2**21), "more than 1,048,576 unread bytes {}: 2,097,152 bytes"),
        ("files", "10", 11, 10, ("files", 11), "more than 10 unread files {}: 11 files"),
        ("seconds", "10min", 90_000, 60_000, ("seconds", 900.0), "more than 10 min of work unread {}: 15 min of work"),
    ],
)
def test_each_measure_of_a_backlog_has_a_limit(
    unit: str, limit: str, large: int, small: int, attribute: tuple[str, float], body: str
) -> None:
    """A backlog above its limit for the allowed time is overdue, and on time when it is within the limit again."""
    settings = {f"events.deadline.backlog.{unit}": limit, "events.deadline.backlog.time": "2min"}
    driver = Driver({**settings, "events.deadline.resources": "off"})
    driver.start()

    def commits(batch: int, behind: int) -> None:
        metrics = {"numBytesOutstanding": str(behind), "numFilesOutstanding": f"{behind}.0"}
        source = {"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 1 + behind}}, "metrics": metrics}
        # 1,000 rows in 10 s: 100 rows per second.
        driver.commits(batch, took=10_000, sources=[{**source, "numInputRows": 1_000}])
        driver.waits()

    commits(1, small)
    assert driver.passes(HOUR) == []
    commits(2, large)
    (late,) = driver.passes(3 * MINUTE)
    source = "shop: Source 0 of query 'clicks'"
    assert late.body == f"{source} has had {body} at the last commit".format("for 2 min (limit 2 min)").replace(
        "Source", "source"
    )
    assert late.attributes[f"spark.deadline.{attribute[0]}"] == attribute[1]
    commits(3, small)
    assert changes(driver.events) == [
        (f"backlog.{unit}", "OVERDUE", "WARN"),
        (f"backlog.{unit}", "ON_TIME", "INFO"),
    ]


def begin_batch(driver: Driver) -> None:
    driver.start()
    driver.commits(40)
    driver.works()


def begin_job(driver: Driver) -> None:
    driver.tell({"kind": "job_start", "job_id": 3, "time": driver.now})
    driver.jobs = [[3, 7]]


def begin_stage(driver: Driver) -> None:
    driver.stages = [stage(running=0, finished=0, time=driver.now, longest=None)]
    driver.idle_since = driver.now


def begin_backlog(driver: Driver) -> None:
    driver.start()
    driver.commits(1, sources=[{"endOffset": 1, "latestOffset": 2_001, "metrics": {"numFilesOutstanding": "2001"}}])
    driver.waits()


@pytest.mark.parametrize("step", [-HOUR, -10 * SECOND, 10 * SECOND, HOUR, 400 * 24 * HOUR])
@pytest.mark.parametrize(
    ("rule", "begin"),
    [
        ("batch", begin_batch),
        ("progress", begin_batch),
        ("job", begin_job),
        ("resources", begin_stage),
        ("lag", begin_backlog),
        ("backlog.files", begin_backlog),
        ("application", lambda _: None),
    ],
)
def test_a_step_of_the_clock_changes_no_limit(rule: str, begin: Callable[[Driver], None], step: int) -> None:
    """Work becomes overdue after the time that really passed, however the clock was set meanwhile."""
    off = {"events.deadline.resources": "off"}
    lag = {"events.deadline.lag": "1000", "events.deadline.lag-time": "6min"}
    backlog = {"events.deadline.backlog.files": "1000", "events.deadline.backlog.time": "6min"}
    others = {f"events.deadline.{rule}": "6min"}
    driver = Driver({**off, **{"lag": lag, "backlog.files": backlog}.get(rule, others)})
    begin(driver)
    assert driver.passes(4 * MINUTE) == []
    driver.sets_clock(step)
    assert driver.passes(MINUTE) == []
    late = driver.passes(MINUTE + 2 * SECOND)
    assert changes(late) == [(rule, "OVERDUE", "WARN")]
    assert late[0].attributes["spark.deadline.elapsed_ms"] == 6 * MINUTE
    driver.sets_clock(-step)
    assert changes(driver.passes(11 * MINUTE)) == []
    assert changes(driver.passes(2 * MINUTE)) == [(rule, "OVERDUE", "ERROR")]


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_work_recorded_before_a_step_and_read_after_it_is_on_time(step: int) -> None:
    """A job or a stage whose start has a time of the clock before its step becomes overdue at most one limit late."""
    driver = Driver({"events.deadline.resources": "6min", "events.deadline.job": "6min"})
    before = driver.now
    driver.sets_clock(step)
    driver.tell({"kind": "job_start", "job_id": 3, "time": before})
    driver.jobs, driver.idle_since = [[3, 7]], before
    driver.stages = [stage(running=0, finished=0, time=before, longest=None)]
    assert driver.passes(6 * MINUTE - SECOND) == []


@pytest.mark.parametrize("step", [-HOUR, -10 * SECOND, 10 * SECOND, HOUR])
def test_a_step_between_request_and_answer_is_no_pause(step: int) -> None:
    """An answer after a step of the clock belongs to its request; it does not restart the limits."""
    driver = Driver({"events.deadline.job": "6min", "events.deadline.resources": "off"})
    begin_job(driver)
    driver.now += 6 * MINUTE
    assert driver.translator.tick(driver.now) == []
    question = driver.translator.deadlines.take_question()
    assert question is not None
    driver.sets_clock(step)
    driver.answer(question)
    assert changes(driver.events) == [("job", "OVERDUE", "WARN")]


@pytest.mark.parametrize("is_witnessed", [True, False])
def test_a_killed_driver_leaves_no_hang_open(is_witnessed: bool) -> None:
    """The sidecar reports that the hang is over; if it died too, the next run's first commit closes the incident."""
    driver = Driver()
    begin_batch(driver)
    (late,) = driver.passes(5 * MINUTE)
    key = late.attributes["incident.key"]
    if is_witnessed:
        recovered, lost = driver.translator.driver_lost(driver.now, orderly=False)
        assert (recovered.attributes["incident.key"], recovered.attributes["incident.role"]) == (key, "recovery")
        assert lost.attributes["spark.status.new"] == "LOST"
        return
    following = Driver()
    following.start("r2")
    progress = decoded(query_progress(41, "r2", "q1", timestamp=iso(following.now)))
    events = following.translator.translate(progress)
    (commit,) = [event for event in events if event.attributes.get("incident.role") == "recovery"]
    assert key in json.loads(str(commit.attributes["incident.more_keys"]))


def test_a_restarted_sidecar_repeats_no_deadline_event() -> None:
    """A restarted sidecar does not repeat events of overdue work, but reports later changes of this work."""
    driver = Driver()
    driver.start()
    driver.commits(0)
    driver.works()
    assert len(driver.passes(6 * MINUTE)) == 1
    driver.restarts_sidecar()
    assert driver.passes(MINUTE) == []
    assert changes(driver.passes(HOUR)) == [("batch", "OVERDUE", "ERROR")]
    driver.restarts_sidecar()
    assert driver.passes(HOUR) == []
    driver.commits(1)
    assert changes(driver.events) == [
        ("batch", "OVERDUE", "WARN"),
        ("batch", "OVERDUE", "ERROR"),
        ("batch", "ON_TIME", "INFO"),
    ]


def test_a_paused_driver_has_no_overdue_work() -> None:
    """While a debugger pauses the driver, no work becomes overdue. After the pause, all times restart at zero."""
    driver = Driver({**LIMIT, "events.deadline.job": "5min"})
    driver.start()
    driver.tell({"kind": "job_start", "job_id": 3, "time": START})
    driver.jobs = [[3, 7]]
    driver.passes(4 * MINUTE)
    driver.stands_until = driver.now + HOUR
    assert driver.passes(HOUR + 4 * MINUTE) == []
    assert len(driver.passes(2 * MINUTE)) == 2


@pytest.mark.parametrize("value", ["0s", "-5min", "5", "never"])
@pytest.mark.parametrize("key", ["events.deadline.batch", "events.deadline.query.clicks.batch", "events.deadline.job"])
def test_limits_must_be_above_zero(key: str, value: str) -> None:
    """A limit of zero or less is rejected, and the message contains the key."""
    settings = Settings.of({key: value})
    read(settings)
    with pytest.raises(ConfigError, match=rf"{key}: given .*expected off, or a whole number above 0"):
        settings.check()


@pytest.mark.parametrize("value", ["0", "-1"])
@pytest.mark.parametrize(
    "rule", ["lag", "backlog.records", "backlog.bytes", "backlog.files", "backlog.seconds", "backlog.time"]
)
def test_the_backlog_must_be_above_zero(rule: str, value: str) -> None:
    """A backlog limit of zero or less is rejected, and the message contains the key."""
    settings = Settings.of({f"events.deadline.{rule}": value})
    read(settings)
    with pytest.raises(ConfigError, match=rf"events\.deadline\.{rule}: given"):
        settings.check()


def test_a_rule_for_an_unknown_query_is_a_warning_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """If a rule names a query that never started, a warning at the application's end contains the key of the rule."""
    driver = Driver({**LIMIT, "events.deadline.query.clicks.batch": "1h", "events.deadline.query.absent.batch": "1h"})
    driver.start()
    assert caplog.messages == []
    with caplog.at_level(logging.WARNING):
        driver.tell(application_end(provisional=True))
        driver.tell(application_end())
    (message,) = caplog.messages
    assert message.startswith("events.deadline.query.absent.batch: no query of this name has started")


def test_without_rules_no_record_is_examined() -> None:
    """Without rules, the sidecar inspects no record and sends no query to the driver."""
    driver = Driver({"events.deadline.resources": "off"})
    driver.start()
    assert driver.translator.deadlines.handlers == {}
    assert driver.translator.deadlines.next_due is None


def test_a_question_without_an_answer_is_repeated() -> None:
    """If the driver does not answer, the sidecar repeats the query, because Spark or the shim may have dropped it."""
    driver = Driver()
    driver.start()
    driver.now += 5 * MINUTE
    for _ in range(3):
        driver.take(driver.translator.tick(driver.now))
        assert driver.translator.deadlines.take_question() is not None
        assert driver.translator.deadlines.take_question() is None
        assert driver.translator.deadlines.next_due == driver.now + 10 * SECOND
        driver.now += 10 * SECOND


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        (["com.acme.jobs.Sink.write(Sink.scala:12)", "a.MicroBatchExecution.runBatch(M:1)"], "Sink.write"),
        (["sun.nio.X.read(X.java)", "py4j.reflection.PythonProxyHandler.invoke(P.java:1)"], "a Python function"),
        (
            ["org.x.SlowFs.create(SlowFs.java:5)", "o.CommitLog.add(C:1)", "o.M.markMicroBatchEnd(M:1)"],
            "SlowFs.create, committing",
        ),
    ],
)
def test_the_location_prefers_the_user_s_code(frames: list[str], text: str) -> None:
    """The location is the user's code. Without user code, it is Spark's code, or a library on which Spark waits."""
    driver = Driver()
    driver.start()
    driver.works(frames=frames)
    (late,) = driver.passes(6 * MINUTE)
    assert f": waiting in {text}" in late.body
    if "acme" in frames[0]:
        assert late.attributes["spark.deadline.location"] == "Sink.scala:12 in Sink.write"


def test_a_long_frame_is_analysed_in_linear_time() -> None:
    """A frame with very many brackets is analysed at once; quadratic time would be minutes."""
    frames = ["a.b(" * 100_000, "org.x.SlowFs.create(SlowFs.java:5)"]
    place = place_of(QueryThread(run_id="r1", frames=frames), [], 0, UserCode())
    assert place is not None
    assert place.text == "waiting in SlowFs.create"


def test_a_replay_reports_overdue_work_from_the_times_of_the_log() -> None:
    """Replayed events have the same ids and times as live events. A job without an end counts until the log ends.

    Severities may differ: a replay judges each work when it ends, so it does not know which limit passed first.
    """
    limits = {**LIMIT, "events.deadline.job": "10min", "events.deadline.resources": "2min"}
    driver = Driver(limits)
    driver.start()
    driver.commits(0)
    driver.tell({"kind": "job_start", "job_id": 3, "time": driver.now})
    driver.works()
    driver.jobs = [[3, 7]]
    driver.stages, driver.idle_since = [stage(running=0, finished=0, time=driver.now, longest=None)], 1
    driver.passes(20 * MINUTE)
    waiting = msgspec.convert(driver.stages[0], RunningStage)
    waited = StageWaited(stage=waiting, since=START, time=driver.now + SECOND)
    driver.stages, driver.idle_since = [], 0
    driver.passes(SECOND)
    driver.commits(1, took=20 * MINUTE + SECOND)
    driver.tell(application_end(time=driver.now))
    translator = Translator(driver.config)
    replayed: list[Event] = []
    for record in driver.records:
        if record["kind"] == "application_end":
            replayed += translator.translate(waited)
        if record["kind"] != "inspection":
            replayed += translator.translate(decoded({**record, "seq": 0}))
    again = [event for event in replayed if event.name == "DeadlineStatusChangeEvent"]
    assert {e.event_id for e in again} == {e.event_id for e in driver.events}
    overdue = [
        {(e.event_id, e.observed_ts_millis) for e in events if e.attributes["spark.status.new"] == "OVERDUE"}
        for events in (again, driver.events)
    ]
    assert overdue[0] == overdue[1]


@pytest.mark.no_cover
def test_24_hours_of_healthy_queries_cause_no_alarm() -> None:
    """In 24 hours, healthy queries cause no alarm, whether idle, slow, infrequent, restarted, stateful or paused."""
    rules = {"events.deadline.batch": "5min", "events.deadline.progress": "5min", "events.deadline.job": "1h"}
    rules |= {"events.deadline.lag": "1000", "events.deadline.application": "36h"}
    driver = Driver(rules)
    chance = random.Random(27)
    names = {"busy": 20, "slow": 270, "rare": 60, "idle": 0, "stateful": 100}
    runs = dict.fromkeys(names, 0)
    batches = dict.fromkeys(names, 0)
    next_at = dict.fromkeys(names, START)
    ends_at: dict[str, int] = {}
    for name in names:
        driver.start(f"{name}0", name, name)
    while driver.now < START + 24 * HOUR:
        driver.passes(SECOND * chance.randint(1, 5))
        if chance.random() < 0.0005:
            pause = chance.randint(6, 120) * MINUTE
            driver.stands_until = driver.now + pause
            driver.passes(pause)
            next_at = {name: max(at, driver.now) for name, at in next_at.items()}
            ends_at = {name: at + pause for name, at in ends_at.items()}
        for name, longest in names.items():
            run = f"{name}{runs[name]}"
            if name in ends_at:
                if driver.now >= ends_at[name]:
                    del ends_at[name]
                    batches[name] += 1
                    driver.commits(batches[name], run, name, sources=[{"endOffset": 5, "latestOffset": 900}])
                    pause = HOUR if name == "rare" else 0
                    next_at[name] = driver.now + pause
                    if pause:
                        driver.waits(run)
            elif driver.now >= next_at[name]:
                if longest == 0:
                    driver.waits(run)
                    driver.idles(run, name)
                    next_at[name] = driver.now + 10 * SECOND
                    continue
                if chance.random() < 0.01:
                    driver.tell(query_terminated(run, name))
                    del driver.threads[run]
                    runs[name] += 1
                    run = f"{name}{runs[name]}"
                    driver.start(run, name, name)
                driver.works(run)
                ends_at[name] = driver.now + SECOND * chance.randint(1, longest)
    assert batches["busy"] > 1_000
    assert driver.questions > 500
    assert [json.dumps(event.body) for event in driver.events] == []
