"""Tests of SQL that fails in the driver, of cancelled jobs, and of the reason for an application's failure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from spark.harness import IN_MEMORY, PATIENT, PLAIN_EVENT_LOG, Lab, Run, file_reporter, spark_version, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

LOG = {
    **PLAIN_EVENT_LOG,
}
LINES = {**two_lines(), **PATIENT, **LOG, **file_reporter(Path("{folder}/events.jsonl"))}
SPARK_4 = spark_version() >= (4,)


def job(how: str, **conf: str) -> Callable[[Lab], Run]:
    return lambda lab: lab.run(
        "sql_failures.py", how, defaults=LINES | {k.replace("_", "."): v for k, v in conf.items()}
    )


def shell(statements: str, **conf: str) -> Callable[[Lab], Run]:
    """Run spark-sql with the statements in a file, and with jars that the shell adds before the first statement."""

    def start(lab: Lab) -> Run:
        folder = Path(tempfile.mkdtemp(dir=lab.folder))
        file = folder / "statements.sql"
        file.write_text(statements, encoding="utf-8")
        # Spark 3.5 and 4.0 add these jars before the shell replaces its error stream for the last time.
        jars = [folder / f"{number}.jar" for number in range(50)]
        for jar in jars:
            zipfile.ZipFile(jar, "w").close()
        added = f"hive.aux.jars.path={','.join(map(str, jars))}"
        return lab.run("", "--hiveconf", added, "-f", str(file), program=["spark-sql"], defaults=LINES | conf)

    return start


JOBS = {
    "driver": job("driver"),
    "memory": job("memory", spark_driver_memory="600m", spark_driver_maxResultSize="0"),
    "exists": job("exists"),
    "cancelled": job("cancelled"),
    "analysis": shell("select 1;\nselect * from no_such_table;\n"),
    "syntax": shell("select 1;\nselec 2;\n", **IN_MEMORY),
}


@pytest.fixture(scope="module")
def runs(lab: Lab) -> dict[str, Future[Run]]:
    """Run all jobs of this module, two at a time."""
    return {how: lab.background(start, lab) for how, start in JOBS.items()}


def failures(run: Run, entity: str) -> list[dict[str, Any]]:
    return run.named("JobFailureEvent", spark_entity=entity)


def statuses(run: Run, entity: str) -> list[str]:
    return [e["attributes"]["spark.status.new"] for e in run.named("JobStatusChangeEvent", spark_entity=entity)]


def test_sql_that_fails_in_the_driver_is_reported_once(runs: dict[str, Future[Run]]) -> None:
    """SQL that fails in the driver is WARN: for a missing table, an existing path or a broadcast timeout.

    SQL that fails because of its job is INFO, because the job reports the failure.
    """
    run = runs["driver"].result()
    assert len(run.truth()) == 4
    assert all(run.truth()), run.truth()
    missing, exists, of_job, timeout = failures(run, "sql")
    assert missing["attributes"]["error.type"] == "TABLE_OR_VIEW_NOT_FOUND"
    assert exists["attributes"]["error.type"] == "PATH_ALREADY_EXISTS"
    assert "Could not execute broadcast" in timeout["attributes"]["exception.message"]
    assert {event["severity"] for event in (missing, exists, timeout)} == {"WARN"}
    assert exists["attributes"]["failure.label.type"] == "USER"
    (job,) = failures(run, "job")
    assert [event["severity"] for event in (job, of_job)] == ["WARN", "INFO"]
    assert of_job["attributes"]["incident.id"] == job["attributes"]["incident.id"]


def test_a_driver_out_of_memory_in_collect(runs: dict[str, Future[Run]]) -> None:
    """If the driver runs out of memory in collect, the SQL execution has failed, although its job succeeded."""
    run = runs["memory"].result()
    assert run.truth()
    (event,) = failures(run, "sql")
    assert event["severity"] == "WARN"
    assert event["attributes"]["error.type"] == "java.lang.OutOfMemoryError"
    assert event["attributes"]["failure.label.type"] == "SYSTEM"
    assert failures(run, "job") == []


def test_a_failed_application_names_the_sql_that_failed_before_it(runs: dict[str, Future[Run]]) -> None:
    """Without `configure`, the exception that ended the program is unknown."""
    run = runs["exists"].result()
    (sql,), (application,) = failures(run, "sql"), failures(run, "application")
    assert sql["attributes"]["error.type"] == "PATH_ALREADY_EXISTS"
    assert application["attributes"]["failure.preceding.error_type"] == "PATH_ALREADY_EXISTS"
    assert "already exists" in application["body"]
    assert application["severity"] == "ERROR"


def test_a_cancelled_job_is_cancelled(runs: dict[str, Future[Run]]) -> None:
    """Jobs that are cancelled by cancelAllJobs, or by the application's end, are CANCELLED."""
    run = runs["cancelled"].result()
    assert statuses(run, "job") == ["RUNNING", "CANCELLED", "RUNNING", "CANCELLED"]
    assert failures(run, "sql") == []
    assert re.search(
        r"while running job \d+", run.named("JobStatusChangeEvent", spark_entity="application")[-1]["body"]
    )


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("analysis", "TABLE_OR_VIEW_NOT_FOUND", "no_such_table"),
        ("syntax", "PARSE_SYNTAX_ERROR", "Syntax error at or near 'selec'"),
    ],
)
def test_the_failed_statement_of_spark_sql_is_the_reason(
    runs: dict[str, Future[Run]], how: str, error: str, message: str
) -> None:
    """The failed statement is the cause in the alarm, also where Spark does not tell the exit code."""
    run = runs[how].result()
    assert run.process.returncode == 1
    (application,) = failures(run, "application")
    assert message in application["body"]
    if SPARK_4:
        assert application["attributes"]["error.type"] == error
        assert application["attributes"]["spark.app.exit_code"] == 1
    else:
        assert application["attributes"]["failure.preceding.error_type"] == error
        assert application["body"].endswith("; exit code unknown")
    # The shell still prints its own message.
    assert message in run.log


@pytest.mark.parametrize("how", ["driver", "cancelled"])
def test_a_replay_has_the_same_failures(runs: dict[str, Future[Run]], how: str) -> None:
    """A replay of Spark's event log yields the same failures as the live run, with all attributes."""
    run = runs[how].result()
    log = next(path for path in run.folder.glob("local-*"))
    program = "import sys; from spark_events.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "replay", str(log), "--name", "JobFailureEvent"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    replayed = [json.loads(text) for text in done.stdout.splitlines()]
    live = run.named("JobFailureEvent")
    # Spark may report the ends of a job and of its SQL execution to two listeners in two orders; the first one is WARN.
    by_id = {event["event_id"]: event for event in replayed}
    assert by_id.keys() == {event["event_id"] for event in live}
    assert sorted(event["severity"] for event in replayed) == sorted(event["severity"] for event in live)
    for event in live:
        again = by_id[event["event_id"]]
        assert event["attributes"]["error.type"] == again["attributes"]["error.type"]
        if event["attributes"]["spark.entity"] == "sql" and event["severity"] == again["severity"]:
            assert event["attributes"] == again["attributes"]
            assert event["body"] == again["body"]


def test_no_warning_is_logged(runs: dict[str, Future[Run]]) -> None:
    for future in runs.values():
        assert future.result().own_messages == []
