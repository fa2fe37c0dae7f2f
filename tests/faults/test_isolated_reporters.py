"""Tests of reporter processes of a real sidecar: they exit with the sidecar and do not delay its exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fakes import (
    FakeDriver,
    application_start,
    eventually,
    goodbye,
    is_gone,
    query_started,
    read_events,
    sidecar_environment,
)
from lateness import Witness

pytestmark = pytest.mark.faults

#: Kernel functions (wchan) in which a process sleeps: in a C library call, and in ``time.sleep`` of Python 3.10.
ASLEEP = ("hrtimer_nanosleep", *(["poll_schedule_timeout"] if sys.version_info < (3, 11) else []))


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Callable[..., FakeDriver]]:
    """Return a function that starts a sidecar with two reporters: ``good`` in a thread and ``bad`` in a process."""
    made: list[FakeDriver] = []

    def make(kind: str, **bad: str) -> FakeDriver:
        settings = {
            "events.dispatcher.type": "async-queued",
            "events.reporter.good.type": "file",
            "events.reporter.good.path": str(tmp_path / "good.jsonl"),
            "events.reporter.bad.type": kind,
            "events.reporter.bad.isolation": "process",
            "events.reporter.bad.timeout": "60s",
            **{f"events.reporter.bad.{key}": value for key, value in bad.items()},
        }
        driver = FakeDriver(tmp_path / "stderr", settings)
        made.append(driver)
        driver.send_records(application_start())
        return driver

    yield make
    for driver in made:
        driver.__exit__()


def its_process(driver: FakeDriver) -> psutil.Process:
    found = eventually(psutil.Process(driver.process.pid).children, what="the reporter's process")
    return found[0]


def works(process: psutil.Process) -> bool:
    """Return whether the process runs its reporter, that is, uses the processor or hangs in a C library call."""
    return process.cpu_times().user > 1 or Path(f"/proc/{process.pid}/wchan").read_text().startswith(ASLEEP)


@pytest.mark.parametrize("kind", ["file", "misbehaving:Spins", "misbehaving:HoldsTheLock", "misbehaving:BlocksAsync"])
@pytest.mark.parametrize("stopped_first", [False, True], ids=["", "stopped first"])
def test_the_process_dies_with_the_sidecar(
    drivers: Callable[..., FakeDriver], tmp_path: Path, kind: str, stopped_first: bool
) -> None:
    """After SIGKILL of the sidecar, the kernel kills the reporter's process, regardless of the reporter's state."""
    path = tmp_path / "bad.jsonl"
    driver = drivers(kind, **({"path": str(path)} if kind == "file" else {}))
    process = its_process(driver)
    if kind == "file":
        eventually(lambda: read_events(path), what="it to be at work")
    else:
        eventually(lambda: works(process), what="it to be at its worst")
    if stopped_first:
        os.kill(driver.process.pid, signal.SIGSTOP)
        process.send_signal(signal.SIGSTOP)
    driver.process.kill()
    assert eventually(lambda: is_gone(process.pid), what="the reporter's process to be gone")


@pytest.mark.parametrize("kind", ["Spins", "HoldsTheLock", "BlocksAsync", "Exits", "Segfaults", "BlocksInOpen"])
def test_the_sidecar_ends_in_time_and_other_reporters_get_every_event(
    drivers: Callable[..., FakeDriver], tmp_path: Path, kind: str, witness: Witness
) -> None:
    """A sidecar exits soon after the driver's deadline, and no reporter process remains."""
    driver = drivers(f"misbehaving:{kind}")
    process = its_process(driver)
    driver.send_records(*(query_started(f"r{n}", f"q{n}") for n in range(50)))
    eventually(lambda: len(read_events(tmp_path / "good.jsonl")) >= 51, what="the good one to have got all")
    witness.watch(driver.process.pid)
    deadline = time.monotonic() + 3
    driver.send(goodbye(3_000))
    assert driver.await_exit(within=10) == 0
    assert witness.late(deadline) <= 1
    assert eventually(lambda: is_gone(process.pid), what="the reporter's process to be gone")
    names = [one["name"] for one in read_events(tmp_path / "good.jsonl")]
    assert names.count("JobStatusChangeEvent") == 51
    # The sidecar sends its final report in the last tenth of the time. On a stalled machine, the report may be missing.
    assert names[-1] == "DispatcherReportEvent" or witness.took(deadline - 0.6, deadline) < 0.3


def test_a_crash_is_logged_and_counted(drivers: Callable[..., FakeDriver]) -> None:
    """If a reporter's process crashes, one line is logged, one failure is counted, and the sidecar continues."""
    driver = drivers("misbehaving:Segfaults")
    logged = driver.await_answer("log", level="ERROR")
    assert logged["message"] == (
        "reporter bad: failed; holding its events and retrying:"
        " ReporterProcessError: its process was killed by signal 11 (SIGSEGV)"
    )
    eventually(lambda: any(a["kind"] == "stats" and a["reporters"]["bad"]["failures"] for a in list(driver.answers)))
    assert driver.process.poll() is None
    assert [a for a in driver.answers if a["kind"] == "log" and "killed by" in a["message"]] == [logged]


_EXHAUSTED = """
import resource, sys, time
from pathlib import Path
from fakes import balances, event, eventually
from misbehaving import pipeline_with
from spark_events.dispatch.entries import Entry
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
path = Path(sys.argv[1])
kinds = ["leaks descriptors", "blocks (def)", "segfaults in a process"]
pipeline = pipeline_with(kinds, path, **{"timeout": "100ms", "retry.max": "100ms", "batch.size": "1"})
pipeline.dispatcher.start()
done = 0
def leaked():
    global done
    pipeline.dispatcher.dispatch([Entry(done + 1, event(done))], done)
    done += 1
    # Both: no descriptor is left, and the blocked thread has not been replaced for a while.
    return "Too many open files" in logged.getvalue() and "cannot start a replacement" in logged.getvalue()
import io, logging
logged = io.StringIO()
logging.basicConfig(stream=logged, level=logging.WARNING)
eventually(leaked)
for _ in range(100):
    leaked()
assert pipeline.deliveries[0].wait_until_settled(20)
pipeline.dispatcher.stop(time.monotonic() + 0.2)
counters = pipeline.dispatcher.counters()
assert counters["good"].delivered == done, (counters, done)
assert all(balances(one) for one in counters.values())
print(done, flush=True)
import os
os._exit(0)
"""


def test_other_reporters_survive_exhausted_descriptors(tmp_path: Path) -> None:
    """If no process can replace a failed process, an error is logged. The other reporter delivers every event."""
    path = tmp_path / "events.jsonl"
    command = [sys.executable, "-c", _EXHAUSTED, str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=sidecar_environment(), timeout=100)
    assert done.returncode == 0, done.stderr
    assert [one["body"] for one in read_events(path)] == [str(number) for number in range(int(done.stdout))]
