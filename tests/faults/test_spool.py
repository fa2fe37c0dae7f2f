"""Tests of a real sidecar with a spool and faults: SIGKILL, SIGSTOP, a failing disk, and a clock that jumps."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fakes
import psutil
import pytest
from fakes import START, FakeDriver, application_start, eventually, goodbye, hello, read_events
from faults.repeated import facts, whole_lines

pytestmark = pytest.mark.faults

ROUNDS = 40
DISK_BYTES = 512 * 1024


def job(number: int) -> list[dict[str, Any]]:
    """Return the two records of a successful job. They cause two events."""
    about = {"job_id": number, "time": START + number, "at": START + number}
    return [{"kind": "job_start", **about, "properties": {}}, {"kind": "job_end", **about, "failure": None}]


class Application:
    """Driver that keeps unacknowledged records and sends them to the next sidecar, like the shim."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.events = folder / "events.jsonl"
        self.away = folder / "away"
        self.driver: FakeDriver
        self.records: list[dict[str, Any]] = []
        self.acknowledged = 0
        self.sequence = 1
        self.deaths = 0
        self.stats: dict[str, Any] = {}
        self.messages: list[str] = []
        self.settings = {
            "events.dispatcher.type": "async-queued",
            "events.reporters": "audit",
            "events.reporter.audit.type": "spark.reporters.probes:AwayFile",
            "events.reporter.audit.path": str(self.events),
            "events.reporter.audit.folder": str(folder),
            "events.reporter.audit.retry.initial": "1ms",
            "events.reporter.audit.retry.max": "10ms",
            "events.reporter.audit.circuit-breaker.failures": "1000",
            "events.reporter.audit.batch.size": "7",
            "events.reporter.audit.delivery.guarantee": "at-least-once",
            "events.reporter.audit.spool.directory": str(folder / "spool"),
            **settings,
        }

    def start(self, *, ready: bool = True) -> FakeDriver:
        """Start a sidecar with the restored state, and send the unacknowledged records again."""
        self.driver = FakeDriver(self.folder / "stderr", greet=False)
        self.stats = {}
        self.driver.send(hello(self.settings, application="shop", sequence=self.sequence))
        if ready:
            self.driver.await_answer("ready")
        for record in self.records[:1] if self.acknowledged else ():
            self.driver.send({"kind": "restored", "record": record})
        self.driver.send(*self.records[self.acknowledged :])
        return self.driver

    def send(self, *records: dict[str, Any]) -> None:
        """Send numbered records, and keep each record until it is acknowledged."""
        for record in records:
            self.records.append({"seq": len(self.records) + 1, **record})
        self.driver.send(*self.records[-len(records) :])

    def read_answers(self) -> None:
        """Process the answers that the sidecar has sent."""
        for answer in list(self.driver.answers):
            if answer["kind"] == "ack":
                self.acknowledged = max(self.acknowledged, answer["seq"])
                self.sequence = answer["sequence"]
            elif answer["kind"] == "stats":
                self.stats = answer["reporters"]["audit"]
            elif answer["kind"] == "log" and answer["message"] not in self.messages:
                self.messages.append(answer["message"])

    def await_acknowledged_all(self) -> None:
        """Wait until all records are acknowledged."""

        def safe() -> bool:
            self.read_answers()
            return self.acknowledged == len(self.records)

        eventually(safe, within=60, what=f"acknowledged through {self.acknowledged} of {len(self.records)}")

    def restore_destination(self) -> None:
        """Make the destination available, and wait until the sidecar delivers or has delivered all events.

        If a reporter still fails when the goodbye message arrives, the sidecar waits at most one more second for this
        reporter, and spooled events stay on disk.
        """
        self.away.unlink(missing_ok=True)

        def delivers() -> bool:
            self.read_answers()
            counts = self.stats
            return bool(counts) and (counts["delivered"] > 0 or counts["accepted"] == counts["delivered"])

        eventually(delivers, within=60, what=f"something to be delivered, of {self.stats}")

    def kill(self) -> None:
        """Kill the sidecar (SIGKILL), and process the answers that it sent before its death."""
        self.driver.process.kill()
        self.driver.await_exit()
        self.read_answers()
        self.driver.__exit__()
        self.deaths += 1

    def finish(self) -> None:
        """Send the goodbye message with a long deadline, and assert that the sidecar exits."""
        self.driver.send(goodbye(30_000))
        assert self.driver.await_exit(60) == 0
        self.read_answers()
        self.driver.__exit__()

    def check(self, jobs: int) -> None:
        """Assert that every event was delivered in order, and that repeated events are identical."""
        events = facts(whole_lines(self.events.read_bytes(), self.deaths)).values()
        reported = [e for e in events if e["attributes"].get("spark.entity") == "job"]
        changes = [(e["attributes"]["spark.job.id"], e["attributes"]["spark.status.new"]) for e in reported]
        assert changes == [(n, status) for n in range(jobs) for status in ("RUNNING", "FINISHED")]


Begin = Callable[..., Application]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Return a function that starts an application without its destination. After the test, kill all its sidecars."""
    begun: list[Application] = []

    def _begin(**settings: str) -> Application:
        begun.append(Application(tmp_path, **settings))
        begun[-1].away.touch()
        return begun[-1]

    yield _begin
    for one in begun:
        if hasattr(one, "driver"):
            one.driver.process.kill()
            one.driver.process.wait()


@pytest.fixture
def application(begin: Begin) -> Application:
    """Start an application whose destination is unavailable."""
    return begin()


def test_nothing_is_lost_however_often_the_sidecar_is_killed(application: Application) -> None:
    """Whenever the sidecar is killed, with the destination up or down, every event is delivered in order."""
    dice = random.Random(4)
    application.start(ready=False)
    application.send(application_start(app_name="shop"))
    jobs = 0
    for _ in range(ROUNDS):
        for _ in range(dice.randrange(1, 40)):
            application.send(*job(jobs))
            jobs += 1
        if dice.random() < 0.5:
            application.driver.await_answer("ready")
        # Wait for a random time, so that the kill occurs during the sidecar's start, a write or a delivery.
        time.sleep(dice.random() ** 2 * 0.3)
        application.kill()
        application.away.unlink(missing_ok=True)
        if dice.random() < 0.7:
            application.away.touch()
        application.start(ready=False)
    application.await_acknowledged_all()
    application.restore_destination()
    application.finish()
    application.check(jobs)
    assert application.stats["dropped"] == 0
    assert application.stats["accepted"] == application.stats["delivered"]
    assert not list((application.folder / "spool").iterdir())


def test_the_next_run_delivers_the_rest(application: Application, begin: Begin) -> None:
    """After driver and sidecar are killed, the next run of this name delivers the remaining events in order."""
    application.start()
    application.send(application_start(app_name="shop"), *[record for n in range(500) for record in job(n)])
    application.await_acknowledged_all()
    application.kill()
    assert not application.events.exists() or not read_events(application.events)
    second = begin()
    second.away.unlink()
    second.start()
    second.send(application_start(app_name="shop", app_id="local-2"))
    second.send(*[record for n in range(500, 520) for record in job(n)])
    second.await_acknowledged_all()
    second.finish()
    second.check(520)
    assert any("events of an earlier run first" in message for message in second.messages)


def test_events_of_an_outage_are_acknowledged_and_delivered_later(application: Application) -> None:
    """Thousands of events for an unavailable destination are acknowledged at once and delivered later."""
    application.start()
    application.send(application_start(app_name="shop"), *[record for n in range(3_000) for record in job(n)])
    application.await_acknowledged_all()
    eventually(lambda: application.stats.get("spooled", 0) >= 6_000, within=30, meanwhile=application.read_answers)
    assert application.stats["dropped"] == 0
    application.restore_destination()
    application.finish()
    application.check(3_000)


def test_a_stopped_sidecar_resumes(application: Application) -> None:
    """If a sidecar is paused while records arrive, no event is lost, and no hanging disk is reported."""
    driver = application.start()
    application.send(application_start(app_name="shop"))
    # Send in a thread: the call blocks if the pipe to the stopped sidecar is full.
    sender = threading.Thread(target=application.send, args=[record for n in range(400) for record in job(n)])
    sender.start()

    def await_acknowledged(most: int) -> None:
        eventually(lambda: application.acknowledged >= most, meanwhile=application.read_answers)

    for part in range(1, 6):
        await_acknowledged(part * 100)
        os.kill(driver.process.pid, signal.SIGSTOP)
        eventually(lambda: psutil.Process(driver.process.pid).status() == psutil.STATUS_STOPPED)
        os.kill(driver.process.pid, signal.SIGCONT)
    sender.join()
    application.await_acknowledged_all()
    application.restore_destination()
    application.finish()
    application.check(400)
    assert not [message for message in application.messages if "spool" in message]


def test_events_survive_a_full_disk(begin: Begin, small_disk: Path) -> None:
    """Events that do not fit on the disk stay in memory, with one log message, and are delivered after the outage."""
    application = begin(**{"events.reporter.audit.spool.directory": str(small_disk)})
    application.start()
    application.send(application_start(app_name="shop"))
    jobs = 0

    def full() -> bool:
        application.read_answers()
        return any("database or disk is full" in message for message in application.messages)

    while not full():
        application.send(*[record for n in range(jobs, jobs + 50) for record in job(n)])
        jobs += 50
        eventually(lambda: full() or application.acknowledged == len(application.records))
    # These events are larger than the disk, but fit into memory.
    application.send(*[record for n in range(jobs, jobs + 200) for record in job(n)])
    jobs += 200
    application.away.unlink()
    application.await_acknowledged_all()
    application.finish()
    application.check(jobs)
    assert application.stats["dropped"] == 0
    assert sum("spool unavailable" in message for message in application.messages) == 1


def test_a_hanging_disk_delays_no_delivery(begin: Begin, freezing_disk: tuple[Path, Callable[[str], None]]) -> None:
    """If the file system hangs, the reporter delivers from memory, and other reporters are not delayed."""
    disk, freeze = freezing_disk
    other = begin().folder / "other.jsonl"
    application = begin(
        **{
            "events.reporter.audit.spool.directory": str(disk / "spool"),
            "events.reporters": "audit,other",
            "events.reporter.other.type": "file",
            "events.reporter.other.path": str(other),
        }
    )
    application.away.unlink()
    application.start()
    application.send(application_start(app_name="shop"), *job(0))
    application.await_acknowledged_all()
    freeze("-f")
    application.send(*[record for n in range(1, 200) for record in job(n)])
    count = len(application.records)
    eventually(lambda: len(read_events(other)) == count, what="the other reporter's events")
    application.await_acknowledged_all()
    assert sum("does not answer" in message for message in application.messages) == 1
    application.away.touch()
    application.send(*[record for n in range(200, 250) for record in job(n)])
    eventually(lambda: application.stats["accepted"] >= count + 100, meanwhile=application.read_answers)
    # If a process hangs in a write that cannot be interrupted, the process exits only after the write returns.
    application.driver.process.kill()
    freeze("-u")
    application.kill()
    application.start()
    application.await_acknowledged_all()
    application.restore_destination()
    application.finish()
    application.check(250)
    assert application.stats["dropped"] == 0
    assert not list((disk / "spool").iterdir())


def test_a_file_size_limit_acts_like_a_full_disk(application: Application) -> None:
    """If a write exceeds the file size limit, the spool behaves as on a full disk. This test needs no mount."""
    driver = application.start()
    resource.prlimit(driver.process.pid, resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    application.send(application_start(app_name="shop"), *[record for n in range(600) for record in job(n)])
    eventually(
        lambda: any("spool unavailable" in message for message in application.messages),
        meanwhile=application.read_answers,
    )
    resource.prlimit(driver.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    application.await_acknowledged_all()
    application.kill()
    application.away.unlink()
    application.start()
    application.finish()
    application.check(600)


def test_a_process_without_descriptors_still_delivers(application: Application, tmp_path: Path) -> None:
    """While the spool cannot be opened, events bypass it. As soon as descriptors are free, events are acknowledged."""
    # Use all descriptors before the sidecar reads its settings, so that no spool file is open yet.
    application.driver = driver = FakeDriver(tmp_path / "stderr", greet=False)
    (tmp_path / "spool").touch()
    driver.send(hello(application.settings, application="shop"))
    driver.await_answer("ready")
    resource.prlimit(driver.process.pid, resource.RLIMIT_NOFILE, (3, 1024))
    (tmp_path / "spool").unlink()
    application.send(application_start(app_name="shop"), *[record for n in range(100) for record in job(n)])
    eventually(
        lambda: any("Too many open files" in message for message in application.messages),
        meanwhile=application.read_answers,
    )
    resource.prlimit(driver.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    application.await_acknowledged_all()
    application.restore_destination()
    application.finish()
    application.check(100)


CLOCK = """
import sys, time
real, where = time.time, sys.argv[1]
def offset():
    try:
        return float(open(where).read() or 0)
    except OSError:
        return 0.0
time.time = lambda: real() + offset()
time.time_ns = lambda: int((real() + offset()) * 1e9)
from spark_events.sidecar.main import main
main()
"""


def test_clock_jumps_change_nothing(application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the clock jumps by years, no written, held or delivered event is lost or reordered."""
    clock = tmp_path / "clock"
    monkeypatch.setattr(fakes, "SIDECAR", [sys.executable, "-c", CLOCK, str(clock)])
    application.start()
    application.send(application_start(app_name="shop"))
    jobs = 0
    for jump in (-3e8, 3e8, 0, -60, 60):
        clock.write_text(str(jump))
        application.send(*[record for n in range(jobs, jobs + 100) for record in job(n)])
        jobs += 100
        application.await_acknowledged_all()
        eventually(lambda: application.stats, meanwhile=application.read_answers)
        assert application.stats["oldest_age_ms"] >= 0
    clock.write_text("-3e8")
    application.restore_destination()
    application.finish()
    application.check(jobs)
    assert application.stats["dropped"] == 0
