"""A real sidecar with a spool: killed at any instant, stopped, on a full disk, without files, with a jumping clock."""

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
from faults.retold import facts, whole_lines

pytestmark = pytest.mark.faults

ROUNDS = 40
DISK_BYTES = 512 * 1024


def job(number: int) -> list[dict[str, Any]]:
    """A job that starts and succeeds: two records, two events."""
    about = {"job_id": number, "time": START + number, "at": START + number}
    return [{"kind": "job_start", **about, "properties": {}}, {"kind": "job_end", **about, "failure": None}]


class Application:
    """A driver that keeps what was not acknowledged, and sends it to the next sidecar, as the shim does."""

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
        self.said: list[str] = []
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
        """A sidecar, told what went before and given what was not acknowledged."""
        self.driver = FakeDriver(self.folder / "stderr", greet=False)
        self.stats = {}
        self.driver.send(hello(self.settings, application="shop", sequence=self.sequence, restarts=self.deaths))
        if ready:
            self.driver.await_answer("ready")
        for record in self.records[:1] if self.acknowledged else ():
            self.driver.send({"kind": "restored", "record": record})
        self.driver.send(*self.records[self.acknowledged :])
        return self.driver

    def tell(self, *records: dict[str, Any]) -> None:
        """Records with numbers, kept until they are acknowledged."""
        for record in records:
            self.records.append({"seq": len(self.records) + 1, **record})
        self.driver.send(*self.records[-len(records) :])

    def hear(self) -> None:
        """What the sidecar has answered until now."""
        for answer in list(self.driver.answers):
            if answer["kind"] == "ack":
                self.acknowledged = max(self.acknowledged, answer["through"])
                self.sequence = answer["sequence"]
            elif answer["kind"] == "stats":
                self.stats = answer["reporters"]["audit"]
            elif answer["kind"] == "log" and answer["message"] not in self.said:
                self.said.append(answer["message"])

    def await_safe(self) -> None:
        """Until nothing has to be sent again."""

        def safe() -> bool:
            self.hear()
            return self.acknowledged == len(self.records)

        eventually(safe, within=60, what=f"acknowledged through {self.acknowledged} of {len(self.records)}")

    def come_back(self) -> None:
        """The destination; until something, or all, has been delivered.

        A goodbye that finds a reporter failing still leaves it a second, and what is safe then stays where it is.
        """
        self.away.unlink(missing_ok=True)

        def delivers() -> bool:
            self.hear()
            told = self.stats
            return bool(told) and (told["delivered"] > 0 or told["accepted"] == told["delivered"])

        eventually(delivers, within=60, what=f"something to be delivered, of {self.stats}")

    def kill(self) -> None:
        """As ``kill -9`` does; what it had said before counts."""
        self.driver.process.kill()
        self.driver.await_exit()
        self.hear()
        self.driver.__exit__()
        self.deaths += 1

    def finish(self) -> None:
        """A goodbye, with time for everything."""
        self.driver.send(goodbye(30_000))
        assert self.driver.await_exit(60) == 0
        self.hear()
        self.driver.__exit__()

    def check(self, jobs: int) -> None:
        """Every event is there, in order, and what is there twice is the same event."""
        events = facts(whole_lines(self.events.read_bytes(), self.deaths)).values()
        told = [e for e in events if e["attributes"].get("spark.entity") == "job"]
        changes = [(e["attributes"]["spark.job.id"], e["attributes"]["spark.status.new"]) for e in told]
        assert changes == [(n, status) for n in range(jobs) for status in ("RUNNING", "FINISHED")]


Begin = Callable[..., Application]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Begins applications whose destination is away; no sidecar of theirs outlives the test."""
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
    """One of them."""
    return begin()


def test_nothing_is_lost_however_often_the_sidecar_is_killed(application: Application) -> None:
    """At random instants, with the destination away and there; in the end everything is there, in order."""
    dice = random.Random(4)
    application.start(ready=False)
    application.tell(application_start(app_name="shop"))
    jobs = 0
    for _ in range(ROUNDS):
        for _ in range(dice.randrange(1, 40)):
            application.tell(*job(jobs))
            jobs += 1
        if dice.random() < 0.5:
            application.driver.await_answer("ready")
        # An instant of the sidecar's start, of its writing, of its delivering.
        time.sleep(dice.random() ** 2 * 0.3)
        application.kill()
        application.away.unlink(missing_ok=True)
        if dice.random() < 0.7:
            application.away.touch()
        application.start(ready=False)
    application.await_safe()
    application.come_back()
    application.finish()
    application.check(jobs)
    assert application.stats["dropped"] == 0
    assert application.stats["accepted"] == application.stats["delivered"]
    assert not list((application.folder / "spool").iterdir())


def test_the_next_run_delivers_what_this_one_left(application: Application, begin: Begin) -> None:
    """A driver that was killed with its sidecar: the next of that name and reporter goes on, in order."""
    application.start()
    application.tell(application_start(app_name="shop"), *[record for n in range(500) for record in job(n)])
    application.await_safe()
    application.kill()
    assert not application.events.exists() or not read_events(application.events)
    second = begin()
    second.away.unlink()
    second.start()
    second.tell(application_start(app_name="shop", app_id="local-2"))
    second.tell(*[record for n in range(500, 520) for record in job(n)])
    second.await_safe()
    second.finish()
    second.check(520)
    assert any("events of an earlier run first" in said for said in second.said)


def test_an_outage_costs_nothing_but_disk(application: Application) -> None:
    """A burst of thousands of events into a destination that is away is acknowledged at once, and delivered later."""
    application.start()
    application.tell(application_start(app_name="shop"), *[record for n in range(3_000) for record in job(n)])
    application.await_safe()
    eventually(lambda: application.stats.get("spooled", 0) >= 6_000, within=30, meanwhile=application.hear)
    assert application.stats["dropped"] == 0
    application.come_back()
    application.finish()
    application.check(3_000)


def test_a_stopped_sidecar_goes_on_where_it_was(application: Application) -> None:
    """Stopped and continued while records come: nothing is lost, and nothing is said of a disk that hangs."""
    driver = application.start()
    application.tell(application_start(app_name="shop"))
    # A thread of its own: the pipe to one that is stopped may be full.
    told = threading.Thread(target=application.tell, args=[record for n in range(400) for record in job(n)])
    told.start()

    def await_acknowledged(most: int) -> None:
        eventually(lambda: application.acknowledged >= most, meanwhile=application.hear)

    for part in range(1, 6):
        await_acknowledged(part * 100)
        os.kill(driver.process.pid, signal.SIGSTOP)
        eventually(lambda: psutil.Process(driver.process.pid).status() == psutil.STATUS_STOPPED)
        os.kill(driver.process.pid, signal.SIGCONT)
    told.join()
    application.await_safe()
    application.come_back()
    application.finish()
    application.check(400)
    assert not [said for said in application.said if "spool" in said]


def test_a_full_disk_is_no_end(begin: Begin, small_disk: Path) -> None:
    """What the disk cannot take is in memory, said once; when the destination is back, everything is delivered."""
    application = begin(**{"events.reporter.audit.spool.directory": str(small_disk)})
    application.start()
    application.tell(application_start(app_name="shop"))
    jobs = 0

    def full() -> bool:
        application.hear()
        return any("database or disk is full" in said for said in application.said)

    while not full():
        application.tell(*[record for n in range(jobs, jobs + 50) for record in job(n)])
        jobs += 50
        eventually(lambda: full() or application.acknowledged == len(application.records))
    # More than the disk holds, less than the memory.
    application.tell(*[record for n in range(jobs, jobs + 200) for record in job(n)])
    jobs += 200
    application.away.unlink()
    application.await_safe()
    application.finish()
    application.check(jobs)
    assert application.stats["dropped"] == 0
    assert sum("spool unavailable" in said for said in application.said) == 1


def test_a_disk_that_hangs_delays_nothing(begin: Begin, freezing_disk: tuple[Path, Callable[[str], None]]) -> None:
    """A frozen file system: its reporter delivers from memory, another is not delayed, and a kill loses nothing."""
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
    application.tell(application_start(app_name="shop"), *job(0))
    application.await_safe()
    freeze("-f")
    application.tell(*[record for n in range(1, 200) for record in job(n)])
    told = len(application.records)
    eventually(lambda: len(read_events(other)) == told, what="the other reporter's events")
    application.await_safe()
    assert sum("does not answer" in said for said in application.said) == 1
    application.away.touch()
    application.tell(*[record for n in range(200, 250) for record in job(n)])
    eventually(lambda: application.stats["accepted"] >= told + 100, meanwhile=application.hear)
    # A process in an uninterruptible write ends only when that does.
    application.driver.process.kill()
    freeze("-u")
    application.kill()
    application.start()
    application.await_safe()
    application.come_back()
    application.finish()
    application.check(250)
    assert application.stats["dropped"] == 0
    assert not list((disk / "spool").iterdir())


def test_a_limit_on_the_size_of_files_is_a_full_disk(application: Application) -> None:
    """The same where nobody may mount: the log cannot grow any more."""
    driver = application.start()
    resource.prlimit(driver.process.pid, resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    application.tell(application_start(app_name="shop"), *[record for n in range(600) for record in job(n)])
    eventually(lambda: any("spool unavailable" in said for said in application.said), meanwhile=application.hear)
    resource.prlimit(driver.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    application.await_safe()
    application.kill()
    application.away.unlink()
    application.start()
    application.finish()
    application.check(600)


def test_a_process_without_descriptors_still_delivers(application: Application, tmp_path: Path) -> None:
    """The spool cannot be opened, so events pass by it; when there are descriptors again, they are safe."""
    # Before the first settings are read: nothing of the spool is open yet.
    application.driver = driver = FakeDriver(tmp_path / "stderr", greet=False)
    (tmp_path / "spool").touch()
    driver.send(hello(application.settings, application="shop"))
    driver.await_answer("ready")
    resource.prlimit(driver.process.pid, resource.RLIMIT_NOFILE, (3, 1024))
    (tmp_path / "spool").unlink()
    application.tell(application_start(app_name="shop"), *[record for n in range(100) for record in job(n)])
    eventually(lambda: any("Too many open files" in said for said in application.said), meanwhile=application.hear)
    resource.prlimit(driver.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    application.await_safe()
    application.come_back()
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
from spark_events.sidecar import main
main()
"""


def test_a_clock_that_jumps_changes_nothing(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Years back and years ahead, while events are written, held and delivered."""
    clock = tmp_path / "clock"
    monkeypatch.setattr(fakes, "SIDECAR", [sys.executable, "-c", CLOCK, str(clock)])
    application.start()
    application.tell(application_start(app_name="shop"))
    jobs = 0
    for jump in (-3e8, 3e8, 0, -60, 60):
        clock.write_text(str(jump))
        application.tell(*[record for n in range(jobs, jobs + 100) for record in job(n)])
        jobs += 100
        application.await_safe()
        eventually(lambda: application.stats, meanwhile=application.hear)
        assert application.stats["oldest_age_ms"] >= 0
    clock.write_text("-3e8")
    application.come_back()
    application.finish()
    application.check(jobs)
    assert application.stats["dropped"] == 0
