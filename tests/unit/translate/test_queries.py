"""Tests of streaming queries over all their runs."""

from __future__ import annotations

import pytest
from fakes import START, application_start, decoded, query_progress, query_started, query_terminated

from spark_events import Event, Severity
from spark_events.translate.translator import Translator


def translate(*records: dict[str, object]) -> list[Event]:
    translator = Translator()
    translator.translate(decoded(application_start()))
    return [event for record in records for event in translator.translate(decoded(record))]


def change(event: Event) -> tuple[object, object]:
    return event.attributes.get("spark.status.old"), event.attributes["spark.status.new"]


def test_start_has_the_time_of_the_query() -> None:
    """The event of a query's start contains the query's timestamp, id, run and name."""
    (event,) = translate(query_started())
    assert (event.name, event.severity, event.body) == (
        "JobStatusChangeEvent",
        Severity.INFO,
        "shop: query 'clicks' started",
    )
    assert change(event) == (None, "RUNNING")
    assert event.observed_ts_millis == 1_795_263_270_000
    assert event.attributes["spark.entity"] == "query"
    assert event.attributes["spark.streaming.query.id"] == "q1"
    assert event.attributes["spark.streaming.query.run_id"] == "r1"
    assert event.attributes["spark.streaming.query.name"] == "clicks"
    assert event.attributes["spark.app.id"] == "local-1"


def test_an_invalid_timestamp_is_replaced_by_the_time_of_the_record() -> None:
    """If a query's timestamp cannot be parsed, the event contains the time at which the shim received the query."""
    (event,) = translate(query_started(timestamp="yesterday"))
    assert event.observed_ts_millis == START + 1


def test_the_body_has_the_id_of_a_query_without_a_name() -> None:
    """For a query without a name, the body contains the beginning of its id, and the name attribute is missing."""
    (event,) = translate(query_started(query="0123456789ab", name=None))
    assert event.body == "shop: query '01234567' started"
    assert "spark.streaming.query.name" not in event.attributes


def test_a_query_that_stops_without_an_exception_is_finished() -> None:
    """A query that stops without an exception is FINISHED, whether it used stop() or AvailableNow."""
    *_, event = translate(query_started(), query_terminated())
    assert change(event) == ("RUNNING", "FINISHED")
    assert (event.severity, event.observed_ts_millis) == (Severity.INFO, START + 8)


def test_a_query_that_fails_has_a_status_and_a_failure() -> None:
    """A failed query causes a status change and a failure with the cause. The failure contains the current batch."""
    failed = query_terminated(exception="java.io.IOException: disk", error_class="DISK")
    *_, status, failure = translate(query_started(), query_progress(6), failed)
    assert change(status) == ("RUNNING", "FAILED")
    assert (status.severity, failure.severity) == (Severity.INFO, Severity.ERROR)
    assert status.attributes["error.type"] == failure.attributes["error.type"] == "DISK"
    assert failure.name == "JobFailureEvent"
    assert failure.body == "shop: query 'clicks' failed at batch 7: java.io.IOException: disk"
    assert failure.attributes["exception.type"] == "java.io.IOException"
    assert failure.attributes["spark.batch.id"] == 7


def test_a_query_that_fails_before_its_first_batch_has_no_batch() -> None:
    """If a query fails before its first batch, the batch attribute is missing instead of -1."""
    *_, failure = translate(query_started(), query_terminated(exception="a.B: x"))
    assert failure.body == "shop: query 'clicks' failed: a.B: x"
    assert "spark.batch.id" not in failure.attributes


def test_a_failed_query_has_its_last_offsets() -> None:
    """A query's failure event contains the offsets of the last commit, at which the next run continues."""
    committed = query_progress(6, sources=[{"description": "S", "endOffset": {"logOffset": 6}}])
    *_, failure = translate(query_started(), committed, query_terminated(exception="a.B: x"))
    assert failure.attributes["spark.streaming.query.committed_offsets"] == r'["{\"logOffset\":6}"]'


def test_the_end_of_an_earlier_run_does_not_end_the_present_run() -> None:
    """Late records about an earlier run do not end the query's current run."""
    *_, late, last = translate(query_started(), query_started("r2"), query_terminated("r1"), query_terminated("r2"))
    assert (change(late), late.attributes["spark.streaming.query.run_id"]) == (("RUNNING", "FINISHED"), "r1")
    assert (change(last), last.attributes["spark.streaming.query.run_id"]) == (("RUNNING", "FINISHED"), "r2")


def test_a_new_run_of_the_same_query_is_a_restart() -> None:
    """The first event of a known query id with a new run id contains the last status, and is marked as a restart."""
    *_, event = translate(query_started(), query_terminated(exception="a.B: x"), query_started("r2"))
    assert change(event) == ("FAILED", "RUNNING")
    assert event.body == "shop: query 'clicks' restarted"
    assert event.attributes["spark.streaming.query.restart"] is True
    assert event.attributes["spark.streaming.query.run_number"] == 2
    assert event.attributes["spark.streaming.query.run_id"] == "r2"


def test_runs_whose_end_was_lost_are_forgotten_before_finished_runs() -> None:
    """After thousands of lost ends, a repeated record of the end of another query still causes no second event."""
    restarts = [query_started(f"r{number}") for number in range(1_100)]
    other, end = query_started("other", "q2"), query_terminated("other", "q2")
    *_, last = translate(*restarts, other, end, query_started("last"), end)
    assert last.attributes["spark.streaming.query.run_id"] == "last"


def test_another_query_with_the_same_name_is_not_a_restart() -> None:
    """A query with the same name but another id is not a restart, because only the id identifies a query."""
    *_, event = translate(query_started(), query_terminated(), query_started("r2", "q2"))
    assert change(event) == (None, "RUNNING")
    assert "spark.streaming.query.restart" not in event.attributes


def test_end_of_an_unknown_run_is_reported() -> None:
    (event,) = translate(query_terminated("r9", "q9"))
    assert change(event) == (None, "FINISHED")
    assert event.attributes["spark.streaming.query.run_id"] == "r9"


def test_commit_of_an_unknown_run_is_reported() -> None:
    (event,) = translate(query_progress(4, "r9", "q9"))
    assert event.name == "BatchCommitEvent"
    assert event.attributes["spark.streaming.query.id"] == "q9"


def test_repeated_records_make_no_second_event() -> None:
    events = translate(query_started(), query_started(), query_terminated(), query_terminated(), query_terminated())
    assert [change(event) for event in events] == [(None, "RUNNING"), ("RUNNING", "FINISHED")]


TIMEOUT = "java.util.concurrent.TimeoutException: Futures timed out after [120 seconds]\n\tat scala.Await.x(A.scala:1)"
RAISED = "Job aborted due to stage failure: Task 0 failed: java.lang.ArithmeticException: / by zero"
IN_USER_CODE = 'Traceback (most recent call last):\n  File "/jobs/a.py", line 3, in f\n    g()\nTimeoutError: no answer'


def failed_job() -> list[dict[str, object]]:
    failure = {"chain": [{"type": "org.apache.spark.SparkException", "message": RAISED}]}
    return [
        {"kind": "job_start", "job_id": 3, "time": START + 2, "properties": {"sql.streaming.queryId": "q1"}},
        {"kind": "job_end", "job_id": 3, "time": START + 3, "failure": failure},
    ]


@pytest.mark.parametrize(
    ("exception", "is_secondary"),
    [
        (TIMEOUT, True),
        ("java.lang.InterruptedException", True),
        ("java.util.concurrent.CancellationException: Task was cancelled.", True),
        ("org.apache.spark.rpc.RpcEndpointNotFoundException: Cannot find endpoint: EpochCoordinator", True),
        (f"org.apache.spark.SparkException: x\n\tat a.b(C.scala:1)\nCaused by: {TIMEOUT}", True),
        ("java.lang.IllegalStateException: the checkpoint was deleted", False),
        (IN_USER_CODE, False),
    ],
)
def test_a_query_that_fails_after_its_job_has_the_cause_of_the_job(exception: str, is_secondary: bool) -> None:
    """The error of a thread that waited for the failed job is not the cause, but an attribute."""
    ended = query_terminated(exception=exception)
    *_, query = translate(query_started(), *failed_job(), ended)
    (alone,) = (one for one in translate(query_started(), ended) if one.name == "JobFailureEvent")
    if not is_secondary:
        assert query.body == alone.body
        assert "failure.secondary_error" not in query.attributes
        return
    assert query.severity is Severity.ERROR
    assert "/ by zero (job 3 failed; the query then ended with " in query.body
    assert str(query.attributes["failure.root_cause"]).endswith("/ by zero")
    assert query.attributes["failure.secondary_error"] == alone.attributes["failure.root_cause"]
    assert query.event_id == alone.event_id


def test_the_cause_of_a_query_is_not_an_earlier_job() -> None:
    """A job that failed before a commit, in another run or in another query did not end this run."""
    ended = query_terminated(exception=TIMEOUT)
    other = [query_started("r0", "q0"), *failed_job()]
    other[1] = {**other[1], "properties": {"sql.streaming.queryId": "q0"}}
    for before in (
        [query_started(), *failed_job(), query_progress()],
        [query_started("r0"), *failed_job(), query_started()],
        [*other, query_started()],
    ):
        assert "failure.secondary_error" not in translate(*before, ended)[-1].attributes
