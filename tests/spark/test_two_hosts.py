"""Tests of events that need executors on two hosts: speculative copies, and the exclusion of a host."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.clusters import Cluster
from spark.harness import PATIENT, PLAIN_EVENT_LOG, SMALL_SPARK, Lab, Run, file_reporter, replay, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

HOSTS = ("127.0.0.1", "127.0.0.2")
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.cores.max": "4",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10min",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "1",
    "spark.excludeOnFailure.stage.maxFailedExecutorsPerNode": "1",
    "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": "1",
    "spark.excludeOnFailure.application.maxFailedExecutorsPerNode": "1",
    **PLAIN_EVENT_LOG,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a standalone cluster with two workers on different hosts."""
    started = Cluster(tmp_path_factory.mktemp("two-hosts"))
    for host in HOSTS:
        started.start_worker("--host", host, "--work-dir", str(started.folder / host))
    yield started
    started.close()


@pytest.fixture(scope="module")
def run(lab: Lab, cluster: Cluster) -> Run:
    """Run the job."""
    small = {**SMALL_SPARK, "spark.master": cluster.master}
    reporter = file_reporter(Path("{folder}/events.jsonl"))
    run = lab.run("two_hosts.py", small=small, defaults={**two_lines(), **PATIENT, **SETTINGS, **reporter})
    assert (run.process.returncode, run.own_messages) == (0, []), run.tail()
    return run


@pytest.fixture(scope="module")
def runs(run: Run) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the live events and the replayed ones."""
    return run.events(), _replayed(run)


def _log(run: Run) -> Path:
    (log,) = run.folder.glob("app-*")
    return log


def _copies(run: Run, kind: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the stages and the other fields of Spark's records about speculative copies."""
    lines = [json.loads(line) for line in _log(run).read_text(encoding="utf-8").splitlines()]
    return [
        (line["Stage ID"], line)
        for line in lines
        if line["Event"] == f"SparkListenerTask{kind}" and line["Task Info"]["Speculative"]
    ]


def _replayed(run: Run) -> list[dict[str, Any]]:
    log = _log(run)
    path = run.folder / "replayed.jsonl"
    settings = {"events.reporters": "audit", "events.reporter.audit.type": "file"}
    done = replay(run, log, settings={**settings, "events.reporter.audit.path": str(path)})
    assert done.returncode == 0, done.stderr
    return run.events(path)


@pytest.fixture(params=["live", "replayed"])
def events(
    request: pytest.FixtureRequest, runs: tuple[list[dict[str, Any]], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return the live events, or the replayed ones, which must be the same."""
    return runs[request.param == "replayed"]


def test_copies_that_won_and_lost_are_counted(events: list[dict[str, Any]], run: Run) -> None:
    """A copy that loses to the last task of its stage ends after the stage.

    On a busy machine, Spark also copies tasks that do not hang, so Spark's own records are the truth.
    """
    copies = Counter(stage for stage, _ in _copies(run, "Start"))
    won = Counter(stage for stage, end in _copies(run, "End") if end["Task End Reason"]["Reason"] == "Success")
    assert (won[0] > 0, copies[1] > won[1]) == (True, True)
    stages = [event for event in events if event["name"] == "StageSummaryEvent"]
    words = [re.search(r"of its speculative copies, (.*? lost)", stage["body"]) for stage in stages[:2]]
    lost = [f"{won[stage]} won and {copies[stage] - won[stage]} lost" for stage in (0, 1)]
    assert [found and found[1] for found in words] == lost
    counts = [
        [stage["attributes"][f"spark.stage.tasks_speculative{of}"] for of in ("", "_won")] for stage in stages[:2]
    ]
    assert counts == [[copies[stage], won[stage]] for stage in (0, 1)]


def test_a_host_is_excluded(events: list[dict[str, Any]]) -> None:
    """One failed task excludes its executor and its host, from the stage and from the application."""
    changes = [event for event in events if event["name"] == "ExecutorStatusChangeEvent"]
    found = [event for event in changes if "spark.executor.scope" in event["attributes"]]
    (executor,) = {one["attributes"]["spark.executor.id"] for one in found if "spark.executor.id" in one["attributes"]}
    (host,) = {one["attributes"]["spark.executor.host"] for one in found if "spark.executor.host" in one["attributes"]}
    assert host in HOSTS
    assert {(event["severity"], event["body"].partition(": ")[2]) for event in found} == {
        ("WARN", f"executor {executor} was excluded from stage 2 after 1 failed task"),
        ("WARN", f"executor {executor} was excluded from the application after 1 failed task"),
        ("WARN", f"node {host} was excluded from stage 2 after 1 failed executor"),
        ("WARN", f"node {host} was excluded from the application after 1 failed executor"),
    }
