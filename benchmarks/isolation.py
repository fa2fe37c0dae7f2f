"""What bad reporters cost a good one: its throughput and its p99 latency alone, and beside each kind, pair, and all.

The good reporter is a ``file``. It is measured in three processes by turns, in short windows: alone; beside as many
reporters that do nothing; beside the bad ones. The first comparison is what an operator asks, the second says what of
it is the badness. While the others are measured, the bad ones are stopped (SIGSTOP). Bad reporters never get the rest
that the circuit breaker would give them, and their timeout is a tenth of the default, so that whatever they do happens
often; with ``ISOLATION_SETTINGS=default`` they have all that as it is shipped. The first row is a good neighbour
measured against a good neighbour: as far as it is off from 1, the machine is too busy for what follows to be believed.
The second is a neighbour with nothing bad about it but that each call computes for a fifth of a millisecond, as it
takes to start a thread: no more than that is to be seen beside one that leaks threads. Throughput is a flood of
records, translated and dispatched as fast as a sidecar does it; latency is from dispatch to a written file, at a steady
2,000 events a second. With ``ISOLATION_FLOOD=events`` the flood is of events that are made beforehand: some ten times
what ever comes from the translation, so that next to nothing but the interpreter's lock, which all share, is measured.

``ISOLATION_WINDOWS`` (9): windows a kind; ``ISOLATION_PAIRS`` (1): windows a pair before a closer look at those that
are not within the target, 0 leaves pairs out; ``ISOLATION_KINDS``: some of the kinds, separated by semicolons.
Everything takes 40 minutes, without pairs some twelve.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from spark_events import Event, EventBuilder, Reporter
from spark_events.bridge.records import JobEnd, JobStart
from spark_events.config import Settings
from spark_events.dispatch.dispatcher import EventDispatcher
from spark_events.dispatch.entries import Entry
from spark_events.pipeline import build
from spark_events.reporters.file import FileReporter
from spark_events.sidecar import SWITCH_SECONDS
from spark_events.translate.translator import Translator

_ROOT = Path(__file__).parents[1]
_WINDOWS = int(os.environ.get("ISOLATION_WINDOWS", "9"))
_PAIRS = int(os.environ.get("ISOLATION_PAIRS", "1"))
_CLOSER = 3
_FLOOD = 10_000
#: As the sidecar does it.
_SLICE = 128
_PACED_SLICES = 200
_PACED_EVENTS = 8
_PACE_SECONDS = 0.004
_TARGET = 0.10
_HARSH = {"timeout": "1s", "circuit-breaker.failures": "1000", "retry.max": "200ms"}
_BAD = {} if os.environ.get("ISOLATION_SETTINGS", "harsh") == "default" else _HARSH
_NOTHING = "does nothing"
_COMPUTES = "computes, 0.2 ms a call"
_COMPUTING_SECONDS = 0.0002
#: What these take of the processors (they spin, or start and die all the time) is gone for any program.
_BUSY = {
    "raises odd things in a process",
    "spins in a thread",
    "spins in a process",
    "holds the lock in a process",
    "exits in a process",
    "segfaults in a process",
}
_GROUPS = {
    "that hang": {
        "blocks (def)",
        "blocks (async def)",
        "awaits for ever",
        "swallows its cancellation",
        "blocks in open",
    },
    "that raise": {"raises always", "raises at random", "raises odd things", "returns garbage", "dies in open"},
    "that are slow, or are bad in the end": {"slow", "dies in close", "blocks in close"},
    "that leak": {"leaks memory", "leaks threads", "leaks descriptors"},
}
_READY_MADE = os.environ.get("ISOLATION_FLOOD", "records") == "events"
_PROPERTIES = {"spark.job.description": "select count(*) from somewhere", "callSite.short": "count at App.scala:12"}


class Timed(FileReporter):
    """Writes, and notes how long ago each event was dispatched."""

    latencies: list[float] = []  # noqa: RUF012 (of the one there is)

    def report(self, events: Sequence[Event]) -> None:
        super().report(events)
        now = time.monotonic()
        Timed.latencies.extend(now - float(event.attributes["at"]) for event in events if "at" in event.attributes)


class Idle(Reporter):
    """A good neighbour."""

    def report(self, events: Sequence[Event]) -> None:
        return None


class Computes(Reporter):
    """A good neighbour that has something to do."""

    def report(self, events: Sequence[Event]) -> None:
        until = time.thread_time() + _COMPUTING_SECONDS
        while time.thread_time() < until:
            pass


_GOOD = {_NOTHING: Idle, _COMPUTES: Computes}


class Window(NamedTuple):
    """What one window has shown: events a second, the seconds that each took, and events that the good one lost."""

    throughput: float
    latencies: list[float]
    lost: int


def _entries(count: int) -> list[Entry]:
    at = time.monotonic()
    return [Entry(1, EventBuilder("b", "B").set_body(str(n)).set_attribute("at", at).build()) for n in range(count)]


def _settled(dispatcher: EventDispatcher) -> None:
    while dispatcher.books()["good"].held:
        time.sleep(0.0005)


class Flood:
    """What comes as fast as it can: records that are translated, or events that are there already."""

    def __init__(self) -> None:
        self._translator = Translator()
        self._jobs = 0

    def slices(self) -> Iterator[list[Entry]]:
        """Prepares all of it, then gives it by the slice, as the sidecar does it."""
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


def _window(dispatcher: EventDispatcher, flood: Flood) -> Window:
    before = dispatcher.books()["good"]
    slices = flood.slices()
    start = time.monotonic()
    for entries in slices:
        dispatcher.dispatch(entries, 1)
    _settled(dispatcher)
    took = time.monotonic() - start
    after = dispatcher.books()["good"]
    Timed.latencies.clear()
    due = time.monotonic()
    for _ in range(_PACED_SLICES):
        dispatcher.dispatch(_entries(_PACED_EVENTS), 1)
        due += _PACE_SECONDS
        time.sleep(max(0.0, due - time.monotonic()))
    _settled(dispatcher)
    lost = dispatcher.books()["good"].lost - before.lost
    return Window((after.delivered - before.delivered) / took, [*Timed.latencies], lost)


def subject(kinds: Sequence[str]) -> None:
    """One of the processes: a window for every line of its input, until that ends."""
    from misbehaving import KINDS

    sys.setswitchinterval(SWITCH_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "events.dispatcher.type": "async-queued",
            "events.reporter.good.type": "benchmarks.isolation:Timed",
            "events.reporter.good.path": f"{folder}/events.jsonl",
        }
        for number, kind in enumerate(kinds):
            name = f"bad{number}"
            if kind in _GOOD:
                settings[f"events.reporter.{name}.type"] = f"benchmarks.isolation:{_GOOD[kind].__name__}"
            else:
                settings |= KINDS[kind].settings(name)
            settings |= {f"events.reporter.{name}.{key}": value for key, value in _BAD.items()}
        dispatcher = build(Settings.of(settings)).dispatcher
        dispatcher.start()
        flood = Flood()
        # Everybody is at work before the first window.
        _window(dispatcher, flood)
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps(_window(dispatcher, flood)), flush=True)
    # Some of these would never end by themselves.
    os._exit(0)


class Subject:
    """A process that is measured; stopped, with all its children, while another one is."""

    def __init__(self, kinds: Sequence[str]) -> None:
        program = "import sys; from benchmarks.isolation import subject; subject(sys.argv[1:])"
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
            raise RuntimeError(f"the process with {', '.join(kinds) or 'nobody else'} did not get ready")
        self._signal(signal.SIGSTOP)

    def window(self) -> Window:
        """Runs for one window."""
        self._signal(signal.SIGCONT)
        self._input.write("\n")
        self._input.flush()
        window = Window(*json.loads(self._output.readline()))
        self._signal(signal.SIGSTOP)
        return window

    def end(self) -> None:
        """Kills it and its children: one that was stopped at birth does not yet know whom to die with."""
        children = psutil.Process(self._process.pid).children()
        self._process.kill()
        self._process.communicate()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()

    def _signal(self, number: signal.Signals) -> None:
        # The parent first, so that it starts no more children meanwhile.
        for process in [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children()]:
            # A child may be dying just now; that is what some of them are for.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


@contextlib.contextmanager
def _subject(kinds: Sequence[str]) -> Iterator[Subject]:
    made = Subject(kinds)
    try:
        yield made
    finally:
        made.end()


class Costs(NamedTuple):
    """Ratios beside the bad ones, to being alone and to being beside as many that do nothing."""

    throughput: float
    p99: float
    throughput_to_idle: float
    p99_to_idle: float
    rate: float
    seconds: float
    lost: int

    @property
    def is_met(self) -> bool:
        """Within the target, beside what as many good ones cost."""
        return self.throughput_to_idle >= 1 - _TARGET and self.p99_to_idle <= 1 + _TARGET


def _costs(alone: Subject, idle: Subject, kinds: Sequence[str], windows: int) -> Costs:
    seen: tuple[list[Window], list[Window], list[Window]] = ([], [], [])
    with _subject(kinds) as bad:
        for _ in range(windows):
            for found, process in zip(seen, (alone, idle, bad), strict=True):
                found.append(process.window())
    by, side, beside = seen
    slowest = _p99(beside)
    return Costs(
        _ratio(beside, by),
        slowest / _p99(by),
        _ratio(beside, side),
        slowest / _p99(side),
        statistics.median(window.throughput for window in beside),
        slowest,
        sum(window.lost for window in beside),
    )


def _ratio(ones: Sequence[Window], others: Sequence[Window]) -> float:
    """The median of the ratios of windows that followed each other."""
    return statistics.median(one.throughput / other.throughput for one, other in zip(ones, others, strict=True))


def _p99(windows: Sequence[Window]) -> float:
    """Of all of them together: in one alone, it would be what a handful of events met with."""
    return statistics.quantiles(itertools.chain.from_iterable(window.latencies for window in windows), n=100)[98]


def _tell(what: str, costs: Costs) -> None:
    throughput = f"{costs.throughput:5.2f} {costs.throughput_to_idle:5.2f} {costs.rate:9,.0f}"
    p99 = f"{costs.p99:5.2f} {costs.p99_to_idle:5.2f} {costs.seconds * 1e3:7.2f}"
    print(f"{what:48} {throughput}   {p99}   {costs.lost:6}{'' if costs.is_met else '  <'}", flush=True)


def _head(what: str) -> None:
    print(f"{what:48} {'throughput, ratio to':21}   {'p99, ratio to':19}   lost by")
    print(f"{'':48} alone  idle   /second   alone  idle      ms   the good one")


def run() -> None:
    """Prints the ratios; within 10 % is promised, and what is not is marked."""
    sys.path.insert(0, str(_ROOT / "tests"))
    # A benchmark that is told to end leaves nobody behind who spins.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    from misbehaving import KINDS

    names = [name for name in os.environ.get("ISOLATION_KINDS", ";".join(KINDS)).split(";") if name]
    with _subject([]) as alone:
        _head("beside one that ...")
        with _subject([_NOTHING]) as idle:
            for name in (*_GOOD, *names):
                _tell(name, _costs(alone, idle, [name], _WINDOWS))
        if _PAIRS:
            _head("beside two")
            with _subject([_NOTHING, _NOTHING]) as idle:
                pairs = {
                    pair: _costs(alone, idle, pair, _PAIRS)
                    for pair in itertools.combinations_with_replacement(names, 2)
                }
                # One window is little: those that do not show it there are looked at more closely.
                pairs |= {pair: _costs(alone, idle, pair, _CLOSER) for pair, costs in pairs.items() if not costs.is_met}
            worst = sorted(pairs.items(), key=lambda item: item[1].throughput_to_idle)
            for pair, costs in [(pair, costs) for pair, costs in worst if not costs.is_met]:
                _tell(" + ".join(pair), costs)
            _summary(list(pairs.values()))
        _head("beside all ...")
        groups = {
            **_GROUPS,
            "that run in a thread, and do not spin": set(names) - _BUSY,
            "but the one that spins in a thread": set(names) - {"spins in a thread"},
            "of them": set(names),
        }
        for what, members in groups.items():
            if kinds := [name for name in names if name in members]:
                with _subject([_NOTHING] * len(kinds)) as idle:
                    _tell(what, _costs(alone, idle, kinds, _WINDOWS))


def _summary(pairs: Sequence[Costs]) -> None:
    met = sum(costs.is_met for costs in pairs)
    throughput = statistics.median(costs.throughput_to_idle for costs in pairs)
    p99 = statistics.median(costs.p99_to_idle for costs in pairs)
    print(f"{met} of {len(pairs)} pairs are within {_TARGET:.0%}; those above are not.")
    print(f"The median pair's ratio to idle: throughput {throughput:.2f}, p99 {p99:.2f}")


if __name__ == "__main__":
    run()
