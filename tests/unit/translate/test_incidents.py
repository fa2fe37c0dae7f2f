"""Tests of alarms: for ten kinds of failure, exactly one alarm with the correct cause, or no alarm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fakes import (
    AT_ONCE,
    START,
    application_end,
    application_start,
    decoded,
    query_progress,
    query_started,
    query_terminated,
)

from spark_events import Event, Severity
from spark_events.translate.config import TranslateConfig
from spark_events.translate.incidents.config import LinkConfig
from spark_events.translate.incidents.fingerprint import fingerprint
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
FAILED = "shop: application failed with exit code 1: "
#: For each kind of failure: the records, and the body of the alarm, or None if there is no alarm.
KINDS: dict[str, tuple[Records, str | None]] = {
    "udf error": ([*failed_job(UDF), PROGRAM_FAILED], f"{FAILED}job 4 failed: {BOOKED}"),
    "analysis error": (
        [failed_sql(ANALYSIS), PROGRAM_FAILED],
        f"{FAILED}SQL execution 7 (save at etl.py:9) failed: {ANALYSIS}",
    ),
    "driver oom": (
        [failed_sql(MEMORY), application_end("SPARK_EXITED", exit_code=52)],
        "shop: application failed with exit code 52: SQL execution 7 (save at etl.py:9) failed:"
        " java.lang.OutOfMemoryError: Java heap space",
    ),
    "python worker killed": (
        [*failed_job(WORKER), PROGRAM_FAILED],
        f"{FAILED}job 4 failed: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): "
        "exit code 137",
    ),
    "executor lost": (
        [removed("137"), *failed_job(LOST), PROGRAM_FAILED],
        f"{FAILED}job 4 failed: {LOST.replace(' ', ': ', 1)}",
    ),
    "executor lost, retried": ([removed("137"), *good_job(), application_end()], None),
    "fetch failure": (
        [
            *[record for attempt in range(4) for record in failed_stage(FETCH, attempt)],
            *failed_job(TOO_OFTEN, is_task=False),
            PROGRAM_FAILED,
        ],
        f"{FAILED}job 4 failed: org.apache.spark.shuffle.FetchFailedException: Failed to connect to h1:7337",
    ),
    "fetch failure, retried": ([*failed_stage(FETCH), *good_job(), application_end()], None),
    "sink failure": (
        [*STREAMING, *failed_job(SINK, STREAM), query_terminated(exception=SINK), PROGRAM_FAILED],
        f"{FAILED}query 'book-payments' failed at batch 1: java.io.IOException: No space left on device",
    ),
    "source gone": (
        [*STREAMING, query_terminated(exception=GONE)],
        "shop: query 'book-payments' failed at batch 1: "
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this partition.",
    ),
    "caught exception": ([*failed_job(UDF), *good_job(), application_end()], None),
    "caught in the query": ([*STREAMING, *failed_job(UDF, STREAM), query_progress(1)], None),
    "cancelled": ([*failed_job(CANCELLED, is_task=False), *good_job(), application_end()], None),
    "cancelled and not caught": (
        [*failed_job(CANCELLED, is_task=False), PROGRAM_FAILED],
        f"{FAILED}job 4 was cancelled: org.apache.spark.SparkException: {CANCELLED}",
    ),
    "nothing follows": ([*failed_job(UDF)], f"shop: job 4 failed: {BOOKED}"),
    "driver killed": ([*failed_job(UDF), {"kind": "jvm_shutdown", "at": START + 4}], f"shop: job 4 failed: {BOOKED}"),
}


def story(records: Sequence[dict[str, Any]]) -> Records:
    return [{"seq": number, **record} for number, record in enumerate([application_start(), *records], 1)]


def translate(records: Sequence[dict[str, Any]], translator: Translator | None = None) -> list[Event]:
    translator = translator or Translator()
    events = [event for record in story(records) for event in translator.translate(decoded(record))]
    events += translator.tick(START + 10_000)
    assert translator.held_record is None
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    return events


def alarms(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.severity >= Severity.ERROR]


def roles(events: Sequence[Event]) -> list[str]:
    """Return the incident roles of the events.

    Failures have one of several roles. The first commit and a successful end of the application are recoveries.
    """
    found = [str(event.attributes.get("incident.role", "")) for event in events]
    return [role for role in found if role not in ("", "recovery")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_is_one_alarm_with_its_cause(kind: str) -> None:
    """A failure causes one alarm (ERROR) with the root cause, at its highest level. Survived failures are WARN."""
    records, body = KINDS[kind]
    events = translate(records)
    assert [event.body for event in alarms(events)] == ([] if body is None else [body])
    for alarm in alarms(events):
        assert alarm.name == "JobFailureEvent"
        assert alarm.attributes["incident.role"] == "alarm"
        members = [event for event in events if event.attributes.get("incident.role") == "consequence"]
        assert {event.attributes["incident.id"] for event in members} <= {alarm.attributes["incident.id"]}
        assert {event.severity for event in members} <= {Severity.INFO}
    if body is None:
        assert set(roles(events)) <= {"survived", "consequence"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind][1]])
def test_no_event_is_held_if_spark_waits_for_a_reporter(kind: str) -> None:
    """If Spark waits for a reporter, no event is held: the alarm has the highest level known at this time."""
    translator = Translator(AT_ONCE)
    events = []
    for record in story(KINDS[kind][0]):
        events += translator.translate(decoded(record))
        assert translator.held_record is None
    assert len(alarms(events)) == 1


def test_an_event_of_the_program_keeps_its_severity() -> None:
    """An event of the user's program keeps its severity, even if it has the name of a built-in event."""
    own = {"id": "1", "name": "JobFailureEvent", "class_scope": "shop.orders", "severity": "ERROR", "body": "own"}
    *_, event = translate([{"kind": "added", "at": START + 3, "event": own}])
    assert (event.severity, event.body, roles([event])) == (Severity.ERROR, "own", [])


def test_a_flood_of_events_after_a_failure_does_not_wait() -> None:
    """If very many events follow a failure, they are released early, because they must fit into a mailbox."""
    translator = Translator()
    records = [query_started(), *failed_job(UDF), *map(query_progress, range(600))]
    released = [len(translator.translate(decoded(record))) for record in story(records)]
    assert max(released) == 257
    assert translator.held_record is None


def test_events_after_a_held_failure_wait_in_order() -> None:
    """Events after a held failure wait in order, and their records stay unacknowledged."""
    translator = Translator()
    stage, job, *rest = failed_job(UDF)[1:], good_job(9, at=900), query_started(at=START + 1_000)
    head = [failed_job(UDF)[0], *stage]
    records = story([*head, *rest])
    reported = [event for record in records for event in translator.translate(decoded(record))]
    assert [event.attributes.get("spark.entity") for event in reported] == ["application", "job", "stage"]
    assert [translator.held_record, translator.next_deadline] == [5, START + 2_003]
    assert translator.tick(START + 2_002) == []
    released = translator.tick(START + 2_003)
    assert [event.name for event in released] == ["JobStatusChangeEvent", "JobFailureEvent", "JobStatusChangeEvent"]
    assert [event.severity for event in released] == [Severity.INFO, Severity.ERROR, Severity.INFO]
    assert translator.held_record is None
    assert [event.sequence for event in [*reported, *released]] == [1, 2, 3, 4, 5, 6]
    assert translator.translate(decoded(job[0])) != []


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_sidecar_s_successor_makes_the_held_events_again(kind: str) -> None:
    """After a kill, a new sidecar receives the unacknowledged records, and creates the same event ids and roles."""
    records = story(KINDS[kind][0])
    whole = {event.event_id: event for event in translate(KINDS[kind][0])}
    for cut in range(1, len(records) + 1):
        first = Translator()
        seen = [event for record in records[:cut] for event in first.translate(decoded(record))]
        acknowledged = (first.held_record or cut + 1) - 1
        successor = Translator()
        for record in records[:acknowledged]:
            successor.restore(decoded(record))
        again = [event for record in records[acknowledged:] for event in successor.translate(decoded(record))]
        again += successor.tick(START + 10_000)
        both = {event.event_id: event for event in [*seen, *again]}
        assert both.keys() == whole.keys()
        roles_of = {key: (event.severity, event.attributes.get("incident.role")) for key, event in both.items()}
        assert roles_of == {key: (e.severity, e.attributes.get("incident.role")) for key, e in whole.items()}


def test_a_higher_level_belongs_to_the_alarm_for_a_minute() -> None:
    """For one minute, a failure at a higher level belongs to the previous alarm. A later failure is a new alarm."""
    for after, expected in ((30_000, 1), (90_000, 2)):
        end = {**PROGRAM_FAILED, "at": START + after, "time": START + after}
        events = translate([*failed_job(UDF), end])
        assert len(alarms(events)) == expected
        assert len({event.attributes.get("incident.id") for event in events} - {None}) == expected


def test_another_job_of_the_failed_execution_does_not_end_its_failure() -> None:
    """Another job of the failed SQL execution does not prove survival: adaptive execution starts several jobs."""
    own = {"spark.sql.execution.id": "3"}
    records = [*failed_job(UDF, own), good_job(5, properties=own)[0]]
    assert len(alarms(translate(records))) == 1
    assert alarms(translate([*failed_job(UDF, own), *good_job(5, properties={"spark.sql.execution.id": "4"})])) == []


def test_a_successful_execution_without_jobs_ends_the_failure() -> None:
    """A later execution that succeeds without jobs, such as DROP TABLE, proves that the application survived."""
    assert alarms(translate([*failed_job(UDF), failed_sql(None)])) == []


def test_a_query_that_fails_repeatedly_has_one_key() -> None:
    """If a query fails repeatedly, each failure is one alarm with the same key, even in another run."""
    records = [*STREAMING, query_terminated(exception=SINK)]
    again = query_started("r2", name="book-payments", at=START + 100)
    records += [again, query_terminated("r2", exception=SINK, at=START + 5_000)]
    first, second = alarms(translate(records))
    assert first.attributes["incident.key"] == second.attributes["incident.key"] == "shop/book-payments/failure"
    assert first.attributes["incident.id"] != second.attributes["incident.id"]
    (other,) = alarms(translate([application_start(app_id="local-2"), *records[:3]][1:]))
    assert other.attributes["incident.key"] == "shop/book-payments/failure"


def test_a_query_is_an_alarm_even_if_a_job_outside_it_was_an_alarm() -> None:
    """A failed query is an alarm, although a job of a job group was an alarm for the same cause before."""
    export = failed_job(SINK, {"spark.jobGroup.id": "export"})
    own = failed_job(SINK, STREAM, number=5, at=7_000)
    events = translate([*STREAMING, *export, *own, query_terminated(exception=SINK, at=START + 7_001)])
    first, second = alarms(events)
    assert [first.attributes["incident.key"], second.attributes["incident.key"]] == [
        "shop/export/failure",
        "shop/book-payments/failure",
    ]
    assert first.attributes["incident.id"] != second.attributes["incident.id"]


def test_a_job_of_another_query_is_no_consequence_of_a_query() -> None:
    """If two queries fail for the same cause, each failed job is a consequence of its own query."""
    other = {**STREAM, "sql.streaming.queryId": "q2"}
    queries = [query_started(name="book-payments"), query_started("r2", "q2", "other")]
    jobs = [*failed_job(SINK, STREAM), *failed_job(SINK, other, number=5)]
    ends = [query_terminated(exception=SINK), query_terminated("r2", "q2", exception=SINK)]
    events = [event for event in translate([*queries, *jobs, *ends]) if event.name == "JobFailureEvent"]
    incidents: dict[object, set[object]] = {}
    for event in events:
        if event.attributes["spark.entity"] != "stage":
            run = event.attributes["spark.streaming.query.run_id"]
            incidents.setdefault(run, set()).add(event.attributes["incident.id"])
    assert [len(found) for found in incidents.values()] == [1, 1]
    assert len(alarms(events)) == len(set.union(*incidents.values())) == 2


def test_a_job_without_its_query_s_properties_is_a_consequence_of_the_query() -> None:
    """A job of foreachBatch on another thread is a consequence of its query, if its events are still held."""
    events = translate([*STREAMING, *failed_job(SINK), query_terminated(exception=SINK)])
    assert [event.class_scope for event in alarms(events)] == ["spark.streaming.query"]


@pytest.mark.parametrize(
    ("group", "key"),
    [("nightly", "shop/nightly/failure"), ("0c5b1c3e-7a34-4b9c-8f2d-0123456789ab", "shop/failure")],
)
def test_the_key_has_the_job_group_unless_it_was_generated(group: str, key: str) -> None:
    """The key of an incident contains the job group, unless a Thrift server or a notebook generated the group."""
    (alarm,) = alarms(translate(failed_job(UDF, {"spark.jobGroup.id": group})))
    assert alarm.attributes["incident.key"] == key


def test_the_application_has_the_key_of_its_query() -> None:
    """The application's alarm has the key of the failed query, so it closes when the query commits again."""
    (alarm,) = alarms(translate(KINDS["sink failure"][0]))
    assert alarm.attributes["incident.key"] == "shop/book-payments/failure"
    assert alarm.class_scope == "spark.application"


def test_a_failed_enrichment_is_a_consequence_of_its_query() -> None:
    """A failed enrichment is a consequence of its query's failure. If no query failed, the program caught the error."""
    about = {"spark.streaming.query.id": "q1", "spark.streaming.query.run_id": "r1"}
    event = {"id": "1", "name": "EnrichmentEvent", "class_scope": "spark_events.enrich", "severity": "ERROR"}
    added = {"kind": "added", "at": START + 3, "event": {**event, "body": "failed", "attributes": about}}
    fails = translate([*STREAMING, added, query_terminated(exception=SINK)])
    assert [event.class_scope for event in alarms(fails)] == ["spark.streaming.query"]
    assert roles(fails) == ["consequence", "consequence", "alarm"]
    assert roles(translate([*STREAMING, added])) == ["survived"]


def test_the_application_s_exception_names_the_previous_failure() -> None:
    """An application's exception belongs to the previous failure, because programs wrap Spark's exceptions."""
    failure = {"chain": [{"type": "java.lang.RuntimeException", "message": "load failed"}]}
    (alarm,) = alarms(translate([*failed_job(UDF), application_end("UNCAUGHT_EXCEPTION", failure=failure)]))
    assert alarm.body == (
        "shop: application failed: its main method threw an exception: java.lang.RuntimeException: load failed"
        f" (after job 4 failed: {BOOKED})"
    )


def test_a_lost_driver_is_the_alarm_of_its_last_failure() -> None:
    """If an application is killed within the settle time of a failure, failure and loss are one incident."""
    translator = Translator()
    for record in story(failed_job(UDF)):
        translator.translate(decoded(record))
    *consequences, alarm = translator.driver_lost(START + 500, orderly=False)
    assert (alarm.severity, alarm.attributes["incident.role"]) == (Severity.FATAL, "alarm")
    assert alarm.body.endswith(f"(before that, job 4 failed: {BOOKED})")
    assert [event.severity for event in consequences] == [Severity.INFO] * 2


def test_links_of_a_failure() -> None:
    """Links of a failure come from the driver and from the settings, which take precedence."""
    links = {"history": "h:18080", "tracking": "http://rm/proxy/a", "pod": "d", "namespace": "n"}
    start = application_start(app_id="application_1_2", attempt_id="1", links=links)
    job = failed_job(UDF)
    records = [start, *job[:-1], {**job[-1], "ui": "http://10.0.0.9:4040"}]

    def found(config: LinkConfig) -> dict[str, object]:
        translator = Translator(TranslateConfig(link=config))
        events = [event for record in records for event in translator.translate(decoded(record))]
        (alarm,) = alarms([*events, *translator.decide()])
        return {key: value for key, value in alarm.attributes.items() if key.endswith("url") or key.startswith("k8s")}

    assert found(LinkConfig()) == {
        "spark.ui.url": "http://10.0.0.9:4040",
        "spark.history.url": "http://h:18080/history/application_1_2/1/jobs/",
        "spark.yarn.tracking_url": "http://rm/proxy/a",
        "k8s.pod.name": "d",
        "k8s.namespace.name": "n",
    }
    configured = found(LinkConfig("https://history", "https://wiki/{app}#{error_type}"))
    assert configured["spark.history.url"] == "https://history/history/application_1_2/1/jobs/"
    assert configured["incident.runbook_url"] == "https://wiki/shop#ValueError"


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
    events = translate(KINDS["udf error"][0])
    found = {event.attributes["failure.fingerprint"] for event in events if event.name == "JobFailureEvent"}
    assert len(found) == 1
