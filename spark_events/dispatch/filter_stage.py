"""First stage of a delivery, on the dispatcher's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_events.dispatch.entries import Entry
from spark_events.dispatch.queue_stage import QueueStage
from spark_events.dispatch.selection import SelectionConfig, selector


class FilterStage:
    """Pass on the events that a reporter's settings select.

    Args:
        selection: the settings.
        following: the next stage.
    """

    def __init__(self, selection: SelectionConfig, following: QueueStage) -> None:
        self._select: Callable[[Sequence[Entry]], Sequence[Entry]] = selector(selection)
        self._following = following

    def put(self, entries: Sequence[Entry]) -> None:
        """Pass on the selected events."""
        if chosen := self._select(entries):
            self._following.put(chosen)
