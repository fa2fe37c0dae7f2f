"""Random faults for one application: kill or pause its processes, and let its destination fail.

Three reporters guarantee ``at-least-once``: a file, a file in its own process, and a webhook. The next run of the
application delivers the events that the faults left in the spools.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import psutil
from faults.repeated import Event, whole_lines
from reporters.peers.webhook import Answer, Receiver, Request
from spark.harness import Lab, Run, two_lines

__all__ = ["Outcome", "reported", "run_with_faults"]

STORM_SECONDS = 25
LEAST_ROUNDS = 2
#: Pause between two faults, in seconds. With 0, the second fault hits the next sidecar during its startup.
PAUSES = (0.0, 0.05, 0.2, 0.5, 1.0)
#: Time between SIGSTOP and SIGCONT, in seconds.
STOPS = (0.05, 0.5, 2.0)
ANSWERS = (Answer(500), Answer(429, headers={"Retry-After": "1"}), Answer(cut=True), Answer(hang=True), Answer(301))
REPORTERS = ("audit", "alone", "hook")


@dataclass
class Storm:
    """Application with its destination, and the faults that affect them."""

    lab: Lab
    seed: int
    receiver: Receiver = field(init=False)
    answer: Answer = field(default_factory=Answer)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.folder = self.lab.folder / f"storm-{self.seed}"
        self.folder.mkdir()
        self.receiver = Receiver(decide=self._decide)

    def _decide(self, _: Request) -> Answer:
        return self.answer

    @property
    def settings(self) -> dict[str, str]:
        """Settings with short timeouts and back-offs, so that retries occur within seconds."""
        of_each = {
            f"events.reporter.{name}.{key}": value
            for name in REPORTERS
            for key, value in {
                "type": "webhook" if name == "hook" else "file",
                "delivery.guarantee": "at-least-once",
                "spool.directory": str(self.folder / "spool"),
                "timeout": "1s",
                "retry.initial": "20ms",
                "retry.max": "300ms",
                "circuit-breaker.open.initial": "300ms",
                "circuit-breaker.open.max": "1s",
            }.items()
        }
        return {
            **two_lines(),
            **of_each,
            "events.dispatcher.type": "async-queued" if self.seed % 2 else "sync",
            "events.reporters": ",".join(REPORTERS),
            "events.reporter.audit.path": str(self.folder / "audit.jsonl"),
            "events.reporter.alone.path": str(self.folder / "alone.jsonl"),
            "events.reporter.alone.isolation": "process",
            "events.reporter.hook.url": self.receiver.url,
            "events.sidecar.restarts.max": "1000",
            "events.sidecar.restarts.window": "5s",
            "events.shutdown.timeout": "20s",
        }

    def inject_faults(self, run: Run) -> None:
        """Inject faults for ``STORM_SECONDS``, and then make the destination available again."""
        faults: list[tuple[str, Callable[[], None]]] = [
            ("sidecar killed", lambda: self._kill(sidecars(run))),
            ("sidecar killed", lambda: self._kill(sidecars(run))),
            ("sidecar stopped", lambda: self._stop(sidecars(run))),
            ("reporter killed", lambda: self._kill(children(sidecars(run)))),
            ("reporter stopped", lambda: self._stop(children(sidecars(run)))),
            ("driver stopped", lambda: self._stop([psutil.Process(run.process.pid)])),
            ("destination fails", lambda: self._become(self.random.choice(ANSWERS))),
            ("destination fails", lambda: self._become(self.random.choice(ANSWERS))),
            ("destination answers", lambda: self._become(Answer())),
        ]
        end = time.monotonic() + STORM_SECONDS
        rounds = 0
        # Each round injects every fault once, in random order.
        while time.monotonic() < end or rounds < LEAST_ROUNDS:
            rounds += 1
            for name, fault in self.random.sample(faults, len(faults)):
                time.sleep(self.random.choice(PAUSES))  # Interval between faults, not a wait for a condition.
                with contextlib.suppress(psutil.NoSuchProcess):
                    fault()
                self.done[name] += 1
        self.answer = Answer()

    def _kill(self, found: list[psutil.Process]) -> None:
        if found:
            self.random.choice(found).kill()

    def _stop(self, found: list[psutil.Process]) -> None:
        if found:
            stopped = self.random.choice(found)
            stopped.suspend()
            time.sleep(self.random.choice(STOPS))
            stopped.resume()

    def _become(self, answer: Answer) -> None:
        self.answer = answer

    def arrived(self) -> list[Event]:
        """Return the events that the webhook has received. These events are always complete."""
        return [event for batch in self.receiver.bodies() for event in batch]

    def delivered(self) -> dict[str, list[Event]]:
        """Return the events of the application's first run by reporter. Call this method after the last run."""
        deaths = self.done["sidecar killed"] + self.done["reporter killed"]
        files = {name: (self.folder / f"{name}.jsonl").read_bytes() for name in ("audit", "alone")}
        everything = {name: whole_lines(data, deaths) for name, data in files.items()}
        application = everything["audit"][0]["attributes"]["spark.app.id"]
        return {
            name: [one for one in events if one["attributes"].get("spark.app.id") == application]
            for name, events in {**everything, "hook": self.arrived()}.items()
        }


def sidecars(run: Run) -> list[psutil.Process]:
    return [psutil.Process(pid) for pid in run.sidecars()]


def children(parents: Iterable[psutil.Process]) -> list[psutil.Process]:
    return [child for parent in parents for child in parent.children(recursive=True)]


def reported(events: Iterable[Event]) -> set[int]:
    return {one["attributes"]["spark.batch.id"] for one in events if one["name"] == "BatchCommitEvent"}


@dataclass
class Outcome:
    """Result of one application with random faults.

    Attributes:
        run: the first run, with the faults.
        dies: whether the test killed the driver after the faults.
        seen: number of commits that were reported before the driver's end.
        delivered: events of the first run by reporter, read after the next run has ended.
    """

    storm: Storm
    run: Run
    dies: bool
    seen: int
    delivered: dict[str, list[Event]]

    def __repr__(self) -> str:
        return f"seed {self.storm.seed}: {dict(self.storm.done)}; {self.run.folder}"


def run_with_faults(lab: Lab, seed: int, *, dies: bool) -> Outcome:
    """Run an application with faults, then stop it or kill its driver, and then run the application again."""
    storm = Storm(lab, seed)
    with storm.receiver:
        run = lab.start("stream.py", defaults=storm.settings)
        run.wait_until_announced("streaming")
        storm.inject_faults(run)
        # Wait for new commits: if the test kills driver and sidecar together, the last commits stay unreported.
        known = reported(storm.arrived())
        run.wait_for("commits after the storm", lambda: len(reported(storm.arrived()) - known) > 2)
        seen = len(reported(storm.arrived()))
        if dies:
            run.signal(run.process.pid, signal.SIGKILL)
        else:
            run.command("stop")
        run.wait()
        # The second run delivers the events that are still in the spools.
        again = lab.run("ending.py", "stop", "spark.app.name=stream", defaults=storm.settings)
        assert again.process.returncode == 0
        return Outcome(storm, run, dies, seen, storm.delivered())
