"""Measured processes of the isolation benchmark: a working reporter, alone or together with faulty reporters."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from spark_events import Event, EventBuilder, Reporter
from spark_events.config import Settings
from spark_events.dispatch.dispatcher import Dispatcher
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.pipeline import build
from spark_events.records.types import JobEnd, JobStart
from spark_events.reporters.file import FileReporter
from spark_events.sidecar.main import SWITCH_SECONDS
from spark_events.translate.translator import Translator

_ROOT = Path(__file__).parents[1]
_FLOOD = 10_000
#: The sidecar dispatches events in slices of the same size.
_SLICE = 128
_PACED_SLICES = 200
_PACED_EVENTS = 8
_PACE_SECONDS = 0.004
_HARSH = {"timeout": "1s", "circuit-breaker.failures": "1000", "retry.max": "200ms"}
_BAD = {} if os.environ.get("ISOLATION_SETTINGS", "harsh") == "default" else _HARSH
NOTHING = "does nothing"
_COMPUTES = "computes, 0.2 ms a call"
_COMPUTING_SECONDS = 0.0002
_READY_MADE = os.environ.get("ISOLATION_FLOOD", "records") == "events"
_PROPERTIES = {"spark.job.description": "select count(*) from somewhere", "callSite.short": "count at App.scala:12"}


class Timed(FileReporter):
    """File reporter that records the time from the dispatch of each event to its write."""

    latencies: list[float] = []  # noqa: RUF012 (one instance per process)

    def report(self, events: Sequence[Event]) -> None:
        super().report(events)
        now = time.monotonic()
        Timed.latencies.extend(now - float(event.attributes["at"]) for event in events if "at" in event.attributes)


class Idle(Reporter):
    """Working reporter that accepts events and does nothing."""

    def report(self, events: Sequence[Event]) -> None:
        return None


class Computes(Reporter):
    """Working reporter that computes for a fixed time in each call."""

    def report(self, events: Sequence[Event]) -> None:
        until = time.thread_time() + _COMPUTING_SECONDS
        while time.thread_time() < until:
            pass


#: Reporters without a fault, for comparison.
GOOD = {NOTHING: Idle, _COMPUTES: Computes}


class Window(NamedTuple):
    """Result of one window: events per second, latency of each event in seconds, events that the reporter lost."""

    throughput: float
    latencies: list[float]
    lost: int


def _entries(count: int) -> list[Entry]:
    at = time.monotonic()
    return [Entry(1, EventBuilder("b", "B").set_body(str(n)).set_attribute("at", at).build()) for n in range(count)]


def _settled(dispatcher: Dispatcher) -> None:
    while dispatcher.counters()["good"].held:
        time.sleep(0.0005)


class Flood:
    """Source of events at full speed. It translates records, or returns events that were built in advance."""

    def __init__(self) -> None:
        self._translator = Translator()
        self._jobs = 0

    def slices(self) -> Iterator[list[Entry]]:
        """Prepare all input, and return it in slices of the sidecar's size."""
        if _READY_MADE:
            flood = _entries(_FLOOD)
            return (flood[at : at + _SLICE] for at in range(0, _FLOOD, _SLICE))
        at = time.time_ns() // 1_000_000
        records: list[JobStart | JobEnd] = []
        for job in range(self._jobs, self._jobs + _FLOOD // 2):
            records += (
                JobStart(at=at, job_id=job, time=at, properties=_PROPERTIES),
                JobEnd(at=at, job_id=job, time=at),
            )
        self._jobs += _FLOOD // 2
        return (
            [Entry(1, event) for record in records[at : at + _SLICE] for event in self._translator.translate(record)]
            for at in range(0, _FLOOD, _SLICE)
        )


def _window(dispatcher: Dispatcher, flood: Flood) -> Window:
    before = dispatcher.counters()["good"]
    slices = flood.slices()
    start = time.monotonic()
    for entries in slices:
        dispatcher.dispatch(entries, 1)
    _settled(dispatcher)
    took = time.monotonic() - start
    after = dispatcher.counters()["good"]
    Timed.latencies.clear()
    due = time.monotonic()
    for _ in range(_PACED_SLICES):
        dispatcher.dispatch(_entries(_PACED_EVENTS), 1)
        due += _PACE_SECONDS
        time.sleep(max(0.0, due - time.monotonic()))
    _settled(dispatcher)
    lost = dispatcher.counters()["good"].lost - before.lost
    return Window((after.delivered - before.delivered) / took, [*Timed.latencies], lost)


def run(kinds: Sequence[str]) -> None:
    """Measure one window for each line of standard input, until standard input ends.

    This function runs in the measured process.
    """
    from misbehaving import KINDS

    sys.setswitchinterval(SWITCH_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "events.dispatcher.type": "async-queued",
            "events.reporter.good.type": "benchmarks._isolated:Timed",
            "events.reporter.good.path": f"{folder}/events.jsonl",
        }
        for number, kind in enumerate(kinds):
            name = f"bad{number}"
            if kind in GOOD:
                settings[f"events.reporter.{name}.type"] = f"benchmarks._isolated:{GOOD[kind].__name__}"
            else:
                settings |= KINDS[kind].settings(name)
            settings |= {f"events.reporter.{name}.{key}": value for key, value in _BAD.items()}
        dispatcher = build(Settings.of(settings)).dispatcher
        dispatcher.start()
        flood = Flood()
        # Warm up: before the first window, every reporter has received events.
        _window(dispatcher, flood)
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps(_window(dispatcher, flood)), flush=True)
    # Exit at once, because some faulty reporters have threads that never end.
    os._exit(0)


class Subject:
    """Measured process. While another process is measured, this process and all its children are stopped (SIGSTOP)."""

    def __init__(self, kinds: Sequence[str]) -> None:
        program = "import sys; from benchmarks._isolated import run; run(sys.argv[1:])"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *kinds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'tests'}"},
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        if self._output.readline() != "ready\n":
            raise RuntimeError(
                f"the process with {', '.join(kinds) or 'the good reporter alone'} ended before it was ready"
            )
        self._signal(signal.SIGSTOP)

    def window(self) -> Window:
        """Resume the process for one window and return the result."""
        self._signal(signal.SIGCONT)
        self._input.write("\n")
        self._input.flush()
        window = Window(*json.loads(self._output.readline()))
        self._signal(signal.SIGSTOP)
        return window

    def end(self) -> None:
        """Kill the process and its children. A child that was stopped during its start would outlive its parent."""
        children = psutil.Process(self._process.pid).children()
        self._process.kill()
        self._process.communicate()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()

    def _signal(self, number: signal.Signals) -> None:
        # Stop the parent first, so that it cannot start further children.
        for process in [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children()]:
            # Children of some faulty reporters exit continuously.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


@contextlib.contextmanager
def subject(kinds: Sequence[str]) -> Iterator[Subject]:
    """Start a measured process and kill it when the block ends."""
    made = Subject(kinds)
    try:
        yield made
    finally:
        made.end()
