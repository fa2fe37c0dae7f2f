"""``spark-events follow``: deliver the events of running applications from their event logs."""

from __future__ import annotations

import argparse
import hashlib
import signal
import threading
from pathlib import Path

from spark_events.cli.arguments import parsed
from spark_events.cli.output import note, table
from spark_events.cli.sinks import add_sink, sink_of
from spark_events.config import duration, positive_duration, state_folder
from spark_events.config.quoting import quoted_source
from spark_events.errors import SparkEventsError
from spark_events.event.text import moment
from spark_events.follow.follower import FollowConfig, Follower, Sweep
from spark_events.follow.positions import PositionFile
from spark_events.records.event_log.log_paths import FORMS, LogPath, key_of, place_of
from spark_events.report.wording import counted, named

#: Lag that is noted without -v, in seconds, beyond the time between two looks.
_LONG_LAG = 60.0
#: Number of notes of one look that are printed.
_MOST_NOTES = 20


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "follow",
        help="deliver the events of running applications from their event logs",
        description=(
            "Watches a folder of event logs that grow, and delivers the events of all applications to the reporters,"
            " with the same ids as a sidecar. Stores its positions in one file, and continues there after a restart."
            " Without --conf or --to, the events are printed, one JSON object per line."
        ),
    )
    parser.add_argument("place", metavar="PATH", help=f"a folder of event logs, or one of them: a path or {FORMS}")
    parser.add_argument(
        "--every",
        type=parsed(positive_duration),
        default="10s",
        metavar="TIME",
        help="time between two looks at the folder (default: %(default)s)",
    )
    parser.add_argument("--once", action="store_true", help="look once and exit, for example from cron")
    parser.add_argument(
        "--since",
        type=parsed(duration),
        default="7d",
        metavar="TIME",
        help="skip logs that were last modified longer ago and were never read (default: %(default)s)",
    )
    parser.add_argument(
        "--lost-after",
        type=parsed(positive_duration),
        metavar="TIME",
        help="report an application as LOST if its log has no end and has not grown for this time (default: never)",
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="file of the positions (default: one for each PATH)")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print the applications and their lag at each look"
    )
    add_sink(parser, patience=False)
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    try:
        place = place_of(chosen.place)
        # Check a local path now; place_of has checked a URL.
        place.stat()
    except OSError as error:
        where = error.filename or quoted_source(chosen.place)
        raise SparkEventsError(f"cannot read {where}: {error.strerror or error}") from None
    config, open_sink = sink_of(chosen)
    positions = PositionFile(chosen.state or _state_of(place))
    stopped = threading.Event()
    with positions.locked():
        sink = open_sink()
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
        notes = _Notes()
        limits = FollowConfig(chosen.since, chosen.lost_after)
        follower = Follower(place, config, limits, positions, sink, notes.take)
        try:
            while True:
                notes.begin()
                found = follower.look()
                _account(found, notes, chosen)
                if chosen.once or stopped.wait(chosen.every):
                    break
        except KeyboardInterrupt:
            pass
        undelivered = sink.close()
    if undelivered:
        note(f"{counted(undelivered, 'event')} not delivered")
    return 1 if undelivered or (chosen.once and found.failed) else 0


def _state_of(place: LogPath) -> Path:
    name = hashlib.blake2b(key_of(place.resolve()).encode(), digest_size=8).hexdigest()
    try:
        return state_folder() / "follow" / f"{name}.json"
    except RuntimeError:
        raise SparkEventsError("no home directory for the file of positions; pass --state FILE") from None


class _Notes:
    """Print each note once, also if the next look repeats it."""

    def __init__(self) -> None:
        self._before: set[str] = set()
        self._now: set[str] = set()

    def begin(self) -> None:
        """Begin a look."""
        self._before, self._now = self._now, set()

    def take(self, text: str) -> None:
        """Print a note, unless it is a repetition or one of too many."""
        if text not in self._before and text not in self._now and len(self._now) < _MOST_NOTES:
            note(text)
        self._now.add(text)


def _account(found: Sweep, notes: _Notes, chosen: argparse.Namespace) -> None:
    """Print the lag behind the logs."""
    if chosen.verbose:
        rows = [
            (named(one.title), one.status, moment(one.last_at), f"{one.lag:.0f} s", f"{one.unread:,}")
            for one in sorted(found.running, key=lambda one: one.title)
        ]
        note(f"{counted(found.logs, 'log')}, {counted(found.events, 'new event')}")
        if rows:
            for line in table(("application", "status", "last record", "lag", "unread bytes"), rows).splitlines():
                note(line)
    for one in found.running:
        if one.unread:
            notes.take(f"{one.title}: {one.unread:,} bytes of its event log are not read yet")
    if found.lag > chosen.every + _LONG_LAG:
        notes.take(f"the events are late: the slowest log is {found.lag:.0f} s behind")
