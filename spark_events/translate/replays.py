"""Events of many event logs, one log after another or in several processes.

Each log is read as a whole by one process, and its events are JSON lines. With several processes, a process writes the
lines of a log to a temporary file, from which the caller reads them when it is the log's turn. So the order of the
result does not depend on the number of processes, and the memory does not depend on the logs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import pickle
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event as Flag
from pathlib import Path

from spark_events.errors import SparkEventsError
from spark_events.event import Event, Severity, encode_lines
from spark_events.records.event_log.log_files import EventLog
from spark_events.records.event_log.log_reader import EventLogReader
from spark_events.translate.event_log import replayed
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

__all__ = ["LogCounts", "ReplayTuning", "ReplayedLog", "Selection", "cores", "read_log", "replay_logs"]


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Which events of a log are wanted.

    Attributes:
        least: lowest severity.
        names: names of events; None: all.
    """

    least: Severity = Severity.TRACE
    names: frozenset[str] | None = None

    def of(self, events: Iterable[Event]) -> list[Event]:
        """Return the wanted events."""
        return [e for e in events if e.severity >= self.least and (self.names is None or e.name in self.names)]


@dataclasses.dataclass(slots=True)
class LogCounts:
    """What one log contained; the counters are those of the reader and of the translator.

    Attributes:
        notes: the first notes on damaged or missing parts.
        unshown: number of further notes.
        recognised: whether any line was an event of Spark.
        is_over: whether the log has the application's end.
    """

    events: int = 0
    lines: int = 0
    damaged: int = 0
    cut_off: int = 0
    unreadable: int = 0
    unknown: int = 0
    defects: int = 0
    jobs_without_start: int = 0
    recognised: bool = False
    is_over: bool = False
    notes: list[str] = dataclasses.field(default_factory=list)
    unshown: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayTuning:
    """Limits of reading in several processes.

    Attributes:
        least_bytes: size of the logs below which no process is started, because they are read sooner than it starts.
        most_peeked: number of logs whose sizes are added up; more logs are always read in several processes.
        ahead: number of logs for each process that may be read before their turn.
        most_notes: number of notes of one log that are kept.
        look: number of records between two looks at the caller's request to stop.
    """

    least_bytes: int = 1 << 23
    most_peeked: int = 1_000
    ahead: int = 4
    most_notes: int = 20
    look: int = 1_000


@dataclasses.dataclass(slots=True)
class ReplayedLog:
    """One log and its events.

    Attributes:
        log: the log.
        lines: pieces of whole JSON lines; may be consumed once.
        counts: complete after the last line.
    """

    log: EventLog
    lines: Iterator[bytes]
    counts: LogCounts


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_log(
    log: EventLog,
    config: TranslateConfig,
    selection: Selection,
    counts: LogCounts,
    tuning: ReplayTuning = ReplayTuning(),
    on_progress: Callable[[float], None] = lambda fraction: None,
    check: Callable[[], None] = lambda: None,
    *,
    ends: bool = True,
) -> Iterator[list[Event]]:
    """Yield the wanted events of one log.

    Args:
        log: the log.
        config: settings of the translation.
        selection: the wanted events.
        counts: receives the counts and notes; complete after the last event.
        tuning: limits.
        on_progress: called with the fraction of the log that has been read.
        check: called from time to time; may raise an error to end the reading.
        ends: whether nothing will be added to the log; otherwise, merged events that may grow are left out.
    """

    def note(text: str) -> None:
        if len(counts.notes) < tuning.most_notes:
            counts.notes.append(text)
        else:
            counts.unshown += 1

    reader = EventLogReader(log, note, config.summary.interval)
    translator = Translator(config)
    try:
        for number, events in enumerate(replayed(reader, translator, ends=ends)):
            if number % tuning.look == 0:
                check()
                on_progress(reader.fraction)
            if events and (chosen := selection.of(events)):
                counts.events += len(chosen)
                yield chosen
    finally:
        for name in ("lines", "damaged", "cut_off", "unreadable", "unknown", "recognised"):
            setattr(counts, name, getattr(reader, name))
        counts.defects = translator.defects
        counts.jobs_without_start = translator.jobs_without_start
        counts.is_over = translator.application_is_over


def replay_logs(
    logs: Iterable[EventLog],
    config: TranslateConfig,
    selection: Selection,
    jobs: int,
    tuning: ReplayTuning = ReplayTuning(),
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> Iterator[ReplayedLog]:
    """Yield the logs in their order; consume the lines of each before the next.

    Args:
        logs: the logs, which are found while others are read.
        config: settings of the translation.
        selection: the wanted events.
        jobs: maximum number of processes; 1: this process.
        tuning: limits.
        on_progress: called with the fraction of the current log that has been read, in this process only.

    Raises:
        SparkEventsError: a process was killed, for example because the machine has no memory left.
    """
    rest = iter(logs)
    first, is_worth = _peeked(rest, tuning) if jobs > 1 else ([], False)
    everything = itertools.chain(first, rest)
    if is_worth and _travels(config):
        yield from _in_processes(everything, _Work(config, selection, tuning), jobs)
        return
    for log in everything:
        counts = LogCounts()
        events = read_log(log, config, selection, counts, tuning, on_progress)
        yield ReplayedLog(log, map(encode_lines, events), counts)


def _peeked(logs: Iterator[EventLog], tuning: ReplayTuning) -> tuple[list[EventLog], bool]:
    """Return the first logs, and whether several processes would read all logs sooner."""
    first: list[EventLog] = []
    size = 0
    for log in logs:
        first.append(log)
        with contextlib.suppress(OSError):
            size += sum(file.stat().st_size for file in log.files)
        if len(first) > 1 and (size >= tuning.least_bytes or len(first) >= tuning.most_peeked):
            return first, True
    return first, False


def _travels(config: TranslateConfig) -> bool:
    """Return whether the settings can be sent to another process; a user's failure enricher may prevent it."""
    try:
        pickle.dumps(config)
    except Exception:
        # Catch every error, because a user's class decides how it is pickled.
        return False
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class _Work:
    """What a process needs for every log."""

    config: TranslateConfig
    selection: Selection
    tuning: ReplayTuning


class _StoppedError(Exception):
    """The caller no longer needs the log."""


#: Work and stop flag of a child process.
_own: tuple[_Work, Flag] | None = None


def _begin(work: _Work, stop: Flag) -> None:
    """Prepare a child process; Ctrl-C ends it at once and silently."""
    global _own  # noqa: PLW0603
    _own = work, stop
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _written(log: EventLog, path: Path) -> LogCounts:
    """Write the events of a log to a file, in a child process."""
    assert _own is not None
    work, stop = _own

    def check() -> None:
        if stop.is_set():
            raise _StoppedError

    counts = LogCounts()
    with path.open("wb") as file:
        for events in read_log(log, work.config, work.selection, counts, work.tuning, check=check):
            file.write(encode_lines(events))
    return counts


def _in_processes(logs: Iterator[EventLog], work: _Work, jobs: int) -> Iterator[ReplayedLog]:
    # Start processes without a copy of this one, whose threads may hold locks.
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    with (
        tempfile.TemporaryDirectory(prefix="spark-events-") as folder,
        ProcessPoolExecutor(jobs, context, _begin, (work, stop)) as pool,
    ):
        waiting: deque[tuple[EventLog, Path, Future[LogCounts]]] = deque()
        try:
            for number, log in enumerate(logs):
                path = Path(folder, str(number))
                waiting.append((log, path, pool.submit(_written, log, path)))
                if len(waiting) >= jobs * work.tuning.ahead:
                    yield from _finished(*waiting.popleft())
            while waiting:
                yield from _finished(*waiting.popleft())
        except BrokenProcessPool:
            raise SparkEventsError(
                "a process that read an event log was killed, perhaps because the machine has no memory left;"
                " run again with --jobs 1"
            ) from None
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _finished(log: EventLog, path: Path, future: Future[LogCounts]) -> Iterator[ReplayedLog]:
    counts = future.result()
    with path.open("rb") as file:
        yield ReplayedLog(log, iter(lambda: b"".join(file.readlines(1 << 18)), b""), counts)
    path.unlink()
