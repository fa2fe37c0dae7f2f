"""Tests of enrichment on separate executors with a minimal Python. Some tests kill an executor."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from enrich_service import Called, EnrichService, rule
from spark.harness import DEADLINE_SECONDS, Lab, Run, environment, file_reporter, two_lines, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(1800)]

CLUSTER = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
#: Start both executors before the first task, so that each executor processes a part of every batch and shuffle.
BOTH = {
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10min",
    "spark.cores.max": "2",
}
HELD = {"held": True}
ROWS = 100
#: Number of concurrent calls per task in the stream job, and of all tasks together if the driver leases them.
IN_FLIGHT, LEASED = 5, 4
BATCHES = range(3)


@pytest.fixture(scope="module")
def minimal_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that contains only pyarrow."""
    folder = tmp_path_factory.mktemp("minimal_python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    spec = find_spec("pyarrow")
    assert spec is not None
    assert spec.origin is not None
    library = Path(spec.origin).parent
    for found in library.parent.glob("pyarrow*"):
        (packages / found.name).symlink_to(found)
    return folder / "bin" / "python"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[EnrichService]:
    with EnrichService(tmp_path / "calls.jsonl") as started:
        yield started


def start(
    lab: Lab,
    service: EnrichService,
    minimal_python: Path,
    *arguments: str,
    job: str = "enrich_cluster.py",
    **settings: str,
) -> Run:
    # The driver's environment has all packages; its path must not reach the executors.
    env = {"PYSPARK_PYTHON": str(minimal_python), "PYSPARK_DRIVER_PYTHON": sys.executable}
    defaults = {**two_lines(), **file_reporter(Path("{folder}/events.jsonl"), "async-queued"), **CLUSTER, **settings}
    return lab.start(job, str(service.port), *arguments, defaults=defaults, env=env)


def finished(run: Run) -> dict[str, Any]:
    assert run.wait() == 0, run.tail()
    found: dict[str, Any] = run.truth()
    return found


def rows_of(run: Run, batch: int) -> list[int]:
    files = (run.folder / "sink" / str(batch)).glob("*.json")
    lines = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert all(line["name"] == f"n{line['id']}" for line in lines)
    return sorted(line["id"] for line in lines)


def is_complete(run: Run) -> bool:
    """Return whether all batches are committed and contain every row exactly once."""
    assert run.commits("checkpoint") == list(BATCHES)
    return all(rows_of(run, batch) == list(range(ROWS * batch, ROWS * (batch + 1))) for batch in BATCHES)


def test_executors_with_a_bare_python_enrich_and_reuse_resources(
    lab: Lab, service: EnrichService, minimal_python: Path
) -> None:
    """Executors receive the package from the driver if they lack it. They open a resource once for three batches."""
    run = start(lab, service, minimal_python, **BOTH)
    truth = finished(run)
    assert truth["there"] == [[["pyarrow"], os.path.realpath(minimal_python.parent.parent)]] * 4
    assert is_complete(run)
    calls = Counter(call.key for call in service.calls())
    assert calls == Counter({str(row): 1 for row in range(ROWS * len(BATCHES))})
    opened = (run.folder / "opened").read_text(encoding="utf-8").split()
    assert sorted(opened) == sorted(set(opened))
    assert len(opened) == 2
    events = [event["attributes"] for event in run.named("EnrichmentEvent")]
    assert [event["spark.batch.id"] for event in events] == list(BATCHES)
    assert {event["spark.streaming.query.id"] for event in events} == {truth["query"]}
    for event in events:
        assert (event["spark.enrich.rows"], event["spark.enrich.calls"], event["spark.enrich.attempts"]) == (
            ROWS,
            ROWS,
            ROWS,
        )
        assert event["spark.enrich.failures"] == event["spark.enrich.retries"] == 0
        assert 0 < event["spark.enrich.latency.p50_ms"] <= event["spark.enrich.latency.p99_ms"]
    # The enrichment event of a batch precedes the batch's commit.
    names = [e["name"] for e in run.events() if e["name"] in ("EnrichmentEvent", "BatchCommitEvent")]
    assert names == ["EnrichmentEvent", "BatchCommitEvent"] * len(BATCHES)


def test_an_executor_killed_during_a_batch_causes_only_repeated_calls(
    lab: Lab, service: EnrichService, minimal_python: Path
) -> None:
    """After the loss of an executor during a batch, repeated calls have the same keys, and each row is counted once."""
    # In the second batch, each task blocks after half of its rows.
    service.script(rules=[rule("1[5-9].", HELD)])
    run = start(lab, service, minimal_python, **BOTH)

    def held() -> int:
        return sum(call.ended is None and int(call.key) >= ROWS + ROWS // 2 for call in service.calls())

    run.wait_for("both tasks to stand still", lambda: held() == 2 * IN_FLIGHT, DEADLINE_SECONDS)
    executors = run.executors()
    assert len(executors) == 2
    workers = {child.pid for child in executors[0].children(recursive=True)}
    assert workers
    run.signal(executors[0].pid, signal.SIGKILL)
    service.release()
    finished(run)
    assert is_complete(run)
    calls = service.calls()
    counted = Counter(call.key for call in calls)
    assert set(counted) == {str(row) for row in range(ROWS * len(BATCHES))}
    again = [int(key) for key, number in counted.items() if number > 1]
    # The executor was killed during the second batch: the first batch was committed, and the third had not started.
    assert all(ROWS <= row < 2 * ROWS for row in again)
    assert len(again) > IN_FLIGHT
    for key in map(str, again):
        assert len({call.idempotency_key for call in calls if call.key == key}) == 1
    assert [e["attributes"]["spark.enrich.rows"] for e in run.named("EnrichmentEvent")] == [ROWS] * len(BATCHES)


def test_a_killed_driver_leaves_no_calls_and_no_leases(lab: Lab, service: EnrichService, minimal_python: Path) -> None:
    """A killed driver's calls end with its executors, and its leases do not reduce the limits of the next driver."""
    service.script(rules=[rule(".*", forever=HELD)])
    run = start(lab, service, minimal_python, "limited", **BOTH)
    run.wait_for("all leased calls", lambda: len(service.calls()) == LEASED)
    run.signal(run.driver(), signal.SIGKILL)
    wait_for("the end of the executors", lambda: not run.executors())
    wait_for("the end of the calls", lambda: all(call.outcome == "gone" for call in service.calls()))
    assert run.wait() != 0
    assert max(call.in_flight for call in service.calls()) <= LEASED
    # From here on, the log contains only calls made by the next driver, and by leftover workers if any exist.
    service.script(delay=0.05)
    after = start(lab, service, minimal_python, "limited", **BOTH)
    finished(after)
    assert is_complete(after)
    calls = service.calls()
    assert Counter(call.key for call in calls) == Counter({str(row): 1 for row in range(ROWS * len(BATCHES))})
    assert max(call.in_flight for call in calls) == LEASED


def test_an_executor_lost_after_its_batch_settled_fails_the_batch_without_calls(
    lab: Lab, service: EnrichService, minimal_python: Path
) -> None:
    """If an executor with settled rows is lost, the batch fails, because a recomputation would repeat calls."""
    run = start(lab, service, minimal_python, "wait")
    run.wait_until_announced("settled-1", DEADLINE_SECONDS)
    called = Counter(call.key for call in service.calls())
    for executor in run.executors():
        run.signal(executor.pid, signal.SIGKILL)
    run.command("go")
    assert run.wait() != 0
    assert run.commits("checkpoint") == [0]
    assert re.search(r"Checkpoint block rdd_\d+_\d+ not found", run.log)
    assert Counter(call.key for call in service.calls()) == called == Counter(map(str, range(2 * ROWS)))


def test_dynamic_allocation_keeps_the_rate_and_repeats_no_call(
    lab: Lab, service: EnrichService, minimal_python: Path
) -> None:
    """With dynamic allocation and no initial executors, the job keeps its rate. Lost results cause no new calls."""
    dynamic = {
        "enabled": "true",
        "shuffleTracking.enabled": "true",
        "maxExecutors": "2",
        # Keep all executors until the batch is settled, even on a slow machine.
        "executorIdleTimeout": "1h",
        "cachedExecutorIdleTimeout": "1h",
    }
    settings = {f"spark.dynamicAllocation.{name}": value for name, value in dynamic.items()}
    service.script(rules=[rule("0|10", HELD)])
    run = start(lab, service, minimal_python, job="enrich_allocated.py", **settings, **{"spark.executor.cores": "1"})
    run.wait_for("both partitions at work", lambda: len(calls_of(service, "0", "10")) == 2, DEADLINE_SECONDS)
    let_go = released(service)
    run.wait_until_announced("settled", DEADLINE_SECONDS)
    executors = run.executors()
    for executor in executors:
        run.signal(executor.pid, signal.SIGKILL)
    run.wait_for("the executors to go", lambda: not any(map(psutil.Process.is_running, executors)))
    run.command("go")
    assert run.wait() != 0
    assert re.search(r"Checkpoint block rdd_\d+_\d+ not found", run.log)
    assert run.output.count("spark.dynamicAllocation.cachedExecutorIdleTimeout is 1h: Spark removes an executor") == 1
    check_ten_a_second(service, let_go)


@pytest.mark.parametrize("cluster", ["", "standalone"])
def test_a_replacement_executor_keeps_the_rate(
    lab: Lab, service: EnrichService, minimal_python: Path, tmp_path: Path, cluster: str
) -> None:
    """A replacement executor that starts during the batch does not increase the rate.

    A standalone cluster does not announce the replacement, so the driver counts the two executors that the cluster had
    before.
    """
    service.script(rules=[rule("0|10", HELD)])
    # Start the executors' Java through a script, so that the test can delay it.
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    closed = tmp_path / "closed"
    home = environment().get("JAVA_HOME")
    real = f"{home}/bin/java" if home else shutil.which("java")
    java.write_text(f'#!/bin/sh\nwhile [ -e "{closed}" ]; do sleep 0.05; done\nexec "{real}" "$@"\n')
    java.chmod(0o755)
    settings = {"spark.executorEnv.JAVA_HOME": str(java.parents[1])}
    run = start(lab, service, minimal_python, cluster, job="enrich_lost.py", **settings)
    run.wait_until_announced("both", DEADLINE_SECONDS)
    closed.touch()
    run.signal(run.executors()[0].pid, signal.SIGKILL)
    run.wait_for("one partition at work", lambda: calls_of(service, "0", "10"), DEADLINE_SECONDS)
    closed.unlink()
    run.wait_for("the other on the new executor", lambda: len(calls_of(service, "0", "10")) == 2, DEADLINE_SECONDS)
    let_go = released(service)
    assert run.wait() == 0, run.tail()
    check_ten_a_second(service, let_go)


def released(service: EnrichService) -> float:
    """Release the held calls, and return the time just before the release."""
    moment = time.monotonic()
    service.release()
    return moment


def check_ten_a_second(service: EnrichService, let_go: float) -> None:
    """For two tasks with ten rows each, verify one call per row, and at most ten calls per second in total.

    Each task makes one call at a time, and its first call is held until ``let_go``. The driver leases the job's rate to
    the tasks: two calls may start at once, and each further call starts at least a tenth of a second later. A slow
    machine only delays calls.
    """
    calls = service.calls()
    assert Counter(call.key for call in calls) == Counter(map(str, range(20)))
    began = sorted(call.began for call in calls)
    assert began[1] < let_go
    soonest = [let_go + max(0, place - 1) / 10 for place in range(18)]
    assert [moment for moment, may in zip(began[2:], soonest, strict=True) if moment < may - 1e-6] == []


def replaced(lab: Lab, service: EnrichService, minimal_python: Path, *arguments: str) -> Run:
    """Start a run with two tasks of partition 0, each with a held call of row 0.

    The executor of partition 1 is killed with its shuffle output. Spark attempts the stage again with all unfinished
    partitions, while partition 0 still runs on the other executor.
    """
    run = start(
        lab, service, minimal_python, *arguments, job="enrich_replaced.py", **BOTH, **{"spark.locality.wait": "0s"}
    )
    run.wait_for(
        "two partitions at work", lambda: {"0", "1"} <= {call.key for call in service.calls()}, DEADLINE_SECONDS
    )
    ((_, lost),) = [trace.stem.split("-")[1:] for trace in run.folder.glob("partition-1-*")]
    worker = psutil.Process(int(lost))
    (executor,) = [found for found in run.executors() if found in worker.parents()]
    run.signal(executor.pid, signal.SIGKILL)
    run.wait_for("another attempt at partition 0", lambda: len(calls_of(service, "0")) == 2, DEADLINE_SECONDS)
    return run


def calls_of(service: EnrichService, *keys: str) -> list[Called]:
    return [call for call in service.calls() if call.key in keys]


REPLACED_ROWS = 12


def test_one_of_two_results_of_a_partition_is_kept(lab: Lab, service: EnrichService, minimal_python: Path) -> None:
    """If two attempts of a partition produce different results, every reader receives the same result."""
    service.script(rules=[rule("0", HELD, {**HELD, "status": 500}), rule("1|2", forever=HELD)])
    run = replaced(lab, service, minimal_python)
    service.release("0")
    # Executors have one core each. When the remaining partitions make calls, both tasks of partition 0 have ended.
    run.wait_for(
        "the ends of both",
        lambda: len(calls_of(service, "1")) == 2 and len(calls_of(service, "2")) == 1,
        DEADLINE_SECONDS,
    )
    assert [call.outcome for call in calls_of(service, "0")] == ["200", "500"]
    service.release()
    reads = finished(run)["reads"]
    for good, dead in reads:
        assert sorted(good + dead) == list(range(REPLACED_ROWS))
    assert all(read == reads[0] for read in reads)


def test_a_replaced_task_cancels_its_calls(lab: Lab, service: EnrichService, minimal_python: Path) -> None:
    """A replaced task cancels its calls in flight without failing, and the key's later calls do not overlap."""
    service.script(rules=[rule("[012]", forever=HELD)])
    run = replaced(lab, service, minimal_python, "notify")
    run.wait_for("the older to give up its call", lambda: calls_of(service, "0")[0].outcome == "gone")
    service.release()
    reads = finished(run)["reads"]
    assert reads == [[list(range(REPLACED_ROWS)), []]] * len(reads)
    older, newer = calls_of(service, "0")
    assert newer.outcome == "200"
    assert older.ended is not None
    of_the_key = [call for call in calls_of(service, "0", "3", "6", "9") if (call.ended or 0) > older.ended]
    for before, after in itertools.pairwise(of_the_key):
        assert before.ended is not None
        assert before.ended <= after.began
