"""Detection of calls that block the event loop; the detection runs in a separate thread."""

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

#: A loop that completes no iteration for this many seconds counts as blocked; it stalls all calls in flight.
BLOCKED_SECONDS = 0.5
_LOOK_SECONDS = 0.1
#: Minimum number of consecutive observations. A count, not a time: a CPU-starved process observes rarely.
_LEAST_LOOKS = 3

OnBlocked = Callable[[str, float], None]


class Watch:
    """Thread that checks whether a single call occupies the loop continuously; active only while there are listeners.

    A loop without iterations is not sufficient evidence, because on a busy machine this also happens without a blocking
    call.

    Args:
        background: the loop. Code on the loop must call :meth:`beat` at least every ``BLOCKED_SECONDS / 2``.
    """

    def __init__(self, background: BackgroundLoop) -> None:
        self._background = background
        self._beat = self._since = time.monotonic()
        # Frame of the call at the last check. It is compared by identity, because the frame of another call may look
        # the same.
        self._entry: FrameType | None = None
        self._looks = 0
        self._listeners: set[OnBlocked] = set()
        self._wanted = threading.Event()
        self._named: set[str] = set()
        self._thread: threading.Thread | None = None

    def add(self, report: OnBlocked) -> None:
        """Register ``report(where, seconds)``; the watch's thread calls it repeatedly while the loop is blocked."""
        self.beat()
        self._listeners.add(report)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spark-events-enrich-watch", daemon=True)
            self._thread.start()
        self._wanted.set()

    def remove(self, report: OnBlocked) -> None:
        """Unregister a listener; without listeners, the thread sleeps."""
        self._listeners.discard(report)
        if not self._listeners:
            self._wanted.clear()

    def beat(self) -> None:
        """Record that the loop is running."""
        self._beat = time.monotonic()

    def _run(self) -> None:
        while True:
            if not self._wanted.is_set():
                # Drop the frame, because it references the call's objects.
                self._entry = None
            self._wanted.wait()
            time.sleep(_LOOK_SECONDS)
            self._look()

    def _look(self) -> None:
        holder = holder_of(frame_of(self._background.thread_id))
        if holder is not None and holder.imports and holder.opens:
            # Do not report an import: a client library is imported once per process, in the loop's thread.
            holder = None
        if holder is None or holder.entry is not self._entry or self._beat > self._since:
            # No call is running, or a different call than at the last check, so the loop makes progress, even if
            # slowly.
            self._entry = None if holder is None else holder.entry
            self._since = time.monotonic()
            self._looks = 0
            return
        self._looks += 1
        held = time.monotonic() - self._since
        if self._looks >= _LEAST_LOOKS and held > BLOCKED_SECONDS:
            self._report(holder.describe(), held)

    def _report(self, where: str, held: float) -> None:
        for report in list(self._listeners):
            report(where, held)
        if where not in self._named:
            self._named.add(where)
            _LOG.warning(
                "%s blocks the event loop (%.1f s so far), so all other calls of this worker are stalled: "
                "use an async library there, or asyncio.to_thread",
                where,
                held,
            )
