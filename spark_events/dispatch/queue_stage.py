"""Stage between the dispatcher's thread and the reporter's thread: the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_events.dispatch.entries import Entry
from spark_events.dispatch.turn import Store


class QueueStage:
    """Put events into the store, and wake the reporter's thread, which takes them.

    Args:
        store: holds the events until they are settled.
        arrived: the next stage; called with the new events, and whether the thread must be woken for them.
    """

    def __init__(self, store: Store, arrived: Callable[[Sequence[Entry], bool], None]) -> None:
        self._store = store
        self._arrived = arrived

    def put(self, entries: Sequence[Entry]) -> None:
        """Enqueue events without waiting."""
        self._arrived(entries, self._store.put(entries))
