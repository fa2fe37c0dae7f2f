"""A storm over one application: its processes are killed, stopped and continued at random, its destination fails.

Three reporters promise ``at-least-once``: a file, a file with a process of its own, and a webhook. What the storm
leaves behind, the next run of the application delivers.
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
from faults.retold import Event, whole_lines
from reporters.peers.webhook import Answer, Receiver, Request
from spark.harness import Lab, Run, two_lines

__all__ = ["Outcome", "reported", "weather"]

STORM_SECONDS = 25
LEAST_ROUNDS = 2
#: Between two faults; two deaths in a row find the next sidecar on its way up.
PAUSES = (0.0, 0.05, 0.2, 0.5, 1.0)
#: For so long something stands still.
STOPS = (0.05, 0.5, 2.0)
ANSWERS = (Answer(500), Answer(429, headers={"Retry-After": "1"}), Answer(cut=True), Answer(hang=True), Answer(301))
REPORTERS = ("audit", "alone", "hook")


@dataclass
class Storm:
    """One application, its destination, and what happens to both."""

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
        """Patience is short, for what is tried again is to be seen within seconds."""
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

    def rage(self, run: Run) -> None:
        """Until the time is up; then everything goes on and the destination answers."""
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
        # In each round everything happens, in another order.
        while time.monotonic() < end or rounds < LEAST_ROUNDS:
            rounds += 1
            for name, fault in self.random.sample(faults, len(faults)):
                time.sleep(self.random.choice(PAUSES))  # how often something happens, not what is waited for
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
        """At the webhook, so far; there, what is told is told whole."""
        return [event for batch in self.receiver.bodies() for event in batch]

    def told(self) -> dict[str, list[Event]]:
        """What each reporter has delivered of the application's first run, when all is over."""
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
    return {one["attributes"]["spark.streaming.batch.id"] for one in events if one["name"] == "BatchCommitEvent"}


@dataclass
class Outcome:
    """A storm that is over.

    Attributes:
        run: what was in it.
        dies: whether its driver was killed afterwards.
        seen: how many commits had been reported by then.
        told: by each reporter, of that run, by the time that another has ended.
    """

    storm: Storm
    run: Run
    dies: bool
    seen: int
    told: dict[str, list[Event]]

    def __repr__(self) -> str:
        return f"seed {self.storm.seed}: {dict(self.storm.done)}; {self.run.folder}"


def weather(lab: Lab, seed: int, *, dies: bool) -> Outcome:
    """A run in a storm, which ends by itself or is killed, and another one after it."""
    storm = Storm(lab, seed)
    with storm.receiver:
        run = lab.start("stream.py", defaults=storm.settings)
        run.wait_until_said("streaming")
        storm.rage(run)
        # Somebody must be left to tell: nobody is, where both are killed at once.
        known = reported(storm.arrived())
        run.wait_for("commits after the storm", lambda: len(reported(storm.arrived()) - known) > 2)
        seen = len(reported(storm.arrived()))
        if dies:
            run.signal(run.process.pid, signal.SIGKILL)
        else:
            run.tell("stop")
        run.wait()
        # With what is left.
        assert lab.run("stream.py", "1", defaults=storm.settings).process.returncode == 0
        return Outcome(storm, run, dies, seen, storm.told())
