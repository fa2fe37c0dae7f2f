"""What bad reporters cost a good one: its throughput and its p99 latency, alone and beside each kind, and combinations.

The good reporter is a ``file``. Every figure is a ratio of two runs that follow each other, each in a process of its
own, and the median of several such pairs: a machine that is busy for a while is so for both. The bad reporters never
get the rest that the circuit breaker would give them, and their timeout is a tenth of the default, so that whatever
they do happens often.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from spark_events import Event, EventBuilder
from spark_events.config import Settings
from spark_events.dispatch.dispatcher import EventDispatcher
from spark_events.dispatch.mailbox import Entry
from spark_events.pipeline import build
from spark_events.reporters.file import FileConfig, FileReporter

_TESTS = Path(__file__).parents[1] / "tests"
_ROUNDS = int(os.environ.get("ISOLATION_ROUNDS", "3"))
_EVENTS = int(os.environ.get("ISOLATION_EVENTS", "60000"))
#: As the sidecar does it.
_SLICE = 128
_PACED_SECONDS = 1.5
_PACE_SECONDS = 0.004
_PACED_EVENTS = 8
_TARGET = 0.9
_BAD = {"timeout": "1s", "circuit-breaker.failures": "1000", "retry.max": "200ms"}


class Timed(FileReporter):
    """Writes, and notes how long ago each event was dispatched."""

    latencies: list[float] = []  # noqa: RUF012 (of the one there is)
    count = 0

    def __init__(self, config: FileConfig) -> None:
        super().__init__(config)

    def report(self, events: Sequence[Event]) -> None:
        super().report(events)
        now = time.monotonic()
        Timed.count += len(events)
        Timed.latencies.extend(now - float(event.attributes["at"]) for event in events)


def _events(count: int) -> list[Event]:
    at = time.monotonic()
    return [EventBuilder("bench", "Bench").set_body(str(n)).set_attribute("at", at).build() for n in range(count)]


def _throughput(dispatcher: EventDispatcher, events: list[Event]) -> float:
    slices = [[Entry(1, event) for event in events[at : at + _SLICE]] for at in range(0, len(events), _SLICE)]
    before, start = Timed.count, time.monotonic()
    for entries in slices:
        dispatcher.dispatch(entries, 1)
    while dispatcher.books()["good"].held:
        time.sleep(0.001)
    return (Timed.count - before) / (time.monotonic() - start)


def _p99(dispatcher: EventDispatcher) -> float:
    Timed.latencies.clear()
    end = time.monotonic() + _PACED_SECONDS
    due = time.monotonic()
    while due < end:
        dispatcher.dispatch([Entry(1, event) for event in _events(_PACED_EVENTS)], 1)
        due += _PACE_SECONDS
        time.sleep(max(0.0, due - time.monotonic()))
    while dispatcher.books()["good"].held:
        time.sleep(0.001)
    return statistics.quantiles(Timed.latencies, n=100)[98]


def _measure(kinds: Sequence[str]) -> None:
    """One run, in a process of its own: prints its figures."""
    from misbehaving import KINDS

    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "events.dispatcher.type": "async-queued",
            "events.reporter.good.type": "benchmarks.isolation:Timed",
            "events.reporter.good.path": f"{folder}/events.jsonl",
        }
        for number, kind in enumerate(kinds):
            settings |= KINDS[kind].settings(f"bad{number}")
            settings |= {f"events.reporter.bad{number}.{key}": value for key, value in _BAD.items()}
        dispatcher = build(Settings.of(settings)).dispatcher
        dispatcher.start()
        # Everybody is at work, and the bad ones at their worst, before the clock runs.
        _throughput(dispatcher, _events(5_000))
        time.sleep(0.3)
        throughput = _throughput(dispatcher, _events(_EVENTS))
        p99 = _p99(dispatcher)
        stopping = time.monotonic()
        dispatcher.stop(stopping + 1)
        books = dispatcher.books()["good"]
        figures = {
            "throughput": throughput,
            "p99": p99,
            "lost": books.lost,
            "balances": books.balances,
            "stop": time.monotonic() - stopping,
        }
        print(json.dumps(figures), flush=True)
        os._exit(0)


def _run(kinds: Sequence[str]) -> dict[str, float]:
    command = [sys.executable, "-c", "import sys; from benchmarks.isolation import _measure as m; m(sys.argv[1:])", *kinds]
    environment = {**os.environ, "PYTHONPATH": str(_TESTS), "MEASURE": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, cwd=_TESTS.parent, timeout=60
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    sys.path.insert(0, str(_TESTS))
    from misbehaving import KINDS

    names = sys.argv[1:] or list(KINDS)
    for kinds in [[], *([n] for n in names)]:
        ts, ps = [], []
        for _ in range(_ROUNDS):
            alone, beside = _run([]), _run(kinds)
            ts.append(beside["throughput"] / alone["throughput"])
            ps.append(beside["p99"] / alone["p99"])
        print(
            f"{'+'.join(kinds) or 'control':28} thr {statistics.median(ts):.2f} ({beside['throughput']:.0f}/s) p99"
            f" {statistics.median(ps):.2f} ({beside['p99'] * 1e3:.2f} ms) {beside}",
            flush=True,
        )


if __name__ == "__main__":
    main()
