"""Tests of enrichment on separate executors with a minimal Python. Some tests kill an executor.

Most tests share one application, and each of these tests starts its own case of the job.
"""

from __future__ import annotations

import contextlib
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

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(1800)]

CLUSTER = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
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


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnrichService]:
    """Yield the service of all applications of this module."""
    with EnrichService(tmp_path_factory.mktemp("service") / "calls.jsonl") as started:
        yield started


@pytest.fixture
def service(running: EnrichService) -> Iterator[EnrichService]:
    """Yield the service, with an empty log and no script. After a failed test, the service answers all held calls."""
    running.script()
    yield running
    running.release()


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a path that delays the start of new executors for as long as a file with this path exists.

    The executors' Java starts through a script.
    """
    folder = tmp_path_factory.mktemp("gate")
    java = folder / "bin" / "java"
    java.parent.mkdir()
    home = environment().get("JAVA_HOME")
    real = f"{home}/bin/java" if home else shutil.which("java")
    java.write_text(f'#!/bin/sh\nwhile [ -e "{folder}/closed" ]; do sleep 0.05; done\nexec "{real}" "$@"\n')
    java.chmod(0o755)
    return folder / "closed"


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


@contextlib.contextmanager
def application(lab: Lab, service: EnrichService, minimal_python: Path, gate: Path, *arguments: str) -> Iterator[Run]:
    """Run an application whose cases the tests start. In the end, verify the exit code and the enrichment events."""
    # A replaced task must not wait for an executor with local data.
    settings = {"spark.locality.wait": "0s", "spark.executorEnv.JAVA_HOME": str(gate.parent)}
    run = start(lab, service, minimal_python, *arguments, **settings)
    yield run
    run.command("stop")
    assert run.wait() == 0, run.tail()
    truths = [run.truth(path.name.removeprefix("run-")) for path in run.folder.glob("run-*")]
    found = Counter(event["attributes"].get("spark.streaming.query.id") for event in run.named("EnrichmentEvent"))
    # Each stream has one event per started batch, and each other case has one event.
    assert found.pop(None, 0) == sum("query" not in truth for truth in truths)
    assert set(found) == {truth["query"] for truth in truths if "query" in truth}


@pytest.fixture(scope="module")
def killed_driver_calls(lab: Lab, running: EnrichService, minimal_python: Path) -> list[Called]:
    """Kill a driver that has leased all calls in flight. Return the calls after the end of the executors."""
    running.script(rules=[rule(".*", forever=HELD)])
    run = start(lab, running, minimal_python)
    run.command("run-leased")
    run.wait_for("all leased calls", lambda: len(running.calls()) == LEASED)
    run.signal(run.driver(), signal.SIGKILL)
    wait_for("the end of the executors", lambda: not run.executors())
    wait_for("the end of the calls", lambda: all(call.outcome == "gone" for call in running.calls()))
    assert run.wait() != 0
    return running.calls()


@pytest.fixture(scope="module")
def run(
    lab: Lab, running: EnrichService, minimal_python: Path, gate: Path, killed_driver_calls: list[Called]
) -> Iterator[Run]:
    """Yield an application on local-cluster, which starts after the kill of another driver."""
    assert killed_driver_calls
    with application(lab, running, minimal_python, gate) as started:
        yield started


def finished(run: Run, case: str) -> dict[str, Any]:
    """Wait for the end of a case, and return the data that the job has written."""
    run.wait_until_announced(f"{case}.json")
    found: dict[str, Any] = run.truth(case)
    return found


def events_of(run: Run, query: str) -> list[dict[str, Any]]:
    """Return the events of a finished query, after the reporter has written all of them."""

    def events() -> list[dict[str, Any]]:
        return [event for event in run.events() if event["attributes"].get("spark.streaming.query.id") == query]

    run.wait_for(
        "the end of the query",
        lambda: [e for e in events() if e["attributes"].get("spark.status.new") == "FINISHED"],
    )
    return events()


def rows_of(run: Run, case: str, batch: int) -> list[int]:
    files = (run.folder / case / "sink" / str(batch)).glob("*.json")
    lines = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert all(line["name"] == f"n{line['id']}" for line in lines)
    return sorted(line["id"] for line in lines)


def is_complete(run: Run, case: str) -> bool:
    """Return whether all batches are committed and contain every row exactly once."""
    assert run.truth(case)["error"] is None
    assert run.commits(f"{case}/checkpoint") == list(BATCHES)
    return all(rows_of(run, case, batch) == list(range(ROWS * batch, ROWS * (batch + 1))) for batch in BATCHES)


@pytest.mark.long
def test_a_killed_driver_leaves_no_calls_and_no_leases(
    killed_driver_calls: list[Called], run: Run, service: EnrichService
) -> None:
    """A killed driver's calls end with its executors, and its leases do not reduce the limits of the next driver."""
    assert {call.outcome for call in killed_driver_calls} == {"gone"}
    assert max(call.in_flight for call in killed_driver_calls) <= LEASED
    # From here on, the log contains only calls made by the next driver, and by leftover workers if any exist.
    service.script(delay=0.05)
    run.command("run-leased")
    finished(run, "leased")
    assert is_complete(run, "leased")
    calls = service.calls()
    assert Counter(call.key for call in calls) == Counter({str(row): 1 for row in range(ROWS * len(BATCHES))})
    assert max(call.in_flight for call in calls) == LEASED


def test_executors_with_a_bare_python_enrich_and_reuse_resources(
    run: Run, service: EnrichService, minimal_python: Path
) -> None:
    """Executors receive the package from the driver if they lack it. They open a resource once for three batches."""
    run.command("run-stream")
    truth = finished(run, "stream")
    assert run.truth("there") == [[["pyarrow"], os.path.realpath(minimal_python.parent.parent)]] * 4
    assert is_complete(run, "stream")
    calls = Counter(call.key for call in service.calls())
    assert calls == Counter({str(row): 1 for row in range(ROWS * len(BATCHES))})
    opened = (run.folder / "stream" / "opened").read_text(encoding="utf-8").split()
    assert sorted(opened) == sorted(set(opened))
    assert len(opened) == 2
    # The fixture verifies that no enrichment event belongs to another query.
    of_query = events_of(run, truth["query"])
    events = [event["attributes"] for event in of_query if event["name"] == "EnrichmentEvent"]
    assert [event["spark.batch.id"] for event in events] == list(BATCHES)
    for event in events:
        assert (event["spark.enrich.rows"], event["spark.enrich.calls"], event["spark.enrich.attempts"]) == (
            ROWS,
            ROWS,
            ROWS,
        )
        assert event["spark.enrich.failures"] == event["spark.enrich.retries"] == 0
        assert 0 < event["spark.enrich.latency.p50_ms"] <= event["spark.enrich.latency.p99_ms"]
    # The enrichment event of a batch precedes the batch's commit.
    names = [e["name"] for e in of_query if e["name"] in ("EnrichmentEvent", "BatchCommitEvent")]
    assert names == ["EnrichmentEvent", "BatchCommitEvent"] * len(BATCHES)


@pytest.mark.long
def test_the_executors_share_the_calls_in_flight(run: Run, service: EnrichService) -> None:
    """Two executors together stay within `Auto.max`, except that each task can always have one call in flight."""
    service.script(rules=[rule(".*", HELD)])
    run.command("run-adapted")
    run.wait_for("the first calls", lambda: len(service.calls()) >= 20, DEADLINE_SECONDS)
    service.release()
    assert finished(run, "adapted") == {"rows": 60}
    assert 20 <= max(call.in_flight for call in service.calls()) <= 21


@pytest.mark.long
def test_an_executor_killed_during_a_batch_causes_only_repeated_calls(run: Run, service: EnrichService) -> None:
    """After the loss of an executor during a batch, repeated calls have the same keys, and each row is counted once."""
    # In the second batch, each task blocks after half of its rows.
    service.script(rules=[rule("1[5-9].", HELD)])
    run.command("run-killed")

    def held() -> int:
        return sum(call.ended is None and int(call.key) >= ROWS + ROWS // 2 for call in service.calls())

    run.wait_for("both tasks to stand still", lambda: held() == 2 * IN_FLIGHT, DEADLINE_SECONDS)
    executors = run.executors()
    assert len(executors) == 2
    workers = {child.pid for child in executors[0].children(recursive=True)}
    assert workers
    run.signal(executors[0].pid, signal.SIGKILL)
    service.release()
    truth = finished(run, "killed")
    assert is_complete(run, "killed")
    calls = service.calls()
    counted = Counter(call.key for call in calls)
    assert set(counted) == {str(row) for row in range(ROWS * len(BATCHES))}
    again = [int(key) for key, number in counted.items() if number > 1]
    # The executor was killed during the second batch: the first batch was committed, and the third had not started.
    assert all(ROWS <= row < 2 * ROWS for row in again)
    assert len(again) > IN_FLIGHT
    for key in map(str, again):
        assert len({call.idempotency_key for call in calls if call.key == key}) == 1
    enriched = [e["attributes"] for e in events_of(run, truth["query"]) if e["name"] == "EnrichmentEvent"]
    assert [event["spark.enrich.rows"] for event in enriched] == [ROWS] * len(BATCHES)


@pytest.mark.long
def test_an_executor_lost_after_its_batch_settled_fails_the_batch_without_calls(
    run: Run, service: EnrichService
) -> None:
    """If an executor with settled rows is lost, the batch fails, because a recomputation would repeat calls."""
    run.command("run-settled")
    run.wait_until_announced("settled/settled-1", DEADLINE_SECONDS)
    called = Counter(call.key for call in service.calls())
    for executor in run.executors():
        run.signal(executor.pid, signal.SIGKILL)
    run.command("go")
    error = finished(run, "settled")["error"]
    assert run.commits("settled/checkpoint") == [0]
    assert re.search(r"Checkpoint block rdd_\d+_\d+ not found", error)
    assert Counter(call.key for call in service.calls()) == called == Counter(map(str, range(2 * ROWS)))


@pytest.mark.long
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
    assert calls_above_ten_a_second(service, let_go) == []


def with_a_replacement(run: Run, service: EnrichService, gate: Path) -> float:
    """Run a batch during which a replacement executor starts; return the time just before its calls are released."""
    service.script(rules=[rule("0|10", HELD)])
    run.command("run-rate")
    run.wait_until_announced("both", DEADLINE_SECONDS)
    gate.touch()
    try:
        run.signal(run.executors()[0].pid, signal.SIGKILL)
        run.wait_for("one partition at work", lambda: calls_of(service, "0", "10"), DEADLINE_SECONDS)
    finally:
        gate.unlink()
    run.wait_for("the other on the new executor", lambda: len(calls_of(service, "0", "10")) == 2, DEADLINE_SECONDS)
    let_go = released(service)
    finished(run, "rate")
    return let_go


@pytest.mark.long
def test_a_replacement_executor_keeps_the_rate(run: Run, service: EnrichService, gate: Path) -> None:
    let_go = with_a_replacement(run, service, gate)
    assert calls_above_ten_a_second(service, let_go) == []


@pytest.mark.long
def test_a_replacement_executor_of_a_standalone_cluster_keeps_the_rate(
    lab: Lab, service: EnrichService, minimal_python: Path, gate: Path
) -> None:
    """A standalone cluster does not announce a replacement, so the driver counts the executors that it had before."""
    with application(lab, service, minimal_python, gate, "standalone") as run:
        let_go = with_a_replacement(run, service, gate)
    assert calls_above_ten_a_second(service, let_go) == []


def released(service: EnrichService) -> float:
    """Release the held calls, and return the time just before the release."""
    moment = time.monotonic()
    service.release()
    return moment


def calls_above_ten_a_second(service: EnrichService, let_go: float) -> list[float]:
    """For two tasks with ten rows each, verify one call per row, and return the calls above ten per second in total.

    Each task makes one call at a time, and its first call is held until ``let_go``. The driver leases the job's rate to
    the tasks: two calls may start at once, and each further call starts at least a tenth of a second later. A slow
    machine only delays calls.
    """
    calls = service.calls()
    assert Counter(call.key for call in calls) == Counter(map(str, range(20)))
    began = sorted(call.began for call in calls)
    assert began[1] < let_go
    soonest = [let_go + max(0, place - 1) / 10 for place in range(18)]
    return [moment for moment, may in zip(began[2:], soonest, strict=True) if moment < may - 1e-6]


def replace(run: Run, service: EnrichService, case: str) -> None:
    """Start a case with two tasks of partition 0, each with a held call of row 0.

    The executor of partition 1 is killed with its shuffle output. Spark attempts the stage again with all unfinished
    partitions, while partition 0 still runs on the other executor.
    """
    run.command(f"run-{case}")
    run.wait_for(
        "two partitions at work", lambda: {"0", "1"} <= {call.key for call in service.calls()}, DEADLINE_SECONDS
    )
    ((_, lost),) = [trace.stem.split("-")[1:] for trace in (run.folder / case).glob("partition-1-*")]
    worker = psutil.Process(int(lost))
    (executor,) = [found for found in run.executors() if found in worker.parents()]
    run.signal(executor.pid, signal.SIGKILL)
    run.wait_for("another attempt at partition 0", lambda: len(calls_of(service, "0")) == 2, DEADLINE_SECONDS)


def calls_of(service: EnrichService, *keys: str) -> list[Called]:
    return [call for call in service.calls() if call.key in keys]


REPLACED_ROWS = 12


@pytest.mark.long
def test_one_of_two_results_of_a_partition_is_kept(run: Run, service: EnrichService) -> None:
    """If two attempts of a partition produce different results, every reader receives the same result."""
    service.script(rules=[rule("0", HELD, {**HELD, "status": 500}), rule("1|2", forever=HELD)])
    replace(run, service, "two-results")
    service.release("0")
    # Executors have one core each. When the remaining partitions make calls, both tasks of partition 0 have ended.
    run.wait_for(
        "the ends of both",
        lambda: len(calls_of(service, "1")) == 2 and len(calls_of(service, "2")) == 1,
        DEADLINE_SECONDS,
    )
    assert [call.outcome for call in calls_of(service, "0")] == ["200", "500"]
    service.release()
    reads = finished(run, "two-results")["reads"]
    for good, dead in reads:
        assert sorted(good + dead) == list(range(REPLACED_ROWS))
    assert all(read == reads[0] for read in reads)


@pytest.mark.long
def test_a_replaced_task_cancels_its_calls(run: Run, service: EnrichService) -> None:
    """A replaced task cancels its calls in flight without failing, and the key's later calls do not overlap."""
    service.script(rules=[rule("[012]", forever=HELD)])
    replace(run, service, "cancelled")
    run.wait_for("the older to give up its call", lambda: calls_of(service, "0")[0].outcome == "gone")
    service.release()
    reads = finished(run, "cancelled")["reads"]
    assert reads == [[list(range(REPLACED_ROWS)), []]] * len(reads)
    older, newer = calls_of(service, "0")
    assert newer.outcome == "200"
    assert older.ended is not None
    of_the_key = [call for call in calls_of(service, "0", "3", "6", "9") if (call.ended or 0) > older.ended]
    for before, after in itertools.pairwise(of_the_key):
        assert before.ended is not None
        assert before.ended <= after.began
