"""Tests of the reported outcome of an application, for each way in which an application can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import pytest
from process_status import EXIT_STATUS_IS_READABLE
from spark.harness import (
    IN_MEMORY,
    JOBS,
    PATIENT,
    Lab,
    Run,
    file_reporter,
    pyspark_home,
    runs_any_spark,
    spark_version,
    two_lines,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

#: Since Spark 4.0, Spark's end event contains the exit code of spark-sql.
KNOWS_EXIT_CODES = spark_version() >= (4,)
LINES = {**two_lines(), **PATIENT, **file_reporter(Path("{folder}/events.jsonl"))}
ASYNC_LINES = {**two_lines(), **PATIENT, **file_reporter(Path("{folder}/events.jsonl"), "async-queued")}


class Ending(NamedTuple):
    """One way in which an application ends, and the expected exit code, status and reason."""

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
    run.wait_until_announced("counted")
    run.signal(run.driver(), signal.SIGTERM)
    run.wait()
    return run


def sql(statement: str) -> Callable[[Lab], Run]:
    return lambda lab: lab.run("", "-e", statement, program=["spark-sql"], defaults={**LINES, **IN_MEMORY})


def local_cluster(lab: Lab) -> Run:
    conf = {"spark.master": "local-cluster[2,1,1024]"}
    return lab.run("stream.py", "3", defaults=ASYNC_LINES, conf=conf)


#: Losing this executor ends the application.
ONE_EXECUTOR = {"spark.master": "local-cluster[1,1,1024]", "spark.deploy.maxExecutorRetries": "0"}


def lost_only_executor(lab: Lab) -> Run:
    """Kill the only executor, which the cluster manager cannot replace."""
    run = lab.start("ending.py", "be-stopped", defaults=ASYNC_LINES, conf=ONE_EXECUTOR)
    run.wait_until_announced("counted")
    (executor,) = run.executors()
    run.signal(executor.pid, signal.SIGKILL)
    run.wait()
    return run


def never_started(lab: Lab) -> Run:
    """Start an application that waits for executors, but whose executors cannot start.

    The executors' Java fails only after the application has started. Otherwise the cluster manager might end the
    application before Spark calls any listener. Spark stops the context in a daemon thread. Meanwhile, the program
    fails, and the JVM begins to exit before the slow listener has returned.
    """
    java = lab.folder / "failing-java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nuntil grep -q RUNNING "$EVENTS"; do sleep 0.05; done\nexit 1\n', encoding="utf-8")
    java.chmod(0o755)
    javac: list[str | Path] = [Path(os.environ["JAVA_HOME"], "bin", "javac"), "-J-XX:TieredStopAtLevel=1"]
    classes = lab.folder / "slow-listener"
    path = f"{pyspark_home() / 'jars'}/*"
    subprocess.run([*javac, "-cp", path, "-d", classes, JOBS / "SlowListener.java"], check=True)
    conf = {
        **ONE_EXECUTOR,
        "spark.extraListeners": f"SlowListener,{LINES['spark.extraListeners']}",
        "spark.driver.extraClassPath": f"{classes}:{LINES['spark.driver.extraClassPath']}",
        "spark.cores.max": "1",  # otherwise Spark expects 0 cores and does not wait
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.executorEnv.JAVA_HOME": str(java.parent.parent),
        "spark.executorEnv.EVENTS": "{folder}/events.jsonl",
    }
    return lab.run("ending.py", "stop", defaults=LINES, conf=conf)


ENDINGS = {
    "stop": Ending(submit("stop"), 0, "FINISHED", "STOPPED"),
    "never-stop": Ending(submit("never-stop", ASYNC_LINES), 0, "FINISHED"),
    "exit-3": Ending(submit("exit-3"), 3, "FAILED"),
    "raise": Ending(submit("raise", ASYNC_LINES), 1, "FAILED"),
    "plain-python": Ending(plain_python, 0, "FINISHED" if EXIT_STATUS_IS_READABLE else "ENDED"),
    "sigterm": Ending(terminated, 143, "CANCELLED", "SIGTERM"),
    "sql": Ending(sql("select sum(id) from range(10)"), 0, "FINISHED" if KNOWS_EXIT_CODES else "ENDED"),
    "sql-that-fails": Ending(
        sql("select raise_error(concat('boom ', id)) from range(3)"), 1, "FAILED" if KNOWS_EXIT_CODES else "ENDED"
    ),
    "local-cluster": Ending(local_cluster, 0, "FINISHED", "STOPPED"),
    "given-up": Ending(lost_only_executor, 1, "FAILED", "SPARK_STOPPED"),
    "never-started": Ending(never_started, 1, "FAILED", "SPARK_STOPPED"),
}


#: Endings whose outcome does not depend on the version of Spark. "given-up" ends like "never-started": the same method
#: of Spark's backend stops the context.
ON_ANY_SPARK = {"plain-python", "local-cluster", "given-up"}


@pytest.fixture(scope="module")
def runs(lab: Lab, request: pytest.FixtureRequest) -> dict[str, Future[Run]]:
    """Run one application for each ending that a selected test may need, two at a time."""
    skipped = set() if runs_any_spark(request) else ON_ANY_SPARK
    return {how: lab.background(ending.start, lab) for how, ending in ENDINGS.items() if how not in skipped}


@pytest.fixture(
    scope="module",
    params=[pytest.param(how, marks=pytest.mark.any_spark) if how in ON_ANY_SPARK else how for how in ENDINGS],
)
def how(request: pytest.FixtureRequest) -> str:
    """Return the name of an ending."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def run(how: str, runs: dict[str, Future[Run]]) -> Run:
    """Return the finished job with this ending."""
    return runs[how].result()


def test_the_exit_code_does_not_change(run: Run, how: str) -> None:
    assert run.process.returncode == ENDINGS[how].exit_code, run.tail()


def test_the_application_s_statuses_match_its_end(run: Run, how: str) -> None:
    """An application is reported as RUNNING and then with one final status. CANCELLED has severity WARN."""
    started, ended = run.named("JobStatusChangeEvent", spark_entity="application")
    assert started["attributes"]["spark.status.new"] == "RUNNING"
    assert "spark.status.old" not in started["attributes"]
    assert started["severity"] == "INFO"
    assert ended["attributes"]["spark.status.old"] == "RUNNING"
    assert ended["attributes"]["spark.status.new"] == ENDINGS[how].status, ended
    assert ended["severity"] == {"CANCELLED": "WARN"}.get(ENDINGS[how].status, "INFO")
    assert ended["attributes"]["spark.app.end_reason"]
    if ENDINGS[how].reason:
        assert ended["attributes"]["spark.app.end_reason"] == ENDINGS[how].reason


def test_a_failed_application_has_a_failure_event(run: Run, how: str) -> None:
    failures = run.named("JobFailureEvent", spark_entity="application")
    ended = run.named("JobStatusChangeEvent", spark_entity="application")[-1]["attributes"]
    # An application whose last statement failed is an alarm, also if its exit code is unknown.
    is_doubtful = ended["spark.status.new"] == "ENDED" and "failed" in ended.get("spark.app.outcome_hint", "")
    assert len(failures) == (ENDINGS[how].status == "FAILED" or is_doubtful)
    if failures:
        # Spark waits for this reporter, so a failed job or query is reported as an alarm before its application fails.
        assert [event["severity"] for event in run.events()].count("ERROR") == 1


def test_a_reported_exit_code_equals_the_process_exit_code(run: Run, how: str) -> None:
    """The attribute exit_code is present only if the exit code is known, and equals the code of the process."""
    _started, ended = run.named("JobStatusChangeEvent", spark_entity="application")
    assert ended["attributes"].get("spark.app.exit_code", run.process.returncode) == run.process.returncode


def test_sequences_have_no_gap(run: Run) -> None:
    """The file contains every event in order, however the application ends."""
    sequences = [event["sequence"] for event in run.events()]
    assert sequences == list(range(1, len(sequences) + 1))


def test_no_ending_logs_a_warning(run: Run) -> None:
    assert run.own_messages == []


def test_failing_sql_names_spark_s_error(runs: dict[str, Future[Run]]) -> None:
    """If a statement in spark-sql fails, a job failure with Spark's message is reported."""
    (failure,) = runs["sql-that-fails"].result().named("JobFailureEvent", spark_entity="job")
    assert "boom" in failure["attributes"]["failure.root_cause"]
    assert failure["attributes"]["exception.type"].rpartition(".")[2] != "unknown"
    assert failure["severity"] == "WARN"


def test_a_failed_last_job_is_mentioned(runs: dict[str, Future[Run]]) -> None:
    """If the last job failed, the application's end event names this job, even if the outcome is unknown."""
    ended = runs["sql-that-fails"].result().named("JobStatusChangeEvent", spark_entity="application")[-1]
    assert "failed" in ended["attributes"]["spark.app.outcome_hint"]


def test_successful_sql_is_not_a_failure(runs: dict[str, Future[Run]]) -> None:
    """A successful SQL statement causes no event above INFO."""
    assert {event["severity"] for event in runs["sql"].result().events()} <= {"DEBUG", "INFO"}


@pytest.mark.any_spark
def test_a_local_cluster_reports_its_stream(runs: dict[str, Future[Run]]) -> None:
    """If executors run in separate processes, every commit is reported once, as in local mode."""
    run = runs["local-cluster"].result()
    commits = run.named("BatchCommitEvent", spark_streaming_query_name="steady")
    assert [event["attributes"]["spark.batch.id"] for event in commits] == run.commits("steady")
