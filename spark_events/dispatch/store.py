"""Where a reporter's events are from the moment they are accepted until they have come to their end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from spark_events.dispatch.entries import Entries
from spark_events.event import Event

__all__ = ["Counts", "Store", "dropped_of"]


class Counts(NamedTuple):
    """``accepted = delivered + sum(dropped) + spooled + held``, at every moment.

    Attributes:
        accepted: events taken in, those included that a predecessor had left.
        delivered: events that the reporter has answered for.
        dropped: events that were given up, by reason.
        held: events that only this process knows.
        spooled: events that are safe on disk and wait there.
        oldest_age: seconds since the oldest of what is held or spooled was accepted.
    """

    accepted: int
    delivered: int
    dropped: Mapping[str, int]
    held: int
    oldest_age: float
    spooled: int = 0


class Store(Protocol):
    """What a :class:`~spark_events.dispatch.mailbox.Mailbox` and a spool have in common.

    One thread puts, another takes; what is taken stays in the books until it is settled or put back.
    None of these wait, but those that say so.
    """

    @property
    def is_durable(self) -> bool:
        """Whether what it holds outlives the process."""

    def start(self) -> None:
        """Gets ready, if need be on a thread of its own."""

    def check(self) -> None:
        """Looks after what it depends on; called now and then."""

    def put(self, entries: Entries) -> bool:
        """Takes entries in; whether the worker is to be woken for them now."""

    def take(self, most: int) -> list[Event]:
        """The oldest events."""

    def ack(self, dropped: str | None = None, count: int | None = None) -> None:
        """End what is in flight: delivered, or dropped for a reason, all of it or ``count`` events."""

    def requeue(self) -> None:
        """Return what is in flight to the front."""

    def is_exhausted(self) -> bool:
        """Whether nothing is left to be taken, now or once it has been fetched."""

    def counts(self) -> Counts:
        """The account at this moment."""

    def oldest_record(self) -> int | None:
        """The oldest record of which an event would be lost with this process; None when there is none."""

    def unanswered_for(self) -> float:
        """Seconds since the oldest event was accepted that would be lost with this process; 0.0 without one."""

    def wait_until_answered(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until no event is left that would be lost with this process."""

    def wait_until_empty(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until everything put in has been settled."""

    def wait_for_room(self, weight: int, timeout: float) -> bool:
        """Wait, at most ``timeout`` seconds, until so much weight fits without shedding."""

    def close(self, deadline: float) -> None:
        """Keeps what it can, by ``deadline`` (of ``time.monotonic``), and drops the rest as ``shutdown``."""


def dropped_of(taken: int, dropped: str | None, count: int | None) -> int:
    """Return how many of the events in flight an :meth:`Store.ack` drops."""
    if dropped is None:
        return 0
    return taken if count is None else max(0, min(count, taken))
