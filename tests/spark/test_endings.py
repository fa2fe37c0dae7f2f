"""How an application ended, as far as that can be known, by every way in which one ends."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import pytest
from process_status import TELLS_EXIT_STATUS
from spark.harness import PATIENT, Lab, Run, file_reporter, spark_version, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

#: Since 4.0, the end of an application that spark-sql runs comes with its exit code.
KNOWS_EXIT_CODES = spark_version() >= (4,)
LINES = {**two_lines(), **PATIENT, **file_reporter(Path("{folder}/events.jsonl"))}
ASYNC_LINES = {**two_lines(), **PATIENT, **file_reporter(Path("{folder}/events.jsonl"), "async-queued")}


class Ending(NamedTuple):
    """One way to end: how it is brought about, and what is to be said of it."""

    start: Callable[[Lab], Run]
    exit_code: int
    status: str
    reason: str | None = None


def submit(how: str, lines: dict[str, str] = LINES) -> Callable[[Lab], Run]:
    return lambda lab: lab.run("ending.py", how, defaults=lines)


def plain_python(lab: Lab) -> Run:
    return lab.run("ending.py", "never-stop", program=[sys.executable], defaults=LINES)


def terminated(lab: Lab) -> Run:
    run = lab.start("ending.py", "wait", defaults=LINES)
    run.wait_until_said("counted")
    run.signal(run.driver(), signal.SIGTERM)
    run.wait()
    return run


def sql(statement: str) -> Callable[[Lab], Run]:
    return lambda lab: lab.run("", "-e", statement, program=["spark-sql"], defaults=LINES)


def local_cluster(lab: Lab) -> Run:
    conf = {"spark.master": "local-cluster[2,1,1024]"}
    return lab.run("stream.py", "3", defaults=ASYNC_LINES, conf=conf)


#: When that one is lost, so is the application.
ONE_EXECUTOR = {"spark.master": "local-cluster[1,1,1024]", "spark.deploy.maxExecutorRetries": "0"}


def given_up(lab: Lab) -> Run:
    """Its only executor is killed, and its cluster manager starts no other."""
    run = lab.start("ending.py", "be-stopped", defaults=ASYNC_LINES, conf=ONE_EXECUTOR)
    run.wait_until_said("counted")
    (executor,) = run.executors()
    run.signal(executor.pid, signal.SIGKILL)
    run.wait()
    return run


def never_started(lab: Lab) -> Run:
    """No executor can be started, and the context waits for one."""
    conf = {
        **ONE_EXECUTOR,
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.executor.extraJavaOptions": "-agentlib:none",
    }
    return lab.run("ending.py", "stop", defaults=LINES, conf=conf)


ENDINGS = {
    "stop": Ending(submit("stop"), 0, "FINISHED", "STOPPED"),
    "never-stop": Ending(submit("never-stop", ASYNC_LINES), 0, "FINISHED"),
    "exit-3": Ending(submit("exit-3"), 3, "FAILED"),
    "raise": Ending(submit("raise", ASYNC_LINES), 1, "FAILED"),
    "plain-python": Ending(plain_python, 0, "FINISHED" if TELLS_EXIT_STATUS else "ENDED"),
    "sigterm": Ending(terminated, 143, "CANCELLED", "SIGTERM"),
    "sql": Ending(sql("select sum(id) from range(10)"), 0, "FINISHED" if KNOWS_EXIT_CODES else "ENDED"),
    "sql-that-fails": Ending(
        sql("select raise_error(concat('boom ', id)) from range(3)"), 1, "FAILED" if KNOWS_EXIT_CODES else "ENDED"
    ),
    "local-cluster": Ending(local_cluster, 0, "FINISHED", "STOPPED"),
    "given-up": Ending(given_up, 1, "FAILED", "SPARK_STOPPED"),
    "never-started": Ending(never_started, 1, "FAILED", "SPARK_STOPPED"),
}


@pytest.fixture(scope="module")
def runs(lab: Lab) -> dict[str, Future[Run]]:
    """Every ending, two at a time."""
    return {how: lab.background(ending.start, lab) for how, ending in ENDINGS.items()}


@pytest.fixture(scope="module", params=ENDINGS)
def how(request: pytest.FixtureRequest) -> str:
    """One of the endings."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def run(how: str, runs: dict[str, Future[Run]]) -> Run:
    """The job that has ended so."""
    return runs[how].result()


def test_the_exit_code_is_not_ours(run: Run, how: str) -> None:
    """The application ends with the exit code that it would have without us."""
    assert run.process.returncode == ENDINGS[how].exit_code, run.tail()


def test_the_application_s_statuses_are_true(run: Run, how: str) -> None:
    """RUNNING, then once the status that is known; FAILED is an error, CANCELLED a warning."""
    started, ended = run.named("JobStatusChangeEvent", spark_entity="application")
    assert started["attributes"]["status.new"] == "RUNNING"
    assert "status.old" not in started["attributes"]
    assert started["severity"] == "INFO"
    assert ended["attributes"]["status.old"] == "RUNNING"
    assert ended["attributes"]["status.new"] == ENDINGS[how].status, ended
    assert ended["severity"] == {"FAILED": "ERROR", "CANCELLED": "WARN"}.get(ENDINGS[how].status, "INFO")
    assert ended["attributes"]["end.reason"]
    if ENDINGS[how].reason:
        assert ended["attributes"]["end.reason"] == ENDINGS[how].reason


def test_a_failed_application_has_a_failure_event(run: Run, how: str) -> None:
    """FAILED comes with a JobFailureEvent of the application, any other end with none."""
    failures = run.named("JobFailureEvent", spark_entity="application")
    assert len(failures) == (ENDINGS[how].status == "FAILED")
    assert all(failure["severity"] == "ERROR" for failure in failures)


def test_an_exit_code_that_is_said_is_the_real_one(run: Run, how: str) -> None:
    """exit.code is there only where it is known, and then it is the process's."""
    (ended,) = [e for e in run.named("JobStatusChangeEvent", spark_entity="application") if e["sequence"] > 1]
    assert ended["attributes"].get("exit.code", run.process.returncode) == run.process.returncode


def test_sequences_have_no_gap(run: Run) -> None:
    """However it ends, the file has every event, in order."""
    sequences = [event["sequence"] for event in run.events()]
    assert sequences == list(range(1, len(sequences) + 1))


def test_an_ending_is_not_commented_on(run: Run) -> None:
    """No way to end makes spark-events complain in the driver's log."""
    assert run.own_messages == []


def test_failing_sql_names_spark_s_error(runs: dict[str, Future[Run]]) -> None:
    """A statement that fails under spark-sql is a job's failure with Spark's message."""
    (failure,) = runs["sql-that-fails"].result().named("JobFailureEvent", spark_entity="job")
    assert "boom" in failure["attributes"]["failure.root_cause"]
    assert failure["attributes"]["exception.type"].rpartition(".")[2] != "unknown"
    assert failure["severity"] == "ERROR"


def test_what_points_to_failure_is_said(runs: dict[str, Future[Run]]) -> None:
    """An application whose last job failed says so, also where the outcome of the whole is unknown."""
    ended = runs["sql-that-fails"].result().named("JobStatusChangeEvent", spark_entity="application")[-1]
    assert "failed" in ended["attributes"]["outcome.hint"]


def test_good_sql_is_no_failure(runs: dict[str, Future[Run]]) -> None:
    """A statement that works makes no event above INFO."""
    assert {event["severity"] for event in runs["sql"].result().events()} == {"INFO"}


def test_a_local_cluster_reports_its_stream(runs: dict[str, Future[Run]]) -> None:
    """With executors in processes of their own, every commit is reported once, as in local mode."""
    run = runs["local-cluster"].result()
    commits = run.named("BatchCommitEvent", spark_streaming_query_name="steady")
    assert [event["attributes"]["spark.streaming.batch.id"] for event in commits] == run.commits("steady")
