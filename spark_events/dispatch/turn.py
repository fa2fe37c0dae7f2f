"""The right of one reporter's thread to take a store's events and to settle them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from spark_events.dispatch.drain import Drain
from spark_events.dispatch.mailbox import Mailbox
from spark_events.dispatch.spool.spool import Spool
from spark_events.dispatch.tally import Tally
from spark_events.event import Event

#: Reason for dropped events when a stop leaves no time for a retry.
SHUTDOWN = "shutdown"

Store: TypeAlias = Mailbox | Spool


class Settlement(NamedTuple):
    """Result of a batch.

    Attributes:
        dropped: the reason for dropping events; None if all were delivered.
        rejected: the number of dropped events; None for all.
    """

    dropped: str | None = None
    rejected: int | None = None


DELIVERED = Settlement()


class Turn:
    """Take events of a store and settle them, until the delivery revokes the turn.

    The delivery revokes the turn once: when it replaces the thread, or when it closes the store. Afterwards the turn
    has no events, and what its thread settles has no effect.

    Args:
        store: holds the events.
        lock: guards the change from one turn to the next; the turns of one delivery share it.
        drain: limits the attempts at the end.
        tally: counts failures and records latencies.
        on_progress: called after events are settled.
    """

    def __init__(
        self,
        store: Store,
        lock: threading.RLock,
        drain: Drain,
        tally: Tally,
        on_progress: Callable[[], None],
    ) -> None:
        self._store = store
        self._lock = lock
        self._drain = drain
        self._tally = tally
        self._on_progress = on_progress
        self.revoked = False

    @property
    def is_over(self) -> bool:
        """Whether the thread makes no further attempts."""
        return self.revoked or self._drain.is_over

    @property
    def is_durable(self) -> bool:
        """Whether unsettled events survive the process."""
        return self._store.is_durable

    def take(self, most: int) -> list[Event]:
        """Return the oldest events, with at most this total weight; they stay in flight until :meth:`settle`."""
        with self._lock:
            return [] if self.revoked else self._store.take(most)

    def is_exhausted(self) -> bool:
        """Return whether this turn has no more events.

        If events remain that cannot be taken yet, the store will wake the thread.
        """
        return self.revoked or self._store.is_exhausted()

    def settle(self, answer: Settlement, seconds: float) -> None:
        """Settle the events in flight as delivered or dropped.

        Args:
            answer: the result.
            seconds: how long the delivery took, retries included.
        """
        with self._lock:
            if self.revoked:
                return
            self._tally.settled(seconds)
            if answer.dropped != SHUTDOWN:
                self._store.ack(answer.dropped, answer.rejected)
            elif self.is_durable:
                self._store.requeue()
            else:
                # No time is left for the waiting events either.
                self._store.close(self._drain.ends_at)
        self._on_progress()

    def failed(self, *, is_dead: bool) -> None:
        """Record an attempt without an answer; ``is_dead``: whether the destination counts as dead."""
        with self._lock:
            if not self.revoked:
                self._tally.failures += 1
                self._drain.failed(is_dead=is_dead)

    def answered(self, *, failed: bool) -> None:
        """Record an answer of the destination; ``failed``: whether it counts as a failure."""
        with self._lock:
            if not self.revoked:
                self._tally.failures += failed
                self._drain.answered()

    def revoke(self) -> None:
        """End the turn, and return its events to the store."""
        with self._lock:
            if not self.revoked:
                self.revoked = True
                self._store.requeue()
