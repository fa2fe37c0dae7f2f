"""Events about earlier runs: dispatched by the driver session's thread, confirmed when they are settled."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence

from spark_events.event import Event
from spark_events.sidecar.outlet import EventOutlet
from spark_events.translate.translator import Translator


class EarlierRuns:
    """Groups of events about earlier runs, each with a function to call when the reporters have settled it.

    Args:
        translator: judges the events.
        outlet: dispatches them.
        wake: wakes the driver session's thread.
    """

    def __init__(self, translator: Translator, outlet: EventOutlet, wake: Callable[[], None]) -> None:
        self._translator = translator
        self._outlet = outlet
        self._wake = wake
        self._waiting: deque[tuple[Sequence[Event], Callable[[], None]]] = deque()
        self._dispatched: deque[tuple[int, Callable[[], None]]] = deque()

    def report(self, events: Sequence[Event], settled: Callable[[], None]) -> None:
        """Make the driver session report an earlier run; thread-safe."""
        self._waiting.append((events, settled))
        self._wake()

    def dispatch(self) -> None:
        """Dispatch the waiting events; called on the driver session's thread."""
        while self._waiting:
            events, settled = self._waiting.popleft()
            self._outlet.report([self._translator.predecessor_ended(event) for event in events])
            self._dispatched.append((self._outlet.seq, settled))

    def confirm(self, *, all_of_them: bool = False) -> None:
        """Confirm that events are settled, so that the evidence of their runs can be destroyed; thread-safe."""
        with contextlib.suppress(IndexError):
            while True:
                # Ask the dispatcher after reading the number, when the events of this record are in the mailboxes.
                seq, settled = self._dispatched[0]
                if not all_of_them and seq > self._outlet.settled_seq:
                    return
                self._dispatched.popleft()
                settled()
