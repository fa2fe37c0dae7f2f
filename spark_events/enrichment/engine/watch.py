"""Notices that a call blocks the event loop, and says which: nothing on the loop itself could."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import FrameType

from spark_events.enrichment.engine.frames import frame_of, holder_of
from spark_events.enrichment.engine.loop import BackgroundLoop

__all__ = ["BLOCKED_SECONDS", "Watch"]

_LOG = logging.getLogger(__name__)

#: A loop that has not turned for so long is blocked: all calls in flight stand still.
BLOCKED_SECONDS = 0.5
_LOOK_SECONDS = 0.1
#: A process that gets no processor looks seldom; one look tells nothing.
_LEAST_LOOKS = 3

OnBlocked = Callable[[str, float], None]


class Watch:
    """A thread that looks, while there are listeners, whether one and the same call has had the loop all the time.

    That the loop does not turn is not enough: on a machine that is too busy, it does so for nobody's fault.

    Args:
        background: the loop. Whoever runs on it calls :meth:`beat` at least every ``BLOCKED_SECONDS / 2``.
    """

    def __init__(self, background: BackgroundLoop) -> None:
        self._background = background
        self._beat = self._since = time.monotonic()
        # The call that had the loop at the last look: the frame itself, for another call's may look the same.
        self._entry: FrameType | None = None
        self._looks = 0
        self._listeners: set[OnBlocked] = set()
        self._wanted = threading.Event()
        self._closed = False
        self._named: set[str] = set()
        self._thread: threading.Thread | None = None

    def add(self, report: OnBlocked) -> None:
        """``report(where, seconds)`` is called from the watch's thread, again and again while the loop is blocked."""
        self.beat()
        self._listeners.add(report)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spark-events-enrich-watch", daemon=True)
            self._thread.start()
        self._wanted.set()

    def remove(self, report: OnBlocked) -> None:
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
            if not self._wanted.is_set():
                # A frame keeps all that it refers to.
                self._entry = None
            self._wanted.wait()
            if self._closed:
                return
            time.sleep(_LOOK_SECONDS)
            self._look()

    def _look(self) -> None:
        holder = holder_of(frame_of(self._background.thread_id))
        if holder is None or holder.entry is not self._entry or self._beat > self._since:
            # Nobody's, or another call's turn: then the loop gets on, however slowly.
            self._entry = None if holder is None else holder.entry
            self._since = time.monotonic()
            self._looks = 0
            return
        self._looks += 1
        held = time.monotonic() - self._since
        if self._looks >= _LEAST_LOOKS and held > BLOCKED_SECONDS:
            self._tell(holder.told(), held)

    def _tell(self, where: str, held: float) -> None:
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
