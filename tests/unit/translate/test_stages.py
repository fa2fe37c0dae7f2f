"""Tests of failed stage attempts: which attempts are reported, with which severity and cause."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import START, decoded

from spark_events import Event, Severity
from spark_events.translate.translator import Translator

FETCH = "org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location for shuffle 0 partition 1\n"
BARRIER = "Stage failed because barrier task ShuffleMapTask(3, 0) finished unsuccessfully.\njava.io.IOException: x\n"
BARE = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1, position 1) ==\n1/0\n"


def aborted(stage: int, cause: str = "java.lang.RuntimeException: the order was cancelled") -> str:
    lost = f"Lost task 0.3 in stage {stage}.0 (TID 7) (10.0.0.9 executor 2): {cause}"
    return (
        f"Job aborted due to stage failure: Task 0 in stage {stage}.0 failed 4 times, most recent failure: {lost}"
        "\nDriver stacktrace:"
    )


def submitted(stage: int = 3, attempt: int = 0, time: int = START) -> dict[str, Any]:
    return {"kind": "stage_submitted", "stage_id": stage, "attempt": attempt, "name": "s", "tasks": 2, "time": time}


def completed(reason: str | None, stage: int = 3, attempt: int = 0, **fields: Any) -> dict[str, Any]:
    about = {"stage_id": stage, "attempt": attempt, "name": "s", "tasks": 2, "time": START + 50, "failed": 1}
    return {"kind": "stage_completed", **about, "failure_reason": reason, **fields}


def removed(executor: str, time: int, reason: str | None) -> dict[str, Any]:
    return {"kind": "executor_removed", "executor_id": executor, "time": time, "reason": reason}


def translate(*records: dict[str, Any]) -> list[Event]:
    translator = Translator()
    events = [event for record in records for event in translator.translate(decoded(record))]
    return [event for event in events if event.class_scope != "spark.executor"]


@pytest.mark.parametrize("reason", [FETCH, FETCH.replace("MetadataFetch", "Fetch"), BARRIER])
def test_the_fourth_consecutive_failure_is_final(reason: str) -> None:
    """Of four consecutive failures of a stage, three are warnings; the last is a consequence of the job's failure."""
    events = translate(*[r for n in range(4) for r in (submitted(attempt=n), completed(reason, attempt=n))])
    assert [event.severity for event in events] == [Severity.WARN] * 3 + [Severity.INFO]
    assert [event.attributes["failure.will_retry"] for event in events] == [True] * 3 + [False]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("csv at NativeMethodAccessorImpl.java:0", "csv"),
        ("csv at DirectMethodHandleAccessor.java:103", "csv"),
        ("count at etl.py:12", "count at etl.py:12"),
        ("start at Orders.scala:7", "start at Orders.scala:7"),
    ],
)
def test_py4j_s_reflection_is_not_shown_as_the_stage_s_place(name: str, shown: str) -> None:
    """The body omits a call site in the JDK's reflection, which Py4J uses. The attribute keeps Spark's name."""
    (event,) = translate({**submitted(), "name": name}, {**completed(FETCH), "name": name})
    assert event.body.startswith(f"Stage 3 [{shown}] failed ")
    assert event.attributes["spark.stage.name"] == name


@pytest.mark.parametrize("thread", ["CompletableFuture.java:1768", "FutureTask.java:264"])
@pytest.mark.parametrize(
    ("described", "shown"),
    [("count at NativeMethodAccessorImpl.java:0", " (count)"), ("save at etl.py:9", " (save at etl.py:9)"), (None, "")],
)
def test_a_stage_of_adaptive_execution_has_the_name_of_its_sql_execution(
    thread: str, described: str | None, shown: str
) -> None:
    """If Spark names a stage after its own thread, job and stage have the description of their SQL execution."""
    properties = {"spark.sql.execution.id": "7"}
    name = f"$anonfun$withThreadLocalCaptured$1 at {thread}"
    begun = {"kind": "sql_execution_start", "execution_id": 7, "time": START, "description": described}
    job = {"kind": "job_start", "job_id": 4, "time": START, "properties": properties}
    stage = {**submitted(), "name": name, "properties": properties}
    started, failed = translate(begun, job, stage, {**completed(FETCH), "name": name})
    assert started.body.endswith(f"ob 4{shown} started")
    assert failed.body.startswith(f"Stage 3 failed{shown} and will be retried")
    assert failed.attributes["spark.stage.name"] == name


@pytest.mark.parametrize("most", [1, 2, 6])
def test_spark_s_setting_limits_the_attempts(most: int) -> None:
    """The setting ``spark.stage.maxConsecutiveAttempts`` determines which failure of a stage is the last."""
    events = translate(
        *[r for n in range(most) for r in (submitted(attempt=n), completed(FETCH, attempt=n, most_failures=most))]
    )
    assert [event.attributes["failure.will_retry"] for event in events] == [True] * (most - 1) + [False]
    assert events[-1].severity is Severity.INFO


def test_a_final_stage_with_a_barrier_is_not_retried() -> None:
    """Spark does not retry a result stage with a barrier, and reports its failure twice. Only one event is emitted."""
    reason = BARRIER.replace("ShuffleMapTask", "ResultTask")
    final = (
        f"Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent {reason}"
    )
    translator = Translator()
    for reasons in ((reason, final), (final, final)):
        stage = 3 + len(reasons[0])
        records = [submitted(stage), *(completed(one, stage) for one in reasons)]
        (event,) = [event for record in records for event in translator.translate(decoded(record))]
        assert event.severity is Severity.INFO
        assert event.attributes["failure.will_retry"] is False
    assert translator.illegal == 0


def test_a_successful_attempt_resets_the_count() -> None:
    records = []
    for attempt in range(6):
        records += [submitted(attempt=attempt), completed(None if attempt == 2 else FETCH, attempt=attempt)]
    events = translate(*records)
    assert [event.attributes["failure.will_retry"] for event in events] == [True] * 5


def test_only_the_stage_that_failed_the_job_is_reported() -> None:
    """Only the stage that failed the job is reported, although Spark assigns the reason to all running stages."""
    events = translate(submitted(3), submitted(4), completed(aborted(3), 4, failed=0), completed(aborted(3), 3))
    assert [(event.attributes["spark.stage.id"], event.severity) for event in events] == [(3, Severity.INFO)]
    assert events[0].body == "Stage 3 [s] failed: java.lang.RuntimeException: the order was cancelled"
    assert events[0].attributes["exception.type"] == "org.apache.spark.SparkException"


def test_in_spark_4_all_stages_have_the_same_message() -> None:
    """In Spark 4, all stages of a failed job have the same message. Only the stage with the failed task is reported.

    The exception in the message is from a task of this stage. The other stages did not fail, even if an attempt of
    their tasks failed earlier.
    """
    own = f"org.apache.spark.SparkArithmeticException: {BARE}\tat a.B.c(B.java:1)\n"
    records = [submitted(3), submitted(4), completed(BARE, 4, failed=1), completed(BARE, 3, task_failure=own)]
    (event,) = translate(*records)
    assert event.attributes["spark.stage.id"] == 3
    assert (event.attributes["error.type"], event.attributes["failure.sql_state"]) == ("DIVIDE_BY_ZERO", "22012")
    assert event.attributes["exception.type"] == "org.apache.spark.SparkArithmeticException"


def test_stage_that_fails_without_a_failed_task_is_reported() -> None:
    """A stage that fails without a failed task, for example because a task cannot be serialized, is reported."""
    reason = "Job aborted due to stage failure: Task not serializable: java.io.NotSerializableException: Foo"
    (event,) = translate(submitted(), completed(reason, failed=0))
    assert event.severity is Severity.INFO


@pytest.mark.parametrize(
    "reason",
    [
        "Job 4 is finished.",
        "Job 4 cancelled because SparkContext was shut down",
        "Job 4 cancelled part of cancelled job group nightly",
        "Job 4 cancelled as part of cancellation of all jobs",
        "Job 4 cancelled because Stage 7 was cancelled",
        "[SPARK_JOB_CANCELLED] Job 4 cancelled part of cancelled job group x SQLSTATE: XXKDA",
        "org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 4 cancelled by x",
        "Stage cancelled because SparkContext was shut down",
        "Stage finished",
        "(jobs 4) were aborted so this stage is not needed anymore.",
    ],
)
def test_stages_cancelled_after_their_job_are_not_reported(reason: str) -> None:
    """A stage cancelled after the end of its job is not reported: it did not fail, or the job's event has the cause."""
    assert translate(submitted(), completed(reason)) == []


def test_a_lost_executor_is_the_cause_of_the_fetch_failure_that_follows() -> None:
    """The cause of a fetch failure is the lost executor with the shuffle files, which Spark's message does not name."""
    events = translate(
        removed("1", START - 5_000, "idle"),
        submitted(),
        removed("2", START + 10, "Container killed by YARN for exceeding memory limits"),
        completed(FETCH),
    )
    assert events[0].attributes["failure.executor.id"] == "2"
    assert events[0].attributes["failure.executor.reason"] == "Container killed by YARN for exceeding memory limits"


MISSING = (
    "org.apache.spark.shuffle.FetchFailedException\n\tat org.apache.spark.A.b(A.scala:1)\n"
    "Caused by: org.apache.spark.SparkException: [INTERNAL_ERROR_NETWORK] x SQLSTATE: XX000\n\tat a.B.c(B.java:1)\n"
    "Caused by: java.nio.file.NoSuchFileException: /tmp/blockmgr/0c/shuffle_0_0_0.index\n\tat sun.nio.A.b(A.java:1)\n"
)


def test_a_fetch_failure_names_the_lost_executor() -> None:
    gone = removed("1", START - 5, "Command exited with code 137")
    other = removed("2", START + 10, "idle")
    missed = completed(MISSING, lost_executor="1", lost_host="10.0.0.9")
    (event,) = translate(gone, submitted(), other, missed)
    lost = "the shuffle output of executor 1 on 10.0.0.9 is lost: Command exited with code 137"
    assert event.body == f"Stage 3 [s] failed and will be retried by Spark: {lost}"
    kind = "org.apache.spark.shuffle.FetchFailedException"
    assert event.attributes["failure.root_cause"] == f"{kind}: {lost}"
    assert event.attributes["error.type"] == kind
    assert event.attributes["failure.executor.id"] == "1"
    assert event.attributes["failure.executor.reason"] == "Command exited with code 137"
    assert event.attributes["failure.label.type"] == "RESOURCE"


def test_fetch_failure_before_the_removal_names_the_executor() -> None:
    """If a fetch failure precedes the removal of the executor, the cause is the fetch error."""
    (event,) = translate(submitted(), completed(MISSING, lost_executor="1"))
    assert event.attributes["failure.executor.id"] == "1"
    assert "cannot fetch the shuffle output of executor 1" in event.body
    assert "NoSuchFileException" in event.body


def test_a_job_failed_by_fetch_failures_names_the_lost_executor() -> None:
    """The cause of a job that fails after fetch failures is the lost executor. The job's exception names the stage."""
    message = (
        "Job aborted due to stage failure: ResultStage 3 (count at job.py:9) has failed the maximum allowable number "
        f"of times: 4. Most recent failure reason:\n{MISSING}"
    )
    link = {"type": "org.apache.spark.SparkException", "message": message}
    end = {"kind": "job_end", "job_id": 4, "time": START + 60, "failure": {"chain": [link]}}
    gone = removed("1", START, "Command exited with code 137")
    events = translate(gone, submitted(), completed(MISSING, lost_executor="1", most_failures=1), end)
    job = events[-1]
    assert job.body == "Job 4 failed: the shuffle output of executor 1 is lost: Command exited with code 137"
    assert job.attributes["failure.executor.id"] == "1"


def test_an_executor_removed_earlier_is_not_the_cause() -> None:
    (event,) = translate(removed("1", START - 5_000, "idle"), submitted(), completed(FETCH))
    assert "failure.executor.id" not in event.attributes


def test_a_stage_with_an_unknown_start_names_no_executor() -> None:
    """If the record of an attempt's start was lost, an executor that was removed long before is not the cause."""
    (event,) = translate(removed("1", START - 86_400_000, "idle"), completed(FETCH))
    assert "failure.executor.id" not in event.attributes


def test_a_lost_executor_is_the_root_cause_and_labelled_as_a_resource() -> None:
    cause = "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Command exited with 137"
    (event,) = translate(removed("2", START, None), submitted(), completed(aborted(3, cause)))
    assert event.attributes["error.type"] == "ExecutorLostFailure"
    assert event.attributes["failure.executor.id"] == "2"
    assert event.attributes["failure.label.type"] == "RESOURCE"
    assert "Reason: Command exited with 137" in event.body


def edge(seq: int, status: str, time: int, finished: int = 0) -> dict[str, Any]:
    counts = {"tasks": 2, "running": 2 - finished, "finished": finished, "failed": 0}
    return {"seq": seq, "kind": "stage_tasks", "stage_id": 3, "attempt": 0, "status": status, "time": time, **counts}


def test_a_repeated_status_change_makes_no_event() -> None:
    late = edge(5, "NOT_ALL_RUNNING_OR_FINISHED", START)
    running, over = edge(7, "ALL_RUNNING_OR_FINISHED", START + 1), edge(9, "ALL_FINISHED", START + 2, 2)
    events = translate(submitted(), running, over, running, over, late)
    assert [event.attributes["spark.status.new"] for event in events] == ["ALL_RUNNING_OR_FINISHED", "ALL_FINISHED"]


@pytest.mark.parametrize("numbered", [True, False], ids=["live", "replay"])
def test_a_status_change_is_never_earlier_than_its_predecessor(numbered: bool) -> None:
    """A status change that is reported late is kept. Its time is at least the time of the previous change."""
    events = translate(
        submitted(),
        edge(7 * numbered, "ALL_RUNNING_OR_FINISHED", START + 10, 1),
        edge(8 * numbered, "NOT_ALL_RUNNING_OR_FINISHED", START + 60, 0),
        edge(9 * numbered, "ALL_RUNNING_OR_FINISHED", START + 58, 0),
        edge(10 * numbered, "ALL_FINISHED", START + 90, 2),
    )
    assert [event.observed_ts_millis - START for event in events] == [10, 60, 60, 90]
    assert events[2].attributes["spark.status.old"] == "NOT_ALL_RUNNING_OR_FINISHED"
    assert len({event.event_id for event in events}) == 4


def test_a_clock_set_back_hides_no_status_change() -> None:
    """If the driver's clock is set back, no status change is lost, because records are ordered by number."""
    running, over = edge(7, "ALL_RUNNING_OR_FINISHED", START), edge(9, "ALL_FINISHED", START - 3_600_000, 2)
    events = translate(submitted(), running, over, running, over)
    assert [event.attributes["spark.status.new"] for event in events] == ["ALL_RUNNING_OR_FINISHED", "ALL_FINISHED"]


def test_a_long_stage_is_kept_during_thousands_of_short_stages() -> None:
    """The state of a long stage survives thousands of short stages, because finished stages are removed first."""
    translator = Translator()
    translator.translate(decoded({**submitted(0), "properties": {"sql.streaming.queryId": "q"}}))
    for stage in range(1, 5_000):
        translator.translate(decoded(submitted(stage)))
        translator.translate(decoded(completed(None, stage)))
    (event,) = translator.translate(decoded(completed(aborted(0), 0)))
    assert event.attributes["spark.streaming.query.id"] == "q"
