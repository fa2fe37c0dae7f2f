"""Notices that a call blocks the event loop, and says which: nothing on the loop itself could."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable

from spark_events.enrich.engine.frames import blame
from spark_events.enrich.engine.loop import BackgroundLoop

__all__ = ["BLOCKED_SECONDS", "Watch"]

_LOG = logging.getLogger(__name__)

#: A loop that has not turned for so long is blocked: all calls in flight stand still.
BLOCKED_SECONDS = 0.5
_LOOK_SECONDS = 0.1

Report = Callable[[str, float], None]


class Watch:
    """A thread that looks, while there are listeners, whether the loop still turns.

    Args:
        background: the loop. Whoever runs on it calls :meth:`beat` at least every ``BLOCKED_SECONDS / 2``.
    """

    def __init__(self, background: BackgroundLoop) -> None:
        self._background = background
        self._beat = time.monotonic()
        self._listeners: set[Report] = set()
        self._wanted = threading.Event()
        self._closed = False
        self._named: set[str] = set()
        self._thread: threading.Thread | None = None

    def add(self, report: Report) -> None:
        """``report(where, seconds)`` is called from the watch's thread, again and again while the loop is blocked."""
        self.beat()
        self._listeners.add(report)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spark-events-enrich-watch", daemon=True)
            self._thread.start()
        self._wanted.set()

    def remove(self, report: Report) -> None:
        """Stops telling; without listeners the thread sleeps."""
        self._listeners.discard(report)
        if not self._listeners:
            self._wanted.clear()

    def beat(self) -> None:
        """The loop turns."""
        self._beat = time.monotonic()

    def close(self) -> None:
        """Ends the thread."""
        self._closed = True
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._closed:
                return
            time.sleep(_LOOK_SECONDS)
            beat = self._beat
            held = time.monotonic() - beat
            if held > BLOCKED_SECONDS and self._listeners:
                self._tell(beat, held)

    def _tell(self, beat: float, held: float) -> None:
        where = blame(sys._current_frames().get(self._background.thread_id))
        if not where or beat != self._beat:
            # Nobody's code: a machine that is too busy, or a pause of the whole process.
            return
        for report in list(self._listeners):
            report(where, held)
        if where not in self._named:
            self._named.add(where)
            _LOG.warning(
                "%s blocks the event loop (%.1f s so far), so that no other call goes on: "
                "use an async library there, or asyncio.to_thread",
                where,
                held,
            )
