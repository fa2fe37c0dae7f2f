"""Tests of SQL that fails in the driver: its event, and its use as the reason for an application's failure."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import START, application_end, application_start, decoded, query_started, query_terminated

from spark_events import Event, Severity
from spark_events.translate.enrichers import TypeEnricher
from spark_events.translate.translation_config import FailureConfig, TranslateConfig
from spark_events.translate.translator import Translator

EXISTS = "[PATH_ALREADY_EXISTS] Path file:/out already exists. SQLSTATE: 42K04"
MEMORY = (
    "java.lang.OutOfMemoryError: Java heap space\n\tat org.apache.spark.sql.execution.SparkPlan.x(SparkPlan.scala:4)"
)
ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage"
)
RAISED = "[USER_RAISED_EXCEPTION] inner SQLSTATE: P0001"
MICRO_BATCH = "clicks<br/>id = 3f0a<br/>runId = 6f595dfe-64f8-4732-9d1e-01d23ed89ab7<br/>batch = 4"

PROGRAM_FAILED = application_end("PROGRAM_FAILED", at=START + 3, time=START + 3)


def ended(number: int = 7, error: str | None = EXISTS, **fields: Any) -> dict[str, Any]:
    about = {"execution_id": number, "root_id": number, "time": START + 3, "description": "save at etl.py:9"}
    return {"kind": "sql_execution_end", **about, "error": error, **fields}


def job(number: int = 4, execution: str = "7", failure: Any = None) -> list[dict[str, Any]]:
    properties = {"spark.sql.execution.id": execution}
    return [
        {"kind": "job_start", "job_id": number, "time": START, "properties": properties},
        {"kind": "job_end", "job_id": number, "time": START + 1, "failure": failure},
    ]


def failure(kind: str, message: str, error_class: str | None = None) -> dict[str, Any]:
    return {"chain": [{"type": kind, "message": message, "error_class": error_class}]}


def failures(*records: dict[str, Any]) -> list[Event]:
    config = TranslateConfig(failure=FailureConfig(enrichers=(TypeEnricher(),)))
    translator = Translator(config)
    events = [event for record in (application_start(), *records) for event in translator.translate(decoded(record))]
    return [event for event in events if event.name == "JobFailureEvent"]


def test_sql_that_fails_without_a_job_is_reported() -> None:
    """The event of a failed SQL execution without a job contains a class, a message and a location.

    Its event is a warning, because the program may catch the exception.
    """
    (event,) = failures(ended())
    assert (event.class_scope, event.severity) == ("spark.sql.execution", Severity.WARN)
    assert event.body == f"shop: SQL execution 7 (save at etl.py:9) failed in the driver: {EXISTS}"
    assert event.observed_ts_millis == START + 3
    expected = {
        "spark.entity": "sql",
        "spark.sql.execution.id": "7",
        "spark.job.description": "save at etl.py:9",
        "error.type": "PATH_ALREADY_EXISTS",
        "failure.sql_state": "42K04",
        "exception.message": EXISTS,
        "failure.label.type": "USER",
    }
    assert expected.items() <= event.attributes.items()


def test_a_driver_that_runs_out_of_memory() -> None:
    """If the driver runs out of memory, for example in collect(), the execution fails although its jobs succeeded."""
    (event,) = failures(*job(), ended(error=MEMORY))
    assert event.severity is Severity.WARN
    assert event.attributes["error.type"] == "java.lang.OutOfMemoryError"
    assert event.attributes["failure.label.type"] == "SYSTEM"


STAGE = {"stage_id": 1, "attempt": 0, "name": "s", "tasks": 2, "time": START}


@pytest.mark.parametrize(
    ("why", "error"),
    [
        (failure("org.apache.spark.SparkRuntimeException", RAISED, "USER_RAISED_EXCEPTION"), RAISED),
        (failure("org.apache.spark.SparkException", ABORTED), ABORTED),
    ],
)
def test_sql_that_fails_because_of_its_job(why: dict[str, Any], error: str) -> None:
    """If a SQL execution and its job fail, the execution's event is INFO, whichever end arrives first."""
    start, end = job(failure=why)
    stage = {"kind": "stage_completed", **STAGE, "failed": 1, "failure_reason": error, "task_failure": error}
    begun = [{**start, "stages": [1]}, stage]
    for records in ([*begun, end, ended(error=error)], [*begun, ended(error=error), end]):
        found = {event.attributes["spark.entity"]: event for event in failures(*records)}
        assert {entity: event.severity for entity, event in found.items()} == {
            "stage": Severity.INFO,
            "job": Severity.WARN,
            "sql": Severity.INFO,
        }
        assert found["sql"].body.startswith("shop: SQL execution 7 (save at etl.py:9) failed because its job 4 failed:")
        assert len({event.attributes["incident.id"] for event in found.values()}) == 1


def test_cancelled_sql_is_no_failure() -> None:
    start, end = job(failure=failure("org.apache.spark.SparkException", "Job 4 cancelled by x"))
    assert failures(start, end, ended(error="Job 4 cancelled by x")) == []


def test_sql_whose_job_spark_cancels() -> None:
    """If Spark cancels the job of failed SQL, as after a broadcast timeout, only the SQL execution has failed."""
    cancelled = failure(
        "org.apache.spark.SparkException", "Job 4 cancelled The corresponding broadcast query has failed."
    )
    start, end = job(failure=cancelled)
    failed = ended(error="Could not execute broadcast in 2 secs.")
    for records in ([start, end, failed], [start, failed, end]):
        assert [event.attributes["spark.entity"] for event in failures(*records)] == ["sql"]


def test_the_execution_around_a_failed_execution_is_not_reported() -> None:
    """If a command fails because of a query inside it, only one of these two executions is reported."""
    assert len(failures(ended(8, root_id=7), ended(7))) == 1
    assert len(failures(ended(7), ended(8))) == 2


def test_sql_of_a_micro_batch_is_reported_by_its_query() -> None:
    """SQL executions of micro-batches are not reported, because their query fails with the same error."""
    assert failures(ended(description=MICRO_BATCH)) == []


def test_sql_that_succeeds_makes_no_event() -> None:
    """Successful SQL causes no event. The driver sends its record only after a failure."""
    assert failures(ended(error=None)) == []


# --- the reason of the application --------------------------------------------------------------


def test_a_failed_application_names_the_sql_that_failed_before_it() -> None:
    """Spark's end event contains no reason, so the previous failure is named as what it is: the one before."""
    _, last = failures(ended(), PROGRAM_FAILED)
    assert last.attributes["spark.entity"] == "application"
    assert last.attributes["failure.preceding.error_type"] == "PATH_ALREADY_EXISTS"
    assert last.attributes["spark.app.outcome_hint"] == "SQL execution 7 (save at etl.py:9) failed"
    assert last.body == (
        "shop: application failed: its program ended with an error; last failure before: SQL execution 7, 0 s earlier:"
        f" {EXISTS}"
    )


@pytest.mark.parametrize("success", [[ended(8, None)], job(5, "8")])
def test_a_failure_followed_by_a_success_is_not_the_reason(success: list[dict[str, Any]]) -> None:
    """A failure is not the reason if later work succeeds, because the program caught the error and continued."""
    *_, last = failures(ended(), *success, PROGRAM_FAILED)
    assert last.attributes["error.type"] == "PROGRAM_FAILED"
    assert "spark.app.outcome_hint" not in last.attributes


@pytest.mark.parametrize("failed", [[ended(9)], job(9, "9", failure("java.io.IOException", "disk full"))])
@pytest.mark.parametrize(
    "success",
    [
        pytest.param(job(8, "8")[1:], id="job"),
        pytest.param(job(10, "8"), id="next job of the execution"),
        pytest.param([ended(8, None)], id="execution"),
        pytest.param([ended(7, None)], id="execution without jobs"),
    ],
)
def test_a_success_that_began_before_the_failure_does_not_remove_the_reason(
    failed: list[dict[str, Any]], success: list[dict[str, Any]]
) -> None:
    """A failure stays the reason if work succeeds that began before the failure, in another thread of the program."""
    begun = [{"kind": "sql_execution_start", "execution_id": number, "time": START} for number in (7, 8, 9)]
    first, last = failures(*begun, job(8, "8")[0], *failed, *success, PROGRAM_FAILED)
    assert last.attributes["failure.preceding.error_type"] == first.attributes["error.type"]
    assert last.attributes["failure.preceding.root_cause"] == first.attributes["failure.root_cause"]
    assert str(last.attributes["spark.app.outcome_hint"]).endswith(" failed")


def test_a_finished_application_has_only_a_hint() -> None:
    """If the application finished, a failed statement is only a hint, because the program caught the error."""
    records = [ended(), application_end("STOPPED", program_exit_code=0)]
    assert [event.attributes["spark.entity"] for event in failures(*records)] == ["sql"]


def test_the_program_s_exception_is_the_application_s_reason() -> None:
    """If the program raised an exception, this exception is the reason, not an earlier failure in Spark."""
    own = failure("java.lang.IllegalStateException", "no table")
    *_, last = failures(ended(), application_end("UNCAUGHT_EXCEPTION", failure=own))
    assert last.attributes["error.type"] == "java.lang.IllegalStateException"


def test_one_cause_has_one_error_type() -> None:
    """A cause has the same error type in the job, its query and the application, whichever exception wraps it."""
    why = failure("org.apache.spark.SparkArithmeticException", "[DIVIDE_BY_ZERO] no. SQLSTATE: 22012", "DIVIDE_BY_ZERO")
    wrapped = (
        "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call"
        ' last):\n  File "/app/a.py", line 3, in f\n    df.collect()\npy4j.protocol.Py4JJavaError: An error occurred'
        " while calling o57.collectToPython.\n: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] no."
        " SQLSTATE: 22012\n\tat org.apache.spark.X.y(X.scala:1)"
    )
    query = query_terminated(exception=wrapped, error_class="FOREACH_BATCH_USER_FUNCTION_ERROR")
    reported = failures(query_started(), *job(failure=why), query, PROGRAM_FAILED)
    assert [event.attributes["spark.entity"] for event in reported] == ["job", "query", "application"]
    assert reported[-1].attributes["incident.role"] == "consequence"
    assert {event.attributes["error.type"] for event in reported} == {"DIVIDE_BY_ZERO"}


# --- the spark-sql shell ------------------------------------------------------------------------

SYNTAX = (
    "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1, pos 0)\n\n== SQL ==\nselec\n^^^\n"
)


def test_the_shell_s_error_is_the_reason_without_a_failure_from_spark() -> None:
    """If Spark reports no failure, as for a statement that cannot be parsed, the shell's error is the reason."""
    (event,) = failures(application_end("SPARK_SQL", exit_code=1, shell_error=SYNTAX))
    assert event.attributes["error.type"] == "PARSE_SYNTAX_ERROR"
    assert "Syntax error at or near 'selec'" in event.body
    assert event.attributes["spark.app.exit_code"] == 1


def test_spark_s_failure_has_precedence_over_the_shell_s_error() -> None:
    """If Spark's failure and the shell's error have the same cause, Spark's failure is the reason."""
    *_, last = failures(ended(), application_end("SPARK_SQL", exit_code=1, shell_error=EXISTS))
    assert last.attributes["spark.app.outcome_hint"] == "SQL execution 7 (save at etl.py:9) failed"
    assert last.attributes["error.type"] == "PATH_ALREADY_EXISTS"


def test_a_shell_whose_outcome_is_unknown_has_its_error_as_a_hint() -> None:
    """With Spark 3.5, the outcome of the spark-sql shell is unknown; its error is a failure that stands."""
    translator = Translator()
    translator.translate(decoded(application_start()))
    event, alarm = translator.translate(decoded(application_end("SPARK_SQL", shell_error=SYNTAX)))
    assert event.attributes["spark.status.new"] == "ENDED"
    assert event.attributes["spark.app.outcome_hint"] == "the last statement failed"
    assert alarm.body.startswith("shop: application ended after its last statement failed: [PARSE_SYNTAX_ERROR]")


def test_an_error_before_a_successful_end_of_the_shell_is_ignored() -> None:
    """An error is ignored if the shell later exits successfully, because a later statement succeeded."""
    assert failures(application_end("SPARK_SQL", exit_code=0, shell_error=SYNTAX)) == []
