"""``spark-events replay``: create events from Spark's event logs."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from spark_events.cli.arguments import add_min_severity
from spark_events.cli.output import note
from spark_events.cli.sinks import Sink, add_sink, sink_of
from spark_events.event import Event, Severity
from spark_events.records.event_log.files import EventLog, find_logs, looks_like_a_log
from spark_events.records.event_log.reader import EventLogReader
from spark_events.report.wording import counted
from spark_events.translate.config import TranslateConfig
from spark_events.translate.event_log import replayed
from spark_events.translate.translator import Translator

_MOST_NOTES = 20
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
    parser.add_argument("paths", metavar="PATH", type=Path, nargs="+", help="an event log, or a folder of them")
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
    """Read logs one after another into a sink, and count for the last line of output."""

    def __init__(self, chosen: argparse.Namespace, config: TranslateConfig, sink: Sink, failed: int) -> None:
        self._least = Severity(chosen.min_severity)
        self._names = None if chosen.name is None else frozenset(chosen.name)
        self._config = config
        self._sink = sink
        self._counts: Counter[str] = Counter()
        self._notes = 0
        self.failed = failed

    def read(self, log: EventLog) -> None:
        """Read one log completely."""
        reader = EventLogReader(log, self._note, self._config.summary.interval)
        translator = Translator(self._config)
        for events in replayed(reader, translator):
            if events:
                chosen = list(self._chosen(events))
                self._counts["events"] += len(chosen)
                self._sink.take(chosen)
        self._counts.update(
            logs=1,
            lines=reader.lines,
            damaged=reader.damaged,
            cut_off=reader.cut_off,
            unknown=reader.unknown,
            defects=translator.defects,
            jobs_without_start=translator.jobs_without_start,
        )
        self.failed += reader.unreadable
        self._judge(log, reader, translator)

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
            (counts["damaged"], counted(counts["damaged"], "damaged line or block", "damaged lines or blocks")),
            (counts["cut_off"], f"{counted(counts['cut_off'], 'file')} cut off"),
            (counts["unknown"], f"{counted(counts['unknown'], 'line')} of events that are not Spark's own"),
            (headless, f"{counted(headless, 'finished job')} not reported because their start is missing"),
            (self.failed, f"{counted(self.failed, 'path')} that could not be read"),
            (counts["defects"], f"{counted(counts['defects'], 'record')} that could not be translated"),
            (undelivered, f"{counted(undelivered, 'event')} not delivered"),
        )
        note("; ".join([", ".join(whole), *(text for count, text in wrong if count)]))

    def _chosen(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            if event.severity >= self._least and (self._names is None or event.name in self._names):
                yield event

    def _judge(self, log: EventLog, reader: EventLogReader, translator: Translator) -> None:
        if not reader.recognised:
            if reader.unreadable:
                return
            if not reader.lines and not reader.damaged:
                self._note(f"{log.path}: empty, no event yet")
                return
            self.failed += 1
            note(f"{log.path}: not a Spark event log; skipped")
        elif not translator.application_is_over:
            why = "still in progress" if log.in_progress else "the driver still runs, was lost, or failed to write it"
            self._note(f"{log.path}: the application's end is missing: {why}")


def _run(chosen: argparse.Namespace) -> int:
    logs, failed = _find(chosen.paths)
    config, open_sink = sink_of(chosen, alerts=chosen.alerts)
    sink = open_sink()
    replay = _Replay(chosen, config, sink, failed)
    for log in logs:
        if log.asked_for or looks_like_a_log(log.path):
            replay.read(log)
    undelivered = sink.close()
    replay.account(undelivered)
    return 1 if replay.failed or undelivered else 0


def _find(paths: Sequence[Path]) -> tuple[list[EventLog], int]:
    """Return the logs below these paths, without duplicates, and the number of paths that failed."""
    logs: dict[Path, EventLog] = {}
    failed = 0

    def unreadable(error: OSError) -> None:
        nonlocal failed
        failed += 1
        note(f"cannot read {error.filename or path}: {error.strerror}")

    for path in paths:
        before = failed
        try:
            found = find_logs(path, unreadable)
        except OSError as error:
            unreadable(error)
            continue
        if not found and failed == before:
            failed += 1
            note(f"{path}: no event log in this folder")
        for log in found:
            logs.setdefault(log.path, log)
    return list(logs.values()), failed
