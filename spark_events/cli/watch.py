"""``spark-events watch``: report applications whose heartbeats have stopped as LOST."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from spark_events.cli.arguments import UsageError, parsed
from spark_events.cli.output import note, show, table
from spark_events.cli.sinks import Sink, add_sink, sink_of
from spark_events.config import duration, integer, positive_duration
from spark_events.config.references import resolve
from spark_events.errors import SparkEventsError
from spark_events.event.text import moment
from spark_events.report.wording import counted
from spark_events.reporters.database.config import DatabaseConfig, database_url
from spark_events.watch.database import EventDatabase
from spark_events.watch.folder import JsonFolder
from spark_events.watch.sightings import Sighting, Sightings

#: Store of applications' events, to which the watcher adds the events that it reports.
Source: TypeAlias = JsonFolder | EventDatabase


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "watch",
        help="report applications whose heartbeats have stopped as LOST",
        description=(
            "Finds applications without an end event whose heartbeats have stopped, and reports each of them once, "
            "as LOST. The command checks the source once; with --every, it repeats the check until it is stopped. "
            "Without --conf or --to, the command prints the events, one JSON object per line. Applications send "
            "heartbeats if events.heartbeat.interval is set."
        ),
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="the folder or file of JSON lines, or the URL of the database, to which the applications' reporters write",
    )
    parser.add_argument(
        "--every", type=parsed(positive_duration), metavar="TIME", help="repeat the check after this time"
    )
    parser.add_argument(
        "--intervals",
        type=parsed(integer(1, 1_000_000)),
        default=2,
        metavar="N",
        help="an application is LOST after N intervals without a heartbeat (default: %(default)s)",
    )
    parser.add_argument(
        "--since",
        type=parsed(duration),
        default="7d",
        metavar="TIME",
        help="ignore files and events that are older than this (default: %(default)s)",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="also print every application that was found")
    add_sink(parser)
    parser.set_defaults(run=_run)


class Watcher:
    """Check a source for lost applications, and report them.

    Args:
        source: the stored events.
        open_sink: opens the destination of the events; called only if an application is lost.
        intervals: number of intervals without a heartbeat after which an application is LOST.
        since: seconds of history to read.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        source: Source,
        open_sink: Callable[[], Sink],
        intervals: int,
        since: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._open_sink = open_sink
        self._intervals = intervals
        self._since = since
        self._clock = clock
        self.sightings = Sightings()
        # Wait after an outage of the source, because the applications' reporters must still deliver events from that
        # time.
        self._judges_from = 0

    def look(self) -> int:
        """Report lost applications; return the number of events that were not delivered.

        Raises:
            SparkEventsError: when the source cannot be read or written, so no application is reported.
        """
        now = round(self._clock() * 1000)
        try:
            self._source.read(self.sightings, now - round(self._since * 1000))
        except SparkEventsError:
            self._judges_from = -1
            raise
        if self._judges_from < 0:
            longest = max((seen.interval for seen in self.sightings if seen.is_expected), default=0)
            self._judges_from = now + round(self._intervals * longest)
        lost = [seen for seen in self.sightings if seen.is_overdue(now, self._intervals)]
        return self._report(lost) if lost and now >= self._judges_from else 0

    def _report(self, lost: list[Sighting]) -> int:
        events = [seen.lost() for seen in lost]
        sink = self._open_sink()
        sink.take(events)
        if undelivered := sink.close():
            # Do not record these events as reported: the next check reports them again, with the same event ids.
            return undelivered
        for event in events:
            self._source.record(event)
            self.sightings.see(event)
        return 0


def _run(chosen: argparse.Namespace) -> int:
    _, open_sink = sink_of(chosen)
    watch = Watcher(_source(chosen.source), open_sink, chosen.intervals, chosen.since)
    if chosen.every is None:
        return _look(watch, chosen.verbose)
    while True:
        try:
            _look(watch, chosen.verbose)
        except SparkEventsError as error:
            note(f"{error}; checking again in {chosen.every:g} s")
        time.sleep(chosen.every)


def _source(given: str) -> Source:
    if "://" not in given:
        return JsonFolder(Path(given))
    try:
        return EventDatabase(DatabaseConfig(database_url.parse(resolve(given))))
    except ValueError:
        raise UsageError(f"SOURCE: expected a path and {database_url.allowed}") from None


def _look(watch: Watcher, verbose: bool) -> int:
    undelivered = watch.look()
    if verbose:
        rows = [
            (seen.name, str(seen.attributes.get("spark.app.id")), seen.status or "RUNNING", *_heartbeat(seen))
            for seen in sorted(watch.sightings, key=lambda seen: seen.last_seen)
        ]
        show(table(("application", "id", "status", "last seen", "heartbeat"), rows), flush=True)
    if undelivered:
        note(f"{counted(undelivered, 'event')} not delivered; the next check reports them again")
    return 1 if undelivered else 0


def _heartbeat(seen: Sighting) -> tuple[str, str]:
    every = f"every {seen.interval / 1000:g} s" if seen.interval else "none: not watched"
    return moment(seen.last_seen or seen.reported), every
