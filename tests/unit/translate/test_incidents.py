"""Tests of alarms: for each situation, exactly one alarm with the correct cause, or no alarm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fakes import (
    START,
    application_end,
    application_start,
    decoded,
    query_progress,
    query_started,
    query_terminated,
)

from spark_events import Event, Severity
from spark_events.translate.incidents.fingerprint import fingerprint
from spark_events.translate.incidents.incident_config import LinkConfig
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

Records = list[dict[str, Any]]
NONE: Mapping[str, str] = {}

UDF = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "/jobs/payments.py", line 16, in book\n    raise ValueError(x)\n'
    "ValueError: payment 1003 has no currency\n\n\tat org.apache.spark.A.b(A.scala:1)\n"
)
BOOKED = "ValueError: payment 1003 has no currency (payments.py:16)"
MEMORY = "java.lang.OutOfMemoryError: Java heap space\n\tat org.apache.spark.sql.execution.SparkPlan.x(S:4)"
FETCH = "org.apache.spark.shuffle.FetchFailedException: Failed to connect to h1:7337\n\tat a.B.c(B.java:1)"
TOO_OFTEN = (
    "Job aborted due to stage failure: ResultStage 3 (count at job.py:9) has failed the maximum allowable number of"
    f" times: 4. Most recent failure reason:\n{FETCH}"
)
SINK = "java.io.IOException: No space left on device\n\tat a.B.c(B.java:1)"
GONE = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this partition.\n"
ANALYSIS = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703"
WORKER = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): exit code 137\n\tat a.B.c(B:1)"
LOST = "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Command exited with code 137"
CANCELLED = "[SPARK_JOB_CANCELLED] Job 4 cancelled part of cancelled job group nightly SQLSTATE: XXKDA"
STREAM = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "1"}


def aborted(cause: str) -> str:
    return (
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "
        f"Lost task 0.3 in stage 3.0 (TID 7) (10.0.0.9 executor 2): {cause}\nDriver stacktrace:"
    )


def failed_stage(reason: str, attempt: int = 0, properties: Mapping[str, str] = NONE) -> Records:
    about = {"stage_id": 3, "attempt": attempt, "name": "s", "tasks": 2, "time": START + 2, "at": START + 2}
    return [
        {"kind": "stage_submitted", **about, "properties": properties},
        {"kind": "stage_completed", **about, "failed": 1, "failure_reason": reason},
    ]


def failed_job(
    cause: str, properties: Mapping[str, str] = NONE, *, number: int = 4, at: int = 3, is_task: bool = True
) -> Records:
    message = aborted(cause) if is_task else cause
    link = {"type": "org.apache.spark.SparkException", "message": message}
    trace = f"org.apache.spark.SparkException: {message}"
    stage = failed_stage(message, 0, properties) if is_task else []
    end = {"kind": "job_end", "job_id": number, "failure": {"chain": [link], "trace": trace}}
    return [*good_job(number, at, properties)[:1], *stage, {**end, "at": START + at, "time": START + at}]


def good_job(number: int = 5, at: int = 4, properties: Mapping[str, str] = NONE) -> Records:
    moment = {"job_id": number, "time": START + at, "at": START + at}
    return [{"kind": "job_start", **moment, "properties": properties}, {"kind": "job_end", **moment}]


def failed_sql(error: str | None, **changes: Any) -> dict[str, Any]:
    about = {"execution_id": 7, "root_id": 7, "description": "save at etl.py:9", "time": START + 3, "at": START + 3}
    return {"kind": "sql_execution_end", **about, "error": error, **changes}


def removed(reason: str) -> dict[str, Any]:
    return {"kind": "executor_removed", "executor_id": "2", "at": START + 1, "time": START + 1, "reason": reason}


PROGRAM_FAILED = application_end("PROGRAM_FAILED", program_exit_code=1)
STREAMING = [query_started(name="book-payments"), query_progress(0, name="book-payments")]
FAILED = "shop: application failed with exit code 1"
LAST = f"{FAILED}: cause unknown; last failure before:"
BECAUSE = {"chain": [{"type": "py4j.protocol.Py4JJavaError", "message": ""}], "trace": UDF}
QUERY_FAILED = "shop: query 'book-payments' failed at batch 1"


def ended(ending: str, seconds: float = 0.1, **changes: Any) -> dict[str, Any]:
    """Return the end of the application, some seconds after the last of the failures above."""
    at = START + 3 + round(seconds * 1000)
    return application_end(ending, at=at, time=at, **changes)


#: For each situation: the records, and the body of the one alarm, or None if there is no alarm.
SITUATIONS: dict[str, tuple[Records, str | None]] = {
    "a job fails, then the program": (
        [*failed_job(UDF), ended("PROGRAM_FAILED", program_exit_code=1)],
        f"{LAST} job 4, 0.1 s earlier: {BOOKED}",
    ),
    "a job fails, and its exception ends the program": (
        [*failed_job(UDF), application_end("PROGRAM_FAILED", program_exit_code=1, failure=BECAUSE)],
        f"{FAILED}: job 4 failed: {BOOKED}",
    ),
    "a caught failure, then another death": (
        [*failed_job(UDF), ended("PROGRAM_FAILED", 41, program_exit_code=1)],
        f"{LAST} job 4, 41 s earlier: {BOOKED}",
    ),
    "a caught failure, success, then another death": (
        [*failed_job(UDF), *good_job(), PROGRAM_FAILED],
        f"{FAILED}: cause unknown",
    ),
    "a SQL execution fails, then the program": (
        [failed_sql(ANALYSIS), ended("PROGRAM_FAILED", program_exit_code=1)],
        f"{LAST} SQL execution 7, 0.1 s earlier: {ANALYSIS}",
    ),
    "the driver has no memory": (
        [failed_sql(MEMORY), ended("SPARK_EXITED", exit_code=52)],
        "shop: application failed with exit code 52: cause unknown; last failure before: SQL execution 7, 0.1 s"
        " earlier: java.lang.OutOfMemoryError: Java heap space",
    ),
    "an executor is lost, and Spark retries": ([removed("137"), *good_job(), application_end()], None),
    "a fetch fails, and Spark retries": ([*failed_stage(FETCH), *good_job(), application_end()], None),
    "a query fails, and the program goes on": (
        [*STREAMING, query_terminated(exception=GONE)],
        f"{QUERY_FAILED}: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host "
        "this partition.",
    ),
    "a query fails, then its program": (
        [*STREAMING, *failed_job(SINK, STREAM), query_terminated(exception=SINK), PROGRAM_FAILED],
        f"{QUERY_FAILED}: java.io.IOException: No space left on device",
    ),
    "a query fails in a program that stops Spark in finally": (
        [*STREAMING, query_terminated(exception=SINK), application_end("STOPPED")],
        f"{QUERY_FAILED}: java.io.IOException: No space left on device",
    ),
    "a failure is caught, and the program goes on": ([*failed_job(UDF), *good_job(), application_end()], None),
    "a failure of foreachBatch is caught": ([*STREAMING, *failed_job(UDF, STREAM), query_progress(1)], None),
    "the user cancels a job": ([*failed_job(CANCELLED, is_task=False), application_end()], None),
    "a job fails in a program that stops Spark in finally": (
        [*failed_job(UDF), application_end("STOPPED")],
        f"shop: application ended after its last job failed: {BOOKED}; exit code unknown",
    ),
    "a job fails, and the exit code is unknown": (
        [*failed_job(UDF), application_end("GATEWAY_CLOSED")],
        f"shop: application ended after its last job failed: {BOOKED}; exit code unknown",
    ),
    "a job fails, and the JVM shuts down": (
        [*failed_job(UDF), application_end("STOPPED", program_exit_code=0)],
        None,
    ),
    "nothing failed, and the program stopped Spark": ([*good_job(), application_end("STOPPED")], None),
    "a job fails, and nothing follows": ([*failed_job(UDF)], None),
}


def story(records: Sequence[dict[str, Any]]) -> Records:
    return [{"seq": number, **record} for number, record in enumerate([application_start(), *records], 1)]


def translate(records: Sequence[dict[str, Any]], translator: Translator | None = None) -> list[Event]:
    translator = translator or Translator()
    events = [event for record in story(records) for event in translator.translate(decoded(record))]
    events += translator.tick(START + 10_000)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    return events


def alarms(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.severity >= Severity.ERROR]


def roles(events: Sequence[Event]) -> list[str]:
    """Return the incident roles of the events, without recoveries."""
    found = [str(event.attributes.get("incident.role", "")) for event in events]
    return [role for role in found if role not in ("", "recovery")]


def failures(events: Sequence[Event]) -> list[tuple[str, str, str]]:
    """Return entity, severity and role of each failure."""
    found = [event for event in events if event.name == "JobFailureEvent"]
    return [
        (str(e.attributes["spark.entity"]), e.severity.value, str(e.attributes.get("incident.role"))) for e in found
    ]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_situation_has_one_alarm_or_none(situation: str) -> None:
    records, body = SITUATIONS[situation]
    events = translate(records)
    assert [event.body for event in alarms(events)] == ([] if body is None else [body])
    for alarm in alarms(events):
        assert alarm.name == "JobFailureEvent"
        assert alarm.attributes["incident.role"] == "alarm"
        assert alarm.attributes["incident.id"] == alarm.event_id
    assert {role for event in events for role in roles([event]) if event.severity < Severity.ERROR} <= {
        "member",
        "consequence",
    }


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_event_is_decided_by_its_own_record(situation: str) -> None:
    """What follows a record changes none of its events, so a killed sidecar's successor makes the same events."""
    records = story(SITUATIONS[situation][0])
    whole = Translator()
    for cut, record in enumerate(records):
        expected = whole.translate(decoded(record))
        successor = Translator()
        for earlier in records[:cut]:
            successor.restore(decoded(earlier))
        again = successor.translate(decoded(record))
        assert [(e.event_id, e.severity, e.attributes.get("incident.role"), e.body) for e in again] == [
            (e.event_id, e.severity, e.attributes.get("incident.role"), e.body) for e in expected
        ]


def test_severities_below_the_alarm() -> None:
    """A failed job is WARN. Its stage and its SQL execution are INFO, because the job reports the failure."""
    own = {"spark.sql.execution.id": "7"}
    start, *rest = failed_job(UDF, own)
    events = translate([{**start, "stages": [2, 3]}, *rest, failed_sql(aborted(UDF))])
    assert failures(events) == [
        ("stage", "INFO", "member"),
        ("job", "WARN", "member"),
        ("sql", "INFO", "member"),
    ]
    (incident,) = {event.attributes["incident.id"] for event in events if "incident.id" in event.attributes}
    (job,) = [event for event in events if event.name == "JobFailureEvent" and event.class_scope == "spark.job"]
    assert incident == job.event_id
    assert failures(translate(failed_stage(FETCH))) == [("stage", "WARN", "member")]
    assert failures(translate([failed_sql(ANALYSIS)])) == [("sql", "WARN", "member")]


def test_a_sql_execution_that_ends_before_its_job() -> None:
    """Two Spark threads report the ends of a job and of its SQL execution. The failed stage comes before both."""
    own = {"spark.sql.execution.id": "7"}
    start, *stage, end = failed_job(UDF, own)
    events = translate([{**start, "stages": [3]}, *stage, failed_sql(UDF), end])
    assert failures(events) == [("stage", "INFO", "member"), ("sql", "INFO", "member"), ("job", "WARN", "member")]
    assert len({event.attributes["incident.id"] for event in events if "incident.id" in event.attributes}) == 1


@pytest.mark.parametrize("reason", [CANCELLED, "Job 4 cancelled because SparkContext was shut down"])
def test_a_cancelled_job_is_no_failure(reason: str) -> None:
    events = translate(failed_job(reason, is_task=False))
    assert failures(events) == []
    (change,) = [event for event in events if event.attributes.get("spark.status.new") == "CANCELLED"]
    assert (change.severity, change.attributes["spark.status.reason"]) == (Severity.INFO, reason)
    assert roles(events) == []


def test_an_event_of_the_program_keeps_its_severity() -> None:
    own = {"id": "1", "name": "JobFailureEvent", "class_scope": "shop.orders", "severity": "ERROR", "body": "own"}
    *_, event = translate([{"kind": "added", "at": START + 3, "event": own}])
    assert (event.severity, event.body, roles([event])) == (Severity.ERROR, "own", [])


@pytest.mark.parametrize(
    ("seconds", "running", "is_consequence"),
    [(0.1, False, True), (9.9, False, True), (10.5, False, False), (0.1, True, False), (-5.0, False, True)],
)
def test_an_application_that_ends_soon_after_its_query(seconds: float, running: bool, is_consequence: bool) -> None:
    """Without other evidence, the query must be the last thing running, and the end must follow within 10 s.

    Spark may date the application's end before the query's, because its listener bus has a backlog.
    """
    others = [query_started("r2", "q2", "other")] if running else []
    end = START + 900 + round(seconds * 1000)
    records = [*STREAMING, *others, query_terminated(exception=SINK, at=START + 900)]
    events = translate([*records, application_end("PROGRAM_FAILED", program_exit_code=1, at=end, time=end)])
    assert len(alarms(events)) == (1 if is_consequence else 2)
    *_, last = events
    if is_consequence:
        assert (last.severity, last.attributes["incident.role"]) == (Severity.INFO, "consequence")
        assert last.attributes["incident.id"] == alarms(events)[0].event_id
        assert f"{FAILED} after query 'book-payments' failed at batch 1" in last.body
    else:
        assert "cause unknown; last failure before: query 'book-payments'" in last.body


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_jumps_between_a_query_and_its_application(hours: int) -> None:
    """If the clock jumps, the time between the two ends is unknown, so the application is an alarm of its own."""
    end = START + 900 + hours * 3_600_000
    records = [*STREAMING, query_terminated(exception=SINK, at=START + 900)]
    events = translate([*records, application_end("PROGRAM_FAILED", program_exit_code=1, at=end, time=end)])
    assert len(alarms(events)) == 2


@pytest.mark.parametrize("trace", [f"Traceback: StreamingQueryException: [id = q1, runId = r1]\n{SINK}", SINK])
def test_an_application_that_fails_because_of_its_query(trace: str) -> None:
    """The exception that ended the program proves that the query's failure is the cause, however late."""
    failure = {"chain": [{"type": "py4j.Py4JError", "message": ""}], "trace": trace}
    end = ended("PROGRAM_FAILED", 500, program_exit_code=1, failure=failure)
    events = translate([*STREAMING, query_terminated(exception=SINK), end])
    (alarm,) = alarms(events)
    assert alarm.attributes["spark.entity"] == "query"
    assert f"{FAILED} because query 'book-payments' failed at batch 1" in events[-1].body
    assert events[-1].attributes["incident.key"] == "shop/query=book-payments/failure"


@pytest.mark.parametrize(
    "message",
    [
        "py4j.Py4JException: Received empty command",
        "py4j.Py4JException: Error while sending a command.",
        "py4j.Py4JNetworkException: Error while obtaining a new communication channel",
        "py4j.Py4JException: Cannot obtain a new communication channel",
    ],
)
@pytest.mark.parametrize(
    ("other", "end", "alarm"),
    [
        ([], application_end("GATEWAY_CLOSED", program_exit_code=0), None),
        ([], PROGRAM_FAILED, f"{FAILED}: cause unknown"),
        ([], application_end("PYTHON_DIED"), "shop: application ended: its Python process exited without its exit hoo"),
        ([query_terminated("r2", "q2", exception=SINK)], PROGRAM_FAILED, "shop: query 'b' failed: java.io.IOException"),
    ],
)
def test_a_query_that_loses_its_program_is_no_alarm(message: str, other: Records, end: Any, alarm: str | None) -> None:
    """If the program ends while a query calls it, the application's end decides about the alarm."""
    lost = query_terminated(exception=f"StreamingQueryException: failed\nCaused by: {message}\n\tat py4j.A.b(A.java:1)")
    queries = [query_started(name="a"), query_started("r2", "q2", name="b")]
    events = translate([*queries, *other, lost, end])
    found = [event.body for event in alarms(events)]
    assert [body[: len(alarm or "")] for body in found] == ([] if alarm is None else [alarm])
    (own,) = [
        e for e in events if e.name == "JobFailureEvent" and e.attributes.get("spark.streaming.query.name") == "a"
    ]
    assert own.body.startswith("shop: query 'a' failed because its Python program had ended: ")


LOST_PROGRAM = query_terminated(exception="py4j.Py4JException: Received empty command")


@pytest.mark.parametrize(
    ("signal", "before", "found"),
    [
        ("SIGKILL", [], "shop: application ended: its Python process was killed by SIGKILL"),
        ("SIGKILL", [LOST_PROGRAM], "shop: application ended: its Python process was killed by SIGKILL"),
        ("SIGSEGV", [], "shop: application ended: its Python process was killed by SIGSEGV"),
        ("SIGTERM", [LOST_PROGRAM], None),
        ("SIGINT", [], None),
        (None, [], None),
    ],
)
def test_a_killed_python_process_is_an_alarm(signal: str | None, before: Records, found: str | None) -> None:
    """A signal that nobody sends to end a program is a failure; if the signal is unknown, so is the outcome."""
    events = translate([*STREAMING, *before, application_end("PYTHON_DIED", exit_signal=signal)])
    assert [event.body for event in alarms(events)] == ([] if found is None else [found])


@pytest.mark.parametrize(
    "cause", ["py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: x"]
)
def test_a_query_whose_program_raises_an_exception_is_an_alarm(cause: str) -> None:
    assert len(alarms(translate([query_started(name="a"), query_terminated(exception=cause)]))) == 1


def test_a_query_that_fails_repeatedly_has_one_key() -> None:
    records = [*STREAMING, query_terminated(exception=SINK)]
    again = query_started("r2", name="book-payments", at=START + 100)
    records += [again, query_terminated("r2", exception=SINK, at=START + 5_000)]
    first, second = alarms(translate(records))
    assert first.attributes["incident.key"] == second.attributes["incident.key"] == "shop/query=book-payments/failure"
    assert first.attributes["incident.id"] != second.attributes["incident.id"]


def test_a_job_of_a_query_belongs_to_the_incident_of_its_run() -> None:
    other = {**STREAM, "sql.streaming.queryId": "q2"}
    queries = [query_started(name="book-payments"), query_started("r2", "q2", "other")]
    jobs = [*failed_job(SINK, STREAM), *failed_job(SINK, other, number=5)]
    ends = [query_terminated(exception=SINK), query_terminated("r2", "q2", exception=SINK)]
    incidents: dict[object, set[object]] = {}
    for event in translate([*queries, *jobs, *ends]):
        if "incident.id" in event.attributes and event.attributes["spark.entity"] != "application":
            run = event.attributes["spark.streaming.query.run_id"]
            incidents.setdefault(run, set()).add(event.attributes["incident.id"])
    assert [len(found) for found in incidents.values()] == [1, 1]
    assert len(set.union(*incidents.values())) == 2


def test_a_failed_enrichment_belongs_to_its_query() -> None:
    about = {
        "spark.streaming.query.id": "q1",
        "spark.streaming.query.run_id": "r1",
        "spark.enrich.outcome": "failed",
    }
    event = {"id": "1", "name": "EnrichmentEvent", "class_scope": "spark_events.enrich", "severity": "WARN"}
    added = {"kind": "added", "at": START + 3, "event": {**event, "body": "failed", "attributes": about}}
    events = translate([*STREAMING, added, query_terminated(exception=SINK)])
    (alarm,) = alarms(events)
    (enriched,) = [event for event in events if event.name == "EnrichmentEvent"]
    assert enriched.attributes["incident.id"] == alarm.event_id
    assert roles([enriched]) == ["member"]


def test_the_application_s_exception_names_the_previous_failure() -> None:
    """The failure before an exception is a fact about time."""
    failure = {"chain": [{"type": "java.lang.RuntimeException", "message": "load failed"}]}
    (alarm,) = alarms(translate([*failed_job(UDF), application_end("UNCAUGHT_EXCEPTION", failure=failure)]))
    assert alarm.body == (
        "shop: application failed: its main method threw an exception: java.lang.RuntimeException: load failed"
        f" (after job 4 failed: {BOOKED})"
    )


def test_an_unknown_cause_is_not_labelled() -> None:
    """The failure that preceded the end has attributes of its own; the class of the end is unknown."""
    (alarm,) = alarms(translate([*failed_job(UDF), ended("PROGRAM_FAILED", 41, program_exit_code=1)]))
    assert alarm.attributes["failure.class"] == "UNKNOWN"
    assert "failure.root_cause" not in alarm.attributes
    assert "failure.retry_useful" not in alarm.attributes
    assert alarm.attributes["failure.preceding.work"] == "job 4"
    assert alarm.attributes["failure.preceding.root_cause"] == "ValueError: payment 1003 has no currency"
    assert alarm.attributes["failure.preceding.seconds"] == 41.0


def test_a_lost_driver_is_an_alarm() -> None:
    translator = Translator()
    for record in story(failed_job(UDF)):
        translator.translate(decoded(record))
    (alarm,) = translator.driver_lost(START + 500, orderly=False)
    assert (alarm.severity, alarm.attributes["incident.role"]) == (Severity.FATAL, "alarm")
    assert alarm.body.endswith(f"(before that, job 4 failed: {BOOKED})")


def test_a_driver_that_exits_after_a_failure() -> None:
    """If the JVM shuts down in order, the outcome is unknown; a failure that stands is the alarm."""
    translator = Translator()
    for record in story(failed_job(UDF)):
        translator.translate(decoded(record))
    change, alarm = translator.driver_lost(START + 500, orderly=True)
    assert change.attributes["spark.status.new"] == "ENDED"
    assert alarm.body == f"shop: application ended after its last job failed: {BOOKED}; exit code unknown"


def test_links_of_a_failure() -> None:
    """Links of a failure come from the driver and from the settings, which take precedence."""
    links = {"history": "h:18080", "tracking": "http://rm/proxy/a"}
    start = application_start(app_id="application_1_2", attempt_id="1", links=links)
    job = failed_job(UDF)
    records = [start, *job[:-1], {**job[-1], "ui": "http://10.0.0.9:4040"}]

    def found(config: LinkConfig) -> dict[str, object]:
        translator = Translator(TranslateConfig(link=config))
        events = [event for record in records for event in translator.translate(decoded(record))]
        (failed,) = [event for event in events if event.name == "JobFailureEvent" and event.class_scope == "spark.job"]
        return {key: value for key, value in failed.attributes.items() if key.endswith("url")}

    assert found(LinkConfig()) == {
        "spark.ui.url": "http://10.0.0.9:4040",
        "spark.history.url": "http://h:18080/history/application_1_2/1/jobs/",
        "spark.yarn.tracking_url": "http://rm/proxy/a",
    }
    templates = "https://wiki/{app}#{error_type}", "https://logs/{app_id}", "https://traces/{app_id}"
    configured = found(LinkConfig("https://history", *templates))
    assert configured["spark.history.url"] == "https://history/history/application_1_2/1/jobs/"
    assert configured["incident.runbook_url"] == "https://wiki/shop#ValueError"
    assert configured["spark.log.url"] == "https://logs/application_1_2"
    assert configured["spark.trace.url"] == "https://traces/application_1_2"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("payment 1003 has no currency", "payment 7 has no currency"),
        ("Failed to connect to ip-10-0-0-5.ec2.internal/10.0.0.5:7337", "Failed to connect to worker2/172.16.0.1:41"),
        ("Path does not exist: file:/tmp/a1/orders", "Path does not exist: file:/home/ada/orders"),
        ("No such file: /tmp/blockmgr-0c1d/0c/shuffle_0_0_0.index", "No such file: /data/b/11/shuffle_3_1_0.index"),
        ("run 6f595dfe-64f8-4732-9d1e-01d23ed89ab7 at 0x7f3a", "run 0c5b1c3e-7a34-4b9c-8f2d-0123456789ab at 0x11b"),
        ("kafka-a: Name or service not known", "kafka.prod: Name or service not known"),
        ("cut\nfurther lines", "cut\nother lines"),
    ],
)
def test_the_fingerprint_ignores_varying_parts(one: str, other: str) -> None:
    """The fingerprint ignores ids, numbers, memory addresses, folders, and the line number in the user's code."""
    frame, moved = "/jobs/payments.py:16 in book", "/home/ada/payments.py:21 in book"
    assert fingerprint("a.B", one, frame) == fingerprint("a.B", other, moved)


@pytest.mark.parametrize(
    ("error_type", "message", "location"),
    [
        ("a.C", "no currency", "p.py:1 in f"),
        ("a.B", "no amount", "p.py:1 in f"),
        ("a.B", "no currency", "q.py:1 in f"),
        ("a.B", "no currency", "p.py:1 in g"),
        ("a.B", "no currency", None),
    ],
)
def test_different_causes_have_different_fingerprints(error_type: str, message: str, location: str | None) -> None:
    """The fingerprint depends on the error type, the words of the message, the file and the function."""
    assert fingerprint("a.B", "no currency", "p.py:1 in f") != fingerprint(error_type, message, location)


def test_one_cause_has_one_fingerprint_on_every_level() -> None:
    """If a stage, its job, query and application fail for the same cause, their fingerprints are equal."""
    events = translate([*failed_job(UDF), application_end("PROGRAM_FAILED", failure=BECAUSE)])
    found = {event.attributes["failure.fingerprint"] for event in events if event.name == "JobFailureEvent"}
    assert len(found) == 1


def test_a_condition_has_one_fingerprint_with_and_without_the_exception_s_type() -> None:
    """Spark omits the type of the exception in the error of a SQL execution."""
    records = [*failed_job(f"org.apache.spark.sql.AnalysisException: {ANALYSIS}"), failed_sql(ANALYSIS)]
    found = [event.attributes for event in translate(records) if event.name == "JobFailureEvent"]
    assert [attributes["spark.entity"] for attributes in found] == ["stage", "job", "sql"]
    assert len({attributes["failure.fingerprint"] for attributes in found}) == 1
