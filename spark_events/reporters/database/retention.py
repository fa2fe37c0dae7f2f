"""Time before which events are deleted, by a clock that one wrong machine cannot set ahead.

A driver whose clock is far ahead would delete the events of all drivers. Therefore the age of an event is measured from
the earliest of these times:

- this machine's clock
- the time of the newest event that was stored when the reporter connected, plus the time since then
- the clock of the PostgreSQL server
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from spark_events.clocks import Clocks

if TYPE_CHECKING:
    from sqlalchemy import Connection

_LOG = logging.getLogger(__name__)
#: Interval at which old events are deleted, in seconds.
_INTERVAL = 3_600.0
#: Difference of the clocks that is worth a warning, in seconds.
_DAY = 86_400.0


class Retention:
    """Deletion of the events that are older than a limit.

    Args:
        limit: largest age of events, in seconds; None: keep all events.
        where: address of the database, for messages.
        clocks: the clocks of this process.
    """

    def __init__(self, limit: float | None, where: str, clocks: Clocks) -> None:
        self._limit = limit
        self._where = where
        self._clocks = clocks
        self._next = clocks.monotonic()
        # Time of the newest event, in seconds since the epoch, and the monotonic time at which it was read; None before
        # the first connection and for an empty table.
        self._newest: tuple[float, float] | None = None
        self._is_read = False
        self._has_warned = False

    @property
    def is_due(self) -> bool:
        """Whether old events should be deleted now."""
        return self._limit is not None and self._clocks.monotonic() >= self._next

    def connected(self, connection: Connection) -> None:
        """Note the newest event; call this method before the first event of this run is stored."""
        from spark_events.reporters.database import event_tables

        if self._limit is None or self._is_read:
            return
        # Without the permission to read events, events can be stored; the deletion fails, and logs the reason.
        with contextlib.suppress(Exception), connection.begin_nested():
            newest = event_tables.newest(connection)
            self._newest = None if newest is None else (newest / 1000, self._clocks.monotonic())
            self._is_read = True

    def delete(self, connection: Connection) -> None:
        """Delete some old events; those that remain are deleted at the next call, so that new events do not wait."""
        from spark_events.reporters.database import event_tables

        assert self._limit is not None
        self._next = self._clocks.monotonic() + _INTERVAL
        before = self._now(event_tables.server_time(connection)) - self._limit
        if event_tables.delete_older(connection, round(before * 1000)) == event_tables.MOST_DELETED:
            self._next = self._clocks.monotonic()

    def _now(self, server: float | None) -> float:
        wall = self._clocks.wall()
        times = [wall] if server is None else [wall, server]
        if self._newest is not None:
            newest, read = self._newest
            times.append(newest + self._clocks.monotonic() - read)
        now = min(times)
        if wall - now > _DAY and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "%s: the clock of this machine is %.0f d ahead of the newest stored event, or of the server's clock; "
                "retention deletes only events that are too old by the earlier time; check the clock",
                self._where,
                (wall - now) / _DAY,
            )
        return now
