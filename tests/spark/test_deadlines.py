"""Tests that hanging work is reported with its location, at most two seconds after the work's time limit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from spark.harness import PATIENT, SMALL_SPARK, Lab, Run, file_reporter, line_of, pyspark_home, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_SOURCE = Path(__file__).parent / "hanging" / "HangingFileSystem.java"
LIMIT = 2_000
# On a slow machine, the first batch may be overdue at another location. The tests wait for these locations.
PLACES = {
    "source": "waiting in HangingFileSystem.block, looking for new data",
    "python": "waiting in Python at hangs.py:",
    "commit": "waiting in HangingFileSystem.block, committing",
    "task": "has 0 of 1 task done, 1 running, 0 waiting; task 0 on executor driver",
}


def overdue(run: Run, rule: str, words: str = "", **attributes: Any) -> dict[str, Any]:
    """Wait for the first OVERDUE event of this rule whose body contains ``words``."""
    wanted = {"spark.deadline.rule": rule, "spark.status.new": "OVERDUE", **attributes}

    def found() -> dict[str, Any] | None:
        for event in run.named("DeadlineStatusChangeEvent"):
            if event["attributes"].items() >= wanted.items() and words in event["body"]:
                return event
        return None

    return run.wait_for(f"an overdue {rule} {attributes}", found)


def query(name: str) -> dict[str, str]:
    return {"spark.streaming.query.name": name}


@pytest.fixture(scope="module")
def run(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a job whose queries hang until the test has received the event of each query."""
    classes = tmp_path_factory.mktemp("classes")
    javac = Path(os.environ["JAVA_HOME"]) / "bin" / "javac"
    jars = f"{pyspark_home()}/jars/*"
    subprocess.run(
        [javac, "--release", "8", "-nowarn", "-Xlint:-options", "-cp", jars, "-d", classes, _SOURCE], check=True
    )
    path = {"spark.driver.extraClassPath": f"{two_lines()['spark.driver.extraClassPath']}{os.pathsep}{classes}"}
    options = f"{SMALL_SPARK['spark.driver.extraJavaOptions']} -Dhang.folder={{folder}}"
    settings = {
        **two_lines(),
        **path,
        **PATIENT,
        **file_reporter(Path("{folder}/events.jsonl"), "async-queued"),
        "spark.driver.extraJavaOptions": options,
        "spark.hadoop.fs.hang.impl": "HangingFileSystem",
        "spark.hadoop.fs.hang.impl.disable.cache": "false",
        "events.deadline.batch": "2s",
        "events.deadline.progress": "2s",
        "events.deadline.query.unknown.batch": "1min",
    }
    started = lab.start("hangs.py", defaults=settings)
    source = overdue(started, "progress", PLACES["source"], **query("source"))
    python = overdue(started, "batch", PLACES["python"], **query("python"))
    started.command("release-source")
    started.command("release-python")
    commit = overdue(started, "batch", PLACES["commit"], **query("commit"))
    task = overdue(started, "batch", PLACES["task"], **query("task"))
    started.command("release-commit")
    started.command("release-task")
    started.wait()
    assert started.process.returncode == 0, started.tail()
    started.seen = {"source": source, "python": python, "commit": commit, "task": task}  # type: ignore[attr-defined]
    return started


@pytest.mark.parametrize("name", PLACES)
def test_the_event_names_the_location(run: Run, name: str) -> None:
    """The event names the location of the hanging work and is written before the work ends."""
    event = run.seen[name]  # type: ignore[attr-defined]
    assert PLACES[name] in event["body"]
    # One hang is one incident: only the first of its rules raises the alarm.
    is_member = event["attributes"]["incident.role"] == "member"
    assert event["severity"] in (("INFO",) if is_member else ("WARN", "ERROR"))
    assert event["attributes"]["spark.deadline.limit_ms"] == LIMIT


def test_a_foreach_batch_has_its_line(run: Run) -> None:
    """The event of a hanging foreachBatch contains the innermost line of the user's Python and the stack."""
    attributes = run.seen["python"]["attributes"]  # type: ignore[attr-defined]
    line = line_of("hangs.py", "# the place")
    assert attributes["spark.deadline.location"] == f"hangs.py:{line} in wait_for"
    assert f"hangs.py:{line} in wait_for\n" in attributes["spark.deadline.stack"]
    assert attributes["spark.deadline.stack"].endswith("in wait_in_python")


def test_each_edge_is_reported_once_and_recovers(run: Run) -> None:
    """After the test ends the hang, every overdue deadline returns to ON_TIME."""
    events = run.named("DeadlineStatusChangeEvent")
    assert len({event["event_id"] for event in events}) == len(events)
    for name in ("source", "python", "commit", "task"):
        of_query = [e for e in events if e["attributes"].get("spark.streaming.query.name") == name]
        assert of_query[-1]["attributes"]["spark.status.new"] == "ON_TIME"


@pytest.mark.any_spark
def test_a_stage_without_any_executor_is_reported(lab: Lab) -> None:
    """On a standalone master without workers, the event reports that the application has no resources."""
    master = {**SMALL_SPARK, "spark.master": "local-cluster[0,1,1024]"}
    reporter = file_reporter(Path("{folder}/events.jsonl"), "async-queued")
    settings = {**two_lines(), **PATIENT, **reporter, "events.deadline.resources": "2s"}
    started = lab.start("starved.py", small=master, defaults=settings)
    late = overdue(started, "resources")
    assert "gets no resources" in late["body"]
    assert late["body"].endswith("0 executors with 0 cores known")
    started.command("release")
    started.wait()
    last = started.named("DeadlineStatusChangeEvent")[-1]
    assert "ended without resources after" in last["body"]


def test_a_rule_for_an_unknown_query_is_a_warning(run: Run) -> None:
    """If a deadline rule names a query that never starts, the driver logs a warning at the application's end."""
    (message,) = [line for line in run.own_messages if "events.deadline.query.unknown.batch" in line]
    assert "no query of this name has started" in message
