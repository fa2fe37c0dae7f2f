"""Compare the dispatcher types in a burst with a slow reporter: delivered and dropped events, caller's delay.

A caller dispatches 6,000 events at up to 2,000 events/s to a reporter that takes 2 ms for each event. 1 % of the events
are failures (ERROR), all other events are INFO. As in the driver, with ``sync`` the caller waits for the reporter's
answer after each event; with ``async-queued`` the caller does not wait. All variants run in rotating order; figures are
medians.

- dropped: events that did not reach the reporter, counted by the reporter itself.
- delay: how much longer than 3 s, the duration of the burst, the caller needs.
- done: time from the first event to the last delivery.

Environment: ``DROPS_ROUNDS`` (3), ``DROPS_EVENTS`` (6000). A round takes about 70 s. Results: build/bench/drops.md and
.json.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks._peers import write
from spark_events import Event, Reporter

__all__ = ["Found", "Slow", "measure", "run"]

_ROUNDS = int(os.environ.get("DROPS_ROUNDS", "3"))
_EVENTS = int(os.environ.get("DROPS_EVENTS", "6000"))
_RATE = 2000.0
_SECONDS_PER_EVENT = 0.002
_FAILURE_EVERY = 100
_SYNC_TIMEOUT = 10.0
_DRAIN_SECONDS = 120.0
_VARIANTS = {
    "sync": {"dispatcher.type": "sync"},
    "async-queued": {},
    "async-queued, queue.size=20000": {"dispatcher.queue.size": "20000"},
    "async-queued, at-least-once": {"reporter.slow.delivery.guarantee": "at-least-once"},
    "async-queued, filter.min-severity=WARN": {"reporter.slow.filter.min-severity": "WARN"},
}


class Slow(Reporter):
    """Reporter that takes a fixed time for each event, and counts the events."""

    events = failures = 0
    last = 0.0

    def report(self, events: Sequence[Event]) -> None:
        time.sleep(_SECONDS_PER_EVENT * len(events))
        Slow.events += len(events)
        Slow.failures += sum(event.name == "JobFailureEvent" for event in events)
        Slow.last = time.monotonic()


class Found(NamedTuple):
    """Delivered events, delivered failures, delay of the caller and time until the last delivery, in seconds."""

    events: int
    failures: int
    delay: float
    done: float


def measure(variant: str, folder: str) -> Found:
    """Run the burst in this process. The counters of the reporter start at zero."""
    from spark_events import EventBuilder
    from spark_events.config import Settings
    from spark_events.dispatch.entries import Entry
    from spark_events.dispatch.pipeline import build

    settings = {"reporter.slow.type": "benchmarks.drops:Slow", "reporter.slow.spool.directory": folder}
    settings |= _VARIANTS[variant]
    if "at-least-once" not in variant:
        del settings["reporter.slow.spool.directory"]
    pipeline = build(Settings.of({f"events.{key}": value for key, value in settings.items()}), application="drops")
    dispatcher = pipeline.dispatcher
    dispatcher.start()
    began = time.monotonic()
    for number in range(_EVENTS):
        time.sleep(max(0.0, began + number / _RATE - time.monotonic()))
        failure = number % _FAILURE_EVERY == 0
        event = EventBuilder("spark.job", "JobFailureEvent" if failure else "JobSuccessEvent")
        event.set_severity("ERROR" if failure else "INFO").set_body(str(number))
        dispatcher.dispatch([Entry(number + 1, event.build())], number + 1)
        if variant == "sync":
            asked = time.monotonic()
            while dispatcher.progress().answered_seq < number + 1 and time.monotonic() - asked < _SYNC_TIMEOUT:
                time.sleep(0.0001)
    delay = time.monotonic() - began - _EVENTS / _RATE
    assert dispatcher.drain(time.monotonic() + _DRAIN_SECONDS) == ["slow"]
    dispatcher.stop(time.monotonic() + 1)
    return Found(Slow.events, Slow.failures, max(0.0, delay), Slow.last - began)


def _table(found: Mapping[str, Sequence[Found]]) -> list[str]:
    """Return a table of medians."""
    lines = ["| dispatcher | delivered | dropped | failures delivered | delay of the caller | done |"]
    lines.append("|---|---|---|---|---|---|")
    failures = -(-_EVENTS // _FAILURE_EVERY)
    for variant, runs in found.items():
        events, found_failures, delay, done = (statistics.median(values) for values in zip(*runs, strict=True))
        wanted = failures if "WARN" in variant else _EVENTS
        lines.append(
            f"| {variant} | {events / wanted:.0%} of {wanted:,} | {wanted - events:,.0f} |"
            f" {found_failures:.0f} of {failures} | {delay:.1f} s | {done:.1f} s |"
        )
    return lines


def run() -> None:
    """Write a table with the delivered events, the dropped events and the caller's delay."""
    found: dict[str, list[Found]] = {variant: [] for variant in _VARIANTS}
    load = os.getloadavg()[0]
    for number in range(_ROUNDS):
        turn = number % len(_VARIANTS)
        for variant in [*_VARIANTS, *_VARIANTS][turn : turn + len(_VARIANTS)]:
            with tempfile.TemporaryDirectory() as folder:
                program = (
                    "import json, sys; from benchmarks.drops import measure; print(json.dumps(measure(*sys.argv[1:])))"
                )
                command = [sys.executable, "-c", program, variant, folder]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[variant].append(Found(*json.loads(done.stdout)))
            print(f"{variant}: {found[variant][-1]}", flush=True)
    head = f"Medians of {_ROUNDS} rounds; load {load:.1f} at the start."
    write("drops", [head, "", *_table(found)], {name: [one._asdict() for one in runs] for name, runs in found.items()})
