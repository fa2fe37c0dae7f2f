"""Tests of the start and end of an application. The outcome is reported only if it is known."""

from __future__ import annotations

import pytest
from fakes import START, application_end, application_start, decoded, query_started, query_terminated

from spark_events import Event, Severity
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

JOB_FAILED = {"kind": "job_end", "job_id": 4, "time": START, "failure": {"chain": [{"type": "java.lang.Error"}]}}


def translate(*records: dict[str, object]) -> list[Event]:
    translator = Translator()
    return [event for record in records for event in translator.translate(decoded(record))]


def ending(*records: dict[str, object]) -> Event:
    """Return the event of the application's end."""
    (event,) = [
        e
        for e in translate(application_start(), *records)
        if e.attributes.get("spark.entity") == "application"
        and e.name == "JobStatusChangeEvent"
        and e.attributes["spark.status.new"] != "RUNNING"
    ]
    return event


def test_the_start_has_the_known_scope_variables() -> None:
    """Every known scope variable is present; unknown variables are omitted."""
    (event,) = translate(application_start())
    assert (event.name, event.class_scope, event.severity) == (
        "JobStatusChangeEvent",
        "spark.application",
        Severity.INFO,
    )
    assert event.body == "Application 'shop' started"
    assert event.observed_ts_millis == START
    assert event.attributes == {
        "spark.app.id": "local-1",
        "spark.app.name": "shop",
        "spark.user": "ada",
        "spark.version": "4.3.0",
        "host.name": "h1",
        "spark.entity": "application",
        "spark.status.new": "RUNNING",
        "incident.key": "shop/failure",
    }


def test_attempt_is_reported_if_the_cluster_has_attempts() -> None:
    """If the cluster manager numbers attempts, as YARN does, the start event contains the application's attempt."""
    (event,) = translate(application_start(attempt_id="2"))
    assert event.attributes["spark.app.attempt_id"] == "2"


@pytest.mark.parametrize(
    ("how", "status", "severity"),
    [
        ("STOPPED", "FINISHED", Severity.INFO),
        ("RETURNED", "FINISHED", Severity.INFO),
        ("PROGRAM_FAILED", "FAILED", Severity.INFO),
        ("UNCAUGHT_EXCEPTION", "FAILED", Severity.INFO),
        ("SPARK_STOPPED", "FAILED", Severity.INFO),
        ("START_FAILED", "FAILED", Severity.INFO),
        ("SUBMIT_STOPPED", "ENDED", Severity.INFO),
        ("SPARK_SQL", "ENDED", Severity.INFO),
        ("GATEWAY_CLOSED", "ENDED", Severity.INFO),
        ("SIGTERM", "CANCELLED", Severity.WARN),
        ("SIGINT", "CANCELLED", Severity.WARN),
        ("SIGHUP", "CANCELLED", Severity.WARN),
        ("EXITED", "ENDED", Severity.INFO),
        ("A_WAY_OF_THE_FUTURE", "ENDED", Severity.INFO),
    ],
)
def test_each_ending_has_its_status(how: str, status: str, severity: Severity) -> None:
    """The way in which the driver ends determines the status and the reason. A failure also causes its own event."""
    event = ending(application_end(how))
    assert (event.attributes["spark.status.old"], event.attributes["spark.status.new"]) == ("RUNNING", status)
    assert event.severity is severity
    assert event.attributes["spark.app.end_reason"] == how
    assert event.observed_ts_millis == START + 9


def test_an_exit_by_the_program_names_its_caller() -> None:
    """If the program exits by System.exit, the body and an attribute contain the frame that called System.exit."""
    caller = "com.acme.Job.main(Job.java:12)"
    event = ending(application_end("EXITED", exit_caller=caller))
    assert event.attributes["spark.app.exit_caller"] == caller
    assert f"called System.exit in {caller};" in event.body


@pytest.mark.parametrize("how", ["STOPPED", "EXITED", "SIGTERM"])
def test_an_exit_code_that_is_not_zero_is_a_failure(how: str) -> None:
    """An exit code other than 0 is a failure, because programs set such codes on purpose."""
    event = ending(application_end(how, exit_code=3))
    assert (event.attributes["spark.status.new"], event.attributes["spark.app.exit_code"]) == ("FAILED", 3)
    assert event.severity is Severity.INFO
    assert "exit code 3" in event.body


@pytest.mark.parametrize(
    ("how", "code", "status"),
    [
        ("PROGRAM_FAILED", 3, "FAILED"),
        ("EXITED", 3, "FAILED"),
        ("EXITED", 0, "FINISHED"),
        ("GATEWAY_CLOSED", 0, "FINISHED"),
        ("STOPPED", 3, "FAILED"),
    ],
)
def test_a_known_exit_code_of_the_program_decides(how: str, code: int, status: str) -> None:
    """An exit code that the shim observed determines the status. Spark's own exit code 0 does not."""
    event = ending(application_end(how, exit_code=0, program_exit_code=code))
    assert (event.attributes["spark.status.new"], event.attributes["spark.app.exit_code"]) == (status, code)


def test_failure_after_stop_is_reported_as_such() -> None:
    """If a program fails after it stopped its SparkContext, the body mentions this. Spark itself recorded a success."""
    event = ending(application_end("PROGRAM_FAILED", program_exit_code=1, stopped_before=True))
    assert event.body == "Application 'shop' failed with exit code 1 after it had stopped its SparkContext"


@pytest.mark.parametrize(("name", "text"), [("SIGSEGV", "was killed by SIGSEGV"), (None, "without its exit hooks")])
def test_a_killed_python_is_a_warning(name: str | None, text: str) -> None:
    """If Python is killed, the end event is a warning: the outcome is unknown, but a kill is not a normal exit."""
    event = ending(application_end("PYTHON_DIED", exit_signal=name))
    assert (event.attributes["spark.status.new"], event.severity) == ("ENDED", Severity.WARN)
    assert event.attributes.get("spark.app.exit_signal") == name
    assert text in event.body


@pytest.mark.parametrize("last", [application_end("PROGRAM_FAILED"), application_end(), None])
def test_a_provisional_end_is_held(last: dict[str, object] | None) -> None:
    """A provisional end is held, and reported once: when the outcome is known, or when the driver has exited."""
    translator = Translator()
    translator.translate(decoded(application_start()))
    assert translator.translate(decoded(application_end(provisional=True))) == []
    reported = translator.driver_lost(START + 99, False) if last is None else translator.translate(decoded(last))
    assert reported[0].attributes["spark.status.new"] == (
        "FINISHED" if last is None or last["ending"] == "STOPPED" else "FAILED"
    )
    assert translator.application_is_over
    assert translator.driver_lost(START + 99, False) == []


@pytest.mark.parametrize("code", [0, None])
def test_exit_code_zero_is_not_known(code: int | None) -> None:
    """Exit code 0 is not reported as known, because Spark also uses 0 for an unknown exit code."""
    event = ending(application_end("GATEWAY_CLOSED", exit_code=code))
    assert event.attributes["spark.status.new"] == "ENDED"
    assert "spark.app.exit_code" not in event.attributes


def test_a_failed_application_has_a_failure_event() -> None:
    """FAILED is followed by a JobFailureEvent with the details of the failure."""
    *_, failure = translate(application_start(), application_end("PROGRAM_FAILED"))
    assert (failure.name, failure.severity) == ("JobFailureEvent", Severity.ERROR)
    assert failure.attributes["spark.entity"] == "application"
    assert failure.attributes["error.type"] == "PROGRAM_FAILED"


def test_a_failure_that_stands_makes_the_success_of_stop_doubtful() -> None:
    """If the last thing that ran has failed and the exit code is unknown, the application is not FINISHED."""
    event = ending(query_started(), query_terminated(exception="a.B: x"), JOB_FAILED, application_end("STOPPED"))
    assert event.attributes["spark.status.new"] == "ENDED"
    assert event.attributes["spark.app.outcome_hint"] == "query 'clicks' failed; job 4 failed"
    assert "query 'clicks' failed" in event.body


def test_running_queries_are_named_at_the_end() -> None:
    """The application's end event names the running queries, because Spark posts no end event for them."""
    over, runs = query_started("r1", "q1", "orders"), query_started("r2", "q2", "clicks")
    event = ending(over, query_terminated("r1", "q1"), runs, application_end("STOPPED"))
    assert event.body.endswith("its own code stopped it while running query 'clicks'")
    assert "spark.app.outcome_hint" not in event.attributes


def job_start(number: int = 4, properties: dict[str, str] | None = None) -> dict[str, object]:
    return {"kind": "job_start", "job_id": number, "time": START, "properties": properties or {}}


def test_a_job_that_runs_when_its_application_ends_is_cancelled() -> None:
    """A job that still runs at its application's end is reported as cancelled, because Spark posts no end event."""
    start = job_start(4, {"spark.job.description": "nightly"})
    *_, job, end = translate(application_start(), start, application_end("STOPPED"))
    assert (job.name, job.severity, job.observed_ts_millis) == ("JobStatusChangeEvent", Severity.INFO, START + 9)
    assert (job.attributes["spark.status.old"], job.attributes["spark.status.new"]) == ("RUNNING", "CANCELLED")
    assert job.attributes["spark.job.id"] == 4
    assert job.body == "shop: job 4 (nightly) was cancelled: its application ended while the job was running"
    assert end.body.endswith("its own code stopped it while running job 4 (nightly)")


def test_the_end_of_a_job_after_its_application_s_is_not_reported_again() -> None:
    """If a job's end record follows the application's, as in an event log, no second event is reported."""
    translator = Translator()
    for record in (application_start(), job_start(), application_end("STOPPED")):
        translator.translate(decoded(record))
    assert translator.translate(decoded(JOB_FAILED)) == []
    assert translator.illegal == 0


def test_a_job_of_a_micro_batch_is_not_reported_at_the_end() -> None:
    """A micro-batch's job that runs at the application's end is not reported, because its query is reported."""
    stream = job_start(4, {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "7"})
    *_, before, end = translate(application_start(), query_started(), stream, application_end("STOPPED"))
    assert before.attributes["spark.entity"] == "query"
    assert end.body.endswith("while running query 'clicks'")


def test_no_running_job_is_named_after_dropped_records() -> None:
    """After dropped records, the end event names no running job: a dropped record may contain the job's end."""
    lost = {"kind": "dropped", "at": START, "records": {"job_end": 1}}
    events = translate(application_start(), job_start(), lost, application_end("STOPPED"))
    assert [e.attributes["spark.status.new"] for e in events if e.attributes.get("spark.entity") == "job"] == [
        "RUNNING"
    ]
    assert "while running" not in events[-1].body


def test_a_restarted_sidecar_names_no_running_job_after_dropped_records() -> None:
    """If records were dropped before the sidecar's start, the end of a restored job may be among them."""
    translator = Translator(misses_records=True)
    for record in (application_start(), job_start()):
        translator.restore(decoded(record))
    (end,) = translator.translate(decoded({**application_end("STOPPED"), "seq": 3}))
    assert end.attributes["spark.entity"] == "application"
    assert "while running" not in end.body


def test_a_restarted_query_runs_once_although_the_end_of_its_earlier_run_was_lost() -> None:
    """If the record of a run's end was lost, heartbeat and application end count only the latest run of the query."""
    translator = Translator(TranslateConfig(heartbeat_interval=60.0))
    for record in (application_start(), query_started(), query_started("r2")):
        translator.translate(decoded(record))
    (beat,) = (event for event in translator.tick(START + 60_000) if event.name == "HeartbeatEvent")
    (end,) = translator.translate(decoded(application_end("STOPPED")))
    assert beat.attributes["spark.heartbeat.queries"] == 1
    assert end.body.count("query 'clicks'") == 1


def test_a_lost_driver_names_the_jobs_that_ran() -> None:
    """The event of a lost driver names at most ten of the jobs that were running."""
    translator = Translator()
    for record in (application_start(), *map(job_start, range(12))):
        translator.translate(decoded(record))
    (event,) = translator.driver_lost(START + 99, orderly=False)
    assert event.body.endswith(f"while running {', '.join(f'job {n}' for n in range(10))} and 2 more")


def test_a_failed_job_before_a_success_is_not_a_hint() -> None:
    """A failed job is a hint unless a job that started after the failure succeeds."""
    worked = {"kind": "job_end", "job_id": 5, "time": START}
    assert "spark.app.outcome_hint" not in ending(JOB_FAILED, worked, application_end()).attributes
    end = ending(job_start(5), JOB_FAILED, worked, application_end())
    assert end.attributes["spark.app.outcome_hint"] == "job 4 failed"


def test_an_end_without_a_known_start_has_no_old_status() -> None:
    (event,) = translate(application_end())
    assert event.attributes["spark.status.new"] == "FINISHED"
    assert "spark.status.old" not in event.attributes


def test_a_repeated_start_or_end_makes_no_event() -> None:
    """A second start, a second end, or a driver loss after the application's end causes no event."""
    translator = Translator()
    for record in (application_start(), application_end()):
        assert len(translator.translate(decoded(record))) == 1
    for record in (application_start(), application_end("EXITED"), application_end()):
        assert translator.translate(decoded(record)) == []
    assert translator.driver_lost(START, orderly=False) == []
    assert translator.application_is_over


def test_a_driver_that_died_is_lost_and_fatal() -> None:
    """The event of a driver's loss is FATAL, and its body names the running queries and jobs."""
    translator = Translator()
    for record in (
        application_start(),
        query_started(),
        query_started("r2", "q2", "done"),
        query_terminated("r2", "q2"),
    ):
        translator.translate(decoded(record))
    (event,) = translator.driver_lost(START + 99, orderly=False)
    assert (event.attributes["spark.status.old"], event.attributes["spark.status.new"]) == ("RUNNING", "LOST")
    assert (event.severity, event.observed_ts_millis) == (Severity.FATAL, START + 99)
    assert "query 'clicks'" in event.body
    assert "done" not in event.body
    assert translator.driver_lost(START, orderly=False) == []


def test_a_jvm_that_shut_down_in_order_is_not_lost() -> None:
    """If the JVM announced its shutdown, a driver without an end event is ENDED instead of LOST."""
    translator = Translator()
    translator.translate(decoded(application_start()))
    (event,) = translator.driver_lost(START, orderly=True)
    assert (event.attributes["spark.status.new"], event.severity) == ("ENDED", Severity.INFO)
    assert translator.application_is_over


def test_an_application_that_never_started_is_not_lost() -> None:
    """A driver that dies before the start of its application causes no event."""
    assert Translator().driver_lost(START, orderly=False) == []


def test_an_uncaught_exception_is_diagnosed() -> None:
    """The failure event describes the uncaught exception if the shim observed it."""
    failure = {"chain": [{"type": "java.lang.IllegalStateException", "message": "no table"}]}
    *_, event = translate(application_start(), application_end("UNCAUGHT_EXCEPTION", failure=failure))
    assert event.name == "JobFailureEvent"
    assert event.attributes["exception.type"] == "java.lang.IllegalStateException"
    assert event.body.endswith("java.lang.IllegalStateException: no table")


@pytest.mark.parametrize(("code", "status"), [(0, "FINISHED"), (None, "ENDED"), (1, "FAILED")])
def test_a_spark_sql_shell_s_exit_code_is_true(code: int | None, status: str) -> None:
    """The spark-sql shell sets its own exit code, so its exit code 0 is known."""
    assert ending(application_end("SPARK_SQL", exit_code=code)).attributes["spark.status.new"] == status
