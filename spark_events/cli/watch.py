"""``spark-events watch``: report applications whose heartbeats have stopped as LOST."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from spark_events.cli.arguments import UsageError, parsed
from spark_events.cli.output import note, show, table
from spark_events.cli.sinks import add_sink, sink_of
from spark_events.config import duration, integer, positive_duration
from spark_events.config.quoting import quoted_source
from spark_events.config.references import resolve
from spark_events.errors import SparkEventsError
from spark_events.event.text import moment, on_one_line
from spark_events.report.wording import counted, named
from spark_events.reporters.database.database_config import DatabaseConfig, database_url
from spark_events.watch.event_database import EventDatabase
from spark_events.watch.json_folder import JsonFolder
from spark_events.watch.remembered import Memory
from spark_events.watch.sightings import Sighting
from spark_events.watch.watcher import Check, Source, WatchConfig, Watcher

#: Exit code of a check that reported every loss it found, but that could not watch everything.
_INCOMPLETE = 3
_MOST_NAMES = 20


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "watch",
        help="report applications whose heartbeats have stopped as LOST",
        description=(
            "Finds applications without an end event whose heartbeats have stopped, and reports each of them once, "
            "as LOST. The command checks the source once; with --every, it repeats the check until it is stopped. "
            "Without --conf or --to, the command prints the events, one JSON object per line. Applications send "
            "heartbeats if events.heartbeat.interval is set. Exit codes: 0 if everything was watched, 1 for a failure, "
            "3 if a file could not be read or a running application sends no heartbeats."
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


def _run(chosen: argparse.Namespace) -> int:
    _, open_sink = sink_of(chosen)
    source, name = _source(chosen.source)
    watch = Watcher(source, open_sink, WatchConfig(chosen.intervals, chosen.since), memory=Memory.of(name))
    notes: list[str] = []
    while True:
        try:
            check = watch.look()
        except SparkEventsError as error:
            if chosen.every is None:
                raise
            note(f"{error}; checking again in {chosen.every:g} s")
        else:
            if chosen.verbose:
                _show(watch)
            before, notes = notes, [*_notes(check)]
            for text in notes:
                if text not in before:
                    note(text)
            if chosen.every is None:
                return _code(check)
        time.sleep(chosen.every)


def _source(given: str) -> tuple[Source, str]:
    """Return the source, and a text that identifies it on this machine."""
    if "://" not in given:
        if not Path(given).exists() and quoted_source(given) != given:
            raise UsageError("SOURCE: no such file or folder; the URL of a database contains ://")
        return JsonFolder(Path(given)), str(Path(given).resolve())
    try:
        config = DatabaseConfig(database_url.parse(resolve(given)))
    except ValueError:
        raise UsageError(f"SOURCE: expected a path and {database_url.allowed}") from None
    return EventDatabase(config), given


def _show(watch: Watcher) -> None:
    rows = [
        (named(seen.name), seen.identity[0], seen.status or "RUNNING", *_heartbeat(seen))
        for seen in sorted(watch.sightings, key=lambda seen: seen.last_seen)
    ]
    show(table(("application", "id", "status", "last seen", "heartbeat"), rows), flush=True)


def _heartbeat(seen: Sighting) -> tuple[str, str]:
    every = f"every {seen.interval / 1000:g} s" if seen.interval else "none: not watched"
    return moment(seen.last_seen or max(seen.sign[1], seen.reported[1])), every


def _notes(check: Check) -> Iterator[str]:
    if check.undelivered:
        yield f"{counted(check.undelivered, 'event')} not delivered; the next check reports them again"
    if check.unrecorded is not None:
        yield f"{check.unrecorded}; later checks by this user on this machine know the loss, others report it again"
    if check.unwatched:
        yield (
            f"not watched, because they send no heartbeats to this source: {_named(check.unwatched)}; for each of these"
            " applications, set spark.events.heartbeat.interval, for example to 1min, and"
            " spark.events.reporter.<name>.heartbeats=true for the reporter that writes to this source"
        )


def _named(runs: Sequence[Sighting]) -> str:
    """Return the names of applications, with their ids or the number of their runs."""
    ids = {run.name: run.identity[0] for run in runs}
    names = [
        f"'{on_one_line(name)}' ({on_one_line(ids[name]) if count == 1 else counted(count, 'run')})"
        for name, count in Counter(run.name for run in runs).items()
    ]
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _code(check: Check) -> int:
    if check.undelivered or check.unrecorded is not None:
        return 1
    return _INCOMPLETE if check.unread or check.unwatched else 0
