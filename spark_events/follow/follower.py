"""Follow all logs of a folder: deliver their new events, store the positions, and report logs that stop growing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from spark_events.clocks import SYSTEM, Clocks
from spark_events.event import Event
from spark_events.follow.followed_log import FollowedLog
from spark_events.follow.positions import PositionFile, StoredLog
from spark_events.records.event_log.log_files import EventLog, Position, find_logs, looks_like_a_log, part_of
from spark_events.records.event_log.log_paths import LogPath
from spark_events.translate.translation_config import TranslateConfig

__all__ = ["FollowConfig", "Follower", "LogState", "NotifyingSink", "Sweep"]


class NotifyingSink(Protocol):
    """Where the events go."""

    def take(self, events: Sequence[Event], *, notify: bool = True) -> None:
        """Accept events; without ``notify``, only for reporters that notify nobody."""

    def settle(self) -> None:
        """Return when all events are delivered or dropped with a reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class FollowConfig:
    """Limits of following; times in seconds.

    Attributes:
        since: age of a log at which it is not read, unless it was read before.
        lost_after: time without growth after which an application is LOST; None: never.
        silent_intervals: number of usual intervals without growth after which an application is silent.
        least_silence: shortest time without growth after which an application is silent.
        settle_every: number of events after which the follower waits for their delivery.
        save_every: shortest time between two replacements of the file of positions.
    """

    since: float = 7 * 86_400.0
    lost_after: float | None = None
    silent_intervals: int = 10
    least_silence: float = 300.0
    settle_every: int = 2_000
    save_every: float = 1.0


@dataclasses.dataclass(slots=True)
class LogState:
    """State of one log of an application that has not ended.

    Attributes:
        title: name and id of the application.
        status: RUNNING, SILENT or LOST.
        last_at: time of the newest record, in milliseconds since the epoch.
        lag: seconds between the log's last change and the delivery of its events.
        unread: bytes by which the log has grown since it was last read.
    """

    title: str
    status: str = "RUNNING"
    last_at: int = 0
    lag: float = 0.0
    unread: int = 0


@dataclasses.dataclass(slots=True)
class Sweep:
    """Result of one look at the folder.

    Attributes:
        logs: number of logs found.
        events: number of events delivered.
        failed: number of folders that could not be listed.
        lag: longest time between the change of a log and the delivery of its events, in seconds.
        running: states of the logs of applications that have not ended.
    """

    logs: int = 0
    events: int = 0
    failed: int = 0
    lag: float = 0.0
    running: list[LogState] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class _OpenLog:
    """A log that is followed, and the time of the monotonic clock since which it has not grown."""

    log: FollowedLog
    state: LogState
    unchanged_since: float


class Follower:
    """Watch the logs of one folder.

    Args:
        place: the folder, or one log.
        config: settings of the translation.
        limits: limits of following.
        positions: the stored positions.
        destination: receives the events.
        note: receives problems and changes of state.
        clocks: the clocks of this process.
    """

    def __init__(
        self,
        place: LogPath,
        config: TranslateConfig,
        limits: FollowConfig,
        positions: PositionFile,
        destination: NotifyingSink,
        note: Callable[[str], None],
        clocks: Clocks = SYSTEM,
    ) -> None:
        self._place = place
        self._config = config
        self._limits = limits
        self._positions = positions
        self._destination = destination
        self._note = note
        self._clocks = clocks
        self._open: dict[str, _OpenLog] = {}
        # Sizes of the files that are not event logs.
        self._others: dict[str, int] = {}
        self._saved = -limits.save_every
        self._lag = 0.0

    def look(self) -> Sweep:
        """Read and deliver what is new in all logs.

        Raises:
            OSError: when the place does not exist or cannot be reached.
            SparkEventsError: when the positions cannot be stored.
        """
        found = Sweep()

        def unlisted(error: OSError) -> None:
            found.failed += 1
            self._note(f"cannot read {error.filename}: {error.strerror or error}")

        if not self._positions.knows_folder:
            self._survey()
        seen: set[str] = set()
        for log in find_logs(self._place, unlisted):
            if self._is_followed(log):
                seen.add(log.key)
                found.logs += 1
                found.events += self._advance(log)
        if not found.failed:
            self._positions.forget_others(seen)
            self._open = {key: one for key, one in self._open.items() if key in seen}
        found.events += sum(self._check_growth(key, one) for key, one in self._open.items())
        self._positions.save()
        found.running = [one.state for one in self._open.values()]
        found.lag, self._lag = self._lag, 0.0
        return found

    def _survey(self) -> None:
        """Note which logs are complete before any is read: they are history, which raises no alarm.

        Reading them may take long. A log that is completed meanwhile raises alarms, also if this process is killed.
        """
        failed: list[OSError] = []
        for log in find_logs(self._place, failed.append):
            if not log.in_progress and self._is_followed(log):
                self._positions.logs.setdefault(log.key, StoredLog(is_history=True))
        if not failed:
            self._positions.knows_folder = True
            self._positions.save()

    def _is_followed(self, log: EventLog) -> bool:
        if log.key in self._positions.logs:
            return True
        if log.is_older(round((self._clocks.wall() - self._limits.since) * 1000)):
            return False
        size = _Extent.of(log).size
        if size <= 0 or self._others.get(log.key) == size:
            return False
        if log.asked_for or looks_like_a_log(log.path):
            return True
        self._others[log.key] = size
        return False

    def _advance(self, log: EventLog) -> int:
        """Deliver the new events of a log; return their number."""
        key, extent = log.key, _Extent.of(log)
        stored = self._positions.logs.setdefault(key, StoredLog())
        before = _Extent(stored.part, stored.size)
        is_known = key in self._open or stored.is_lost
        if stored.is_over or extent.size < 0 or (extent == before and is_known):
            return 0
        if extent.part == before.part and extent.size < before.size:
            self._note(f"{log.path}: shorter than before, so it is read again from its beginning")
            stored.move(Position(-1))
            self._open.pop(key, None)
        elif stored.is_lost:
            self._note(f"{log.path}: grows again, so its application is not lost")
            stored.is_lost = False
            self._open.pop(key, None)
        opened = self._open.get(key)
        if opened is None:
            followed = FollowedLog(log, self._config, stored.position, self._note)
            opened = _OpenLog(followed, LogState(log.path.name), self._clocks.monotonic() - self._age(log))
            self._open[key] = opened
        else:
            opened.unchanged_since = self._clocks.monotonic()
        unreadable = opened.log.unreadable
        delivered = sum(self._delivered(opened.log, log, stored))
        stored.move(max(stored.position, opened.log.position))
        opened.state = LogState(opened.log.title, last_at=opened.log.last_at, lag=self._age(log))
        if opened.log.unreadable > unreadable:
            # Read the part again at the next look.
            opened.state.unread = extent.size - (before.size if extent.part == before.part else 0)
        else:
            stored.part, stored.size = extent
        stored.is_over = opened.log.is_over
        if stored.is_over:
            del self._open[key]
        if delivered:
            self._lag = max(self._lag, 0.0 if stored.is_history else opened.state.lag)
            self._save_soon()
        return delivered

    def _age(self, log: EventLog) -> float:
        """Return the seconds since the last change of a log; 0 if its files have been deleted since the listing."""
        try:
            return max(0.0, self._clocks.wall() - log.modified())
        except OSError:
            return 0.0

    def _delivered(self, followed: FollowedLog, log: EventLog, stored: StoredLog) -> Iterator[int]:
        """Deliver events, and store the position from time to time; yield numbers of events."""
        waiting = 0
        for events in followed.new_events(log):
            if events:
                self._destination.take(events, notify=not (stored.is_history or followed.reports_live))
                waiting += len(events)
                yield len(events)
            if waiting >= self._limits.settle_every:
                self._destination.settle()
                stored.move(max(stored.position, followed.position))
                self._save_soon()
                waiting = 0
        if waiting:
            self._destination.settle()

    def _save_soon(self) -> None:
        """Store the positions, unless they were stored just now; a look ends with storing them."""
        now = self._clocks.monotonic()
        if now - self._saved >= self._limits.save_every:
            self._positions.save()
            self._saved = now

    def _check_growth(self, key: str, opened: _OpenLog) -> int:
        """Report an application that has stopped writing; return the number of events."""
        limits, log, stored = self._limits, opened.log, self._positions.logs[key]
        quiet = self._clocks.monotonic() - opened.unchanged_since
        if stored.is_lost or stored.is_history or not log.last_at:
            return 0
        if limits.lost_after is not None and quiet >= limits.lost_after and not log.reports_live:
            opened.state.status = "LOST"
            events = log.lost(f"its event log has not grown for {quiet:.0f} s")
            self._destination.take(events)
            self._destination.settle()
            stored.is_lost = True
            return len(events)
        is_silent = quiet >= max(limits.least_silence, limits.silent_intervals * log.usual_interval)
        if is_silent and opened.state.status != "SILENT":
            opened.state.status = "SILENT"
            self._note(f"{log.title}: silent, its event log has not grown for {quiet:.0f} s")
        return 0


class _Extent(NamedTuple):
    """Number and size of the last part of a log, of which at least one changes with the log; size -1: unknown."""

    part: int
    size: int

    @classmethod
    def of(cls, log: EventLog) -> _Extent:
        """Return the extent of a log at its listing."""
        if not log.files:
            return cls(0, 0)
        try:
            return cls(part_of(log.files[-1])[0], log.files[-1].stat().st_size)
        except OSError:
            # The part has been renamed or deleted since the listing.
            return cls(0, -1)
