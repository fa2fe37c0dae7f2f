"""``spark-events replay``: create events from Spark's event logs."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from spark_events.cli.arguments import add_jobs, add_min_severity
from spark_events.cli.output import note
from spark_events.cli.sinks import Sink, add_sink, sink_of
from spark_events.cli.times import TIME, millis_of
from spark_events.config.quoting import quoted_source
from spark_events.errors import SparkEventsError
from spark_events.event import Severity
from spark_events.records.event_log.log_files import EventLog, find_logs, looks_like_a_log
from spark_events.records.event_log.log_paths import FORMS, place_of
from spark_events.report.wording import counted
from spark_events.translate.replays import LogCounts, ReplayedLog, Selection, cores, replay_logs

_MOST_NOTES = 20
_COUNTED = ("events", "lines", "damaged", "cut_off", "unknown", "defects", "jobs_without_start")
#: Names of the events that an event log can produce. Other events concern delivery, or come from users' programs.
_NAMES = (
    *("AllSubtasksStatusChangeEvent", "ApplicationSummaryEvent", "BatchCommitEvent", "DataWrittenEvent"),
    *("DeadlineStatusChangeEvent", "ExecutorStatusChangeEvent", "JobFailureEvent", "JobStatusChangeEvent"),
    *("StageSummaryEvent", "WatermarkStatusChangeEvent"),
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "replay",
        help="create events from Spark's event logs",
        description=(
            "Creates events from the event logs of applications: single files, rolling eventlog_v2_* folders, or"
            " folders with several of both, compressed or not. An application may still be running."
            " Without --conf or --to, the events are printed, one JSON object per line."
        ),
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", help=f"an event log, or a folder of them: a path or {FORMS}"
    )
    parser.add_argument("--since", metavar="TIME", help=f"read only logs last modified from this time on: {TIME}")
    add_jobs(parser)
    add_sink(parser)
    parser.add_argument(
        "--alerts",
        action="store_true",
        help="also deliver to reporters that notify people, such as PagerDuty and Slack",
    )
    add_min_severity(parser)
    parser.add_argument(
        "--name",
        action="append",
        choices=_NAMES,
        metavar="EVENT",
        help="only events of this name, for example JobFailureEvent (repeatable)",
    )
    parser.set_defaults(run=_run)


class _Replay:
    """Pass the events of logs on to a sink, and count for the last line of output."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._counts: Counter[str] = Counter()
        self._notes = 0
        self.failed = 0
        self.older = 0

    def take(self, replayed: ReplayedLog) -> None:
        """Deliver the events of one log."""
        for lines in replayed.lines:
            self._sink.take_lines(lines)
        counts = replayed.counts
        for text in counts.notes:
            self._note(text)
        self._notes += counts.unshown
        self._counts["logs"] += 1
        for name in _COUNTED:
            self._counts[name] += getattr(counts, name)
        self.failed += counts.unreadable
        self._judge(replayed.log, counts)

    def unreadable(self, error: OSError) -> None:
        """Note a path that cannot be read."""
        self.failed += 1
        note(f"cannot read {error.filename}: {error.strerror or error}")

    def _note(self, text: str) -> None:
        """Print one of the first notes; only count later notes."""
        self._notes += 1
        if self._notes <= _MOST_NOTES:
            note(text)

    def account(self, undelivered: int) -> None:
        """Print how many notes were not shown, and the last line of output."""
        if self._notes > _MOST_NOTES:
            note(f"{self._notes - _MOST_NOTES:,} further notes not shown")
        counts = self._counts
        whole = (counted(counts["logs"], "log"), counted(counts["lines"], "line"), counted(counts["events"], "event"))
        headless = counts["jobs_without_start"]
        wrong = (
            (self.older, f"{counted(self.older, 'log')} older than --since not read"),
            (counts["damaged"], counted(counts["damaged"], "damaged line or block", "damaged lines or blocks")),
            (counts["cut_off"], f"{counted(counts['cut_off'], 'file')} cut off"),
            (counts["unknown"], f"{counted(counts['unknown'], 'line')} of events that are not Spark's own"),
            (headless, f"{counted(headless, 'finished job')} not reported because their start is missing"),
            (self.failed, f"{counted(self.failed, 'path')} that could not be read"),
            (counts["defects"], f"{counted(counts['defects'], 'record')} that could not be translated"),
            (undelivered, f"{counted(undelivered, 'event')} not delivered"),
        )
        note("; ".join([", ".join(whole), *(text for count, text in wrong if count)]))

    def _judge(self, log: EventLog, counts: LogCounts) -> None:
        if not counts.recognised:
            if counts.unreadable:
                return
            if not counts.lines and not counts.damaged:
                self._note(f"{log.path}: empty, no event yet")
                return
            self.failed += 1
            note(f"{log.path}: not a Spark event log; skipped")
        elif not counts.is_over:
            why = "still in progress" if log.in_progress else "the driver still runs, was lost, or failed to write it"
            self._note(f"{log.path}: the application's end is missing: {why}")


def _run(chosen: argparse.Namespace) -> int:
    since = None if chosen.since is None else millis_of("--since", chosen.since, time.time_ns() // 1_000_000)
    config, open_sink = sink_of(chosen, alerts=chosen.alerts)
    sink = open_sink()
    replay = _Replay(sink)
    selection = Selection(Severity(chosen.min_severity), None if chosen.name is None else frozenset(chosen.name))
    for log in replay_logs(_found(chosen.paths, since, replay), config, selection, chosen.jobs or cores()):
        replay.take(log)
    undelivered = sink.close()
    replay.account(undelivered)
    return 1 if replay.failed or undelivered else 0


def _found(paths: Sequence[str], since: int | None, replay: _Replay) -> Iterator[EventLog]:
    """Yield the logs below these paths, without duplicates and without those that are too old."""
    seen: set[int] = set()
    for path in paths:
        before, is_empty = replay.failed, True
        try:
            found = find_logs(place_of(path), replay.unreadable)
        except OSError as error:
            replay.unreadable(error)
            continue
        except SparkEventsError as error:
            replay.failed += 1
            note(str(error))
            continue
        for log in found:
            is_empty = False
            if hash(log.path) in seen:
                continue
            # Nearly every hash of 64 bits is unique; the paths themselves would need much memory.
            seen.add(hash(log.path))
            if log.is_older(since):
                replay.older += 1
            elif log.asked_for or looks_like_a_log(log.path):
                yield log
        if is_empty and replay.failed == before:
            replay.failed += 1
            note(f"{quoted_source(path)}: no event log in this folder")
