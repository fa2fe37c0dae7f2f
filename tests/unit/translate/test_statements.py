"""Tests of statements that fail on a shared server: each failure is one problem, which names user and session."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import START, application_start, decoded, query_started, query_terminated

from spark_events import Event, Severity
from spark_events.translate.translator import Translator

SESSION, OPERATION = "839c8b37-e5f1-4496-83ce-6ca71c9ee9bb", "017d1ebc-5fb8-4545-b00e-2d6ac82a7004"
TAG = f"SparkConnect_OperationTag_User_ada_Session_{SESSION}_Operation_{OPERATION}"
GROUP = "125ab4aa-d020-472f-b9e4-e767e78a8c20"
ERROR = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"
CLIENT = {"session_id": SESSION, "user": "ada", "started": START}
OF_THRIFT = {"statement_id": GROUP, "time": START + 2, "statement": "select 1/0", **CLIENT}
THRIFT_STARTED = {"kind": "statement_started", **OF_THRIFT, "time": START}
THRIFT = {"kind": "statement_failed", **OF_THRIFT, "error": "x", "trace": f"org.apache.spark.SparkException: {ERROR}"}
TIMED_OUT = {"kind": "statement_timed_out", **OF_THRIFT}
CONNECT = {"kind": "statement_failed", "statement_id": OPERATION, "time": START + 2, "tag": TAG, **CLIENT}
CONNECT |= {"statement": 'sql_command {\n  sql {\n    query: "select \\"1\\"/0"\n  }\n}'}
CONNECT |= {"error": f"INTERNAL: \n{ERROR}"}
ABORTED = f"Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: {ERROR}"


def job(properties: dict[str, str], *, fails: bool = True) -> list[dict[str, Any]]:
    failure = {"chain": [{"type": "org.apache.spark.SparkException", "message": ABORTED}]}
    moment = {"job_id": 1, "time": START + 1}
    return [
        {"kind": "job_start", **moment, "properties": properties},
        {"kind": "job_end", **moment, **({"failure": failure} if fails else {})},
    ]


def execution(**about: Any) -> list[dict[str, Any]]:
    moment = {"execution_id": 5, "time": START + 1}
    return [{"kind": "sql_execution_start", **moment, **about}, {"kind": "sql_execution_end", **moment, "error": ERROR}]


def problems(*records: dict[str, Any]) -> list[Event]:
    translator = Translator()
    found = [one for record in (application_start(), *records) for one in translator.translate(decoded(record))]
    return [event for event in found if event.severity >= Severity.WARN]


@pytest.mark.parametrize(
    ("record", "prefix", "statement"),
    [(THRIFT, "spark.thriftserver.user", "select 1/0"), (CONNECT, "spark.connect.user_id", 'select "1"/0')],
)
def test_a_statement_without_a_job_is_one_problem(record: dict[str, Any], prefix: str, statement: str) -> None:
    (failed,) = problems(record)
    assert failed.severity is Severity.WARN
    assert failed.body.startswith(f"shop: SQL statement ({statement}) (user 'ada', session 839c8b37) failed: ")
    assert failed.attributes["error.type"] == "DIVIDE_BY_ZERO"
    assert failed.attributes["spark.sql.statement"] == statement
    assert failed.attributes[prefix] == "ada"
    assert failed.attributes[prefix.rpartition(".")[0] + ".session_id"] == SESSION


@pytest.mark.parametrize(
    ("records", "entity"),
    [
        ([*job({"spark.jobGroup.id": GROUP}), THRIFT], "job"),
        ([*job({"spark.job.tags": TAG}), CONNECT], "job"),
        ([*execution(group=GROUP), THRIFT], "sql"),
        ([*execution(tags=TAG), CONNECT], "sql"),
        # Before Spark 4.1, an execution does not tell its group.
        ([*execution(), THRIFT], "sql"),
        ([TIMED_OUT, THRIFT], "sql"),
    ],
)
def test_a_statement_is_no_second_problem(records: list[dict[str, Any]], entity: str) -> None:
    """The job, the execution or the timeout is the one problem."""
    (failed,) = problems(*records)
    assert failed.attributes["spark.entity"] == entity
    assert failed.body.startswith("shop: SQL statement (") == (TIMED_OUT in records)


@pytest.mark.parametrize(
    "error",
    [
        "INTERNAL: [SPARK_JOB_CANCELLED] Job 5 cancelled by the user. SQLSTATE: XXKDA",
        "java.lang.InterruptedException: sleep interrupted",
        "INTERNAL: [STREAM_FAILED] Query [id = a, runId = b] terminated with exception: x SQLSTATE: XXKST",
    ],
)
def test_cancelled_and_waiting_statements_have_not_failed(error: str) -> None:
    assert problems({**CONNECT, "error": error}) == []


def test_a_success_without_failure_does_not_hide_the_statement() -> None:
    """A job of the statement that succeeded is no reason to leave out the failure."""
    (failed,) = problems(*job({"spark.job.tags": TAG}, fails=False), CONNECT)
    assert failed.attributes["spark.connect.operation_id"] == OPERATION


def test_jobs_of_a_statement_have_its_attributes() -> None:
    (failed,) = problems(THRIFT_STARTED, *job({"spark.jobGroup.id": GROUP}))
    expected = {"spark.thriftserver.user": "ada", "spark.thriftserver.session_id": SESSION}
    expected |= {"spark.sql.statement": "select 1/0", "spark.job.group": GROUP}
    assert {key: failed.attributes.get(key) for key in expected} == expected


@pytest.mark.parametrize("others", [[], [{"session_id": "other"}]])
def test_an_execution_without_a_group_is_found_by_its_text(others: list[dict[str, str]]) -> None:
    """Before Spark 4.1, an execution does not tell its group; a text that several sessions ran names no client."""
    started = [{**THRIFT_STARTED, "statement_id": f"s{i}", **about} for i, about in enumerate(others)]
    (failed,) = problems(*started, THRIFT_STARTED, *execution(description="select 1/0"), THRIFT)
    assert failed.attributes["spark.entity"] == "sql"
    assert (failed.attributes.get("spark.thriftserver.user") == "ada") == (not others)
    assert ("user 'ada'" in failed.body) == (not others)


def test_a_batch_names_the_client_of_its_query() -> None:
    """Spark 3.5 and 4.0 report the start of a query without its tags."""
    batch = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "0", "spark.job.tags": TAG}
    started = {"kind": "batch_started", "properties": batch}
    (failed,) = problems(query_started(), started, query_terminated(exception="a.B: x"))
    assert failed.attributes["spark.connect.user_id"] == "ada"


def test_work_in_the_session_of_a_query_belongs_to_the_query() -> None:
    """The session that Spark created for a query shows that a job is the query's.

    Its execution and its statement are no problem, although both may end before the job.
    """
    other = OPERATION.replace("0", "a")
    batch = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "3", "spark.job.tags": f"spark-session-{other}"}
    inside = f"{TAG},spark-session-{other}"
    failed = problems(
        query_started("r1", "q1", name="clicks", tags=TAG.replace("ada", "eve").replace(OPERATION, GROUP)),
        {"kind": "batch_started", "properties": batch},
        *execution(tags=inside),
        CONNECT,
        *job({"spark.job.tags": inside}),
        query_terminated("r1", "q1", exception=f"org.apache.spark.SparkException: {ERROR}"),
    )
    assert [event.attributes["spark.entity"] for event in failed] == ["job", "query"]
    for event in failed:
        assert event.attributes["spark.streaming.query.name"] == "clicks"
        assert event.attributes["spark.batch.id"] == 3
        assert event.attributes["spark.connect.user_id"] == "eve"
    assert failed[1].body.startswith("shop: query 'clicks' (user 'eve', session 839c8b37) failed at batch 3: ")
