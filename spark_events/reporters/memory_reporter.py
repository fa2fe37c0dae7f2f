"""Reporter ``memory``: keeps the last events, for tests and notebooks."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from spark_events.config import integer, option
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryConfig:
    """Settings below ``events.reporter.<name>.`` for type ``memory``."""

    size: int = option(
        "size", integer(1, 10_000_000), 10_000, doc="Maximum number of events; the oldest events are discarded first."
    )


class MemoryReporter(Reporter):
    """Reporter that keeps events in memory; read them from :attr:`events`."""

    Config: ClassVar[type[MemoryConfig]] = MemoryConfig

    def __init__(self, config: MemoryConfig | None = None) -> None:
        super().__init__(config or MemoryConfig())
        self._events: deque[Event] = deque(maxlen=self.config.size)

    @property
    def events(self) -> list[Event]:
        """The kept events, oldest first."""
        return list(self._events)

    def report(self, events: Sequence[Event]) -> None:
        self._events.extend(events)
