"""Detection of calls that block the event loop; the detection runs in a separate thread."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from types import FrameType

from spark_events.enrichment.engine.blocked_fraction import BlockedFraction, BlockedFractionTuning
from spark_events.enrichment.engine.frames import Holder, frame_of, holder_of, location
from spark_events.enrichment.engine.loop import BackgroundLoop

__all__ = ["Watch", "WatchTuning"]

_LOG = logging.getLogger(__name__)

OnBlocked = Callable[[str, float], None]
OnWarning = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class WatchTuning:
    """Thresholds of a blocked loop.

    Attributes:
        blocked_seconds: a loop that completes no iteration for this time counts as blocked; it stalls all calls in
            flight.
        look_seconds: time between two observations.
        min_looks: minimum number of consecutive observations. A count, not a time: a CPU-starved process observes
            rarely.
        fraction: thresholds for many short blocking calls.
    """

    blocked_seconds: float = 0.5
    look_seconds: float = 0.1
    min_looks: int = 3
    fraction: BlockedFractionTuning = dataclasses.field(default_factory=BlockedFractionTuning)


class Watch:
    """Thread that checks whether a single call occupies the loop continuously; active only while there are listeners.

    A loop without iterations is not sufficient evidence, because on a busy machine this also happens without a blocking
    call.

    Args:
        background: the loop. Code on the loop must call :meth:`beat` at least every ``blocked_seconds / 2``.
        tuning: thresholds.
    """

    def __init__(self, background: BackgroundLoop, tuning: WatchTuning | None = None) -> None:
        self._background = background
        self._tuning = tuning or WatchTuning()
        self._fraction = BlockedFraction(self._tuning.fraction)
        self._sampled = time.monotonic()
        self._has_run = False
        self._beat = self._since = time.monotonic()
        # Frame of the call at the last check. It is compared by identity, because the frame of another call may look
        # the same.
        self._entry: FrameType | None = None
        self._looks = 0
        self._listeners: dict[OnBlocked, OnWarning] = {}
        self._wanted = threading.Event()
        #: Lines that a warning has named, and places of calls that a message has described.
        self._named: set[str] = set()
        self._logged: set[str] = set()
        self._thread: threading.Thread | None = None

    def add(self, report: OnBlocked, warn: OnWarning) -> None:
        """Register callbacks, which the watch's thread calls.

        Args:
            report: called with ``(where, seconds)`` repeatedly while one call blocks the loop.
            warn: called with a sentence when many short calls have blocked the loop most of the time.
        """
        self.beat()
        self._listeners[report] = warn
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spark-events-enrich-watch", daemon=True)
            self._thread.start()
        self._wanted.set()

    def remove(self, report: OnBlocked) -> None:
        """Unregister a listener; without listeners, the thread sleeps."""
        self._listeners.pop(report, None)
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
                self._sampled = time.monotonic() + self._tuning.look_seconds
            self._wanted.wait()
            time.sleep(self._tuning.look_seconds)
            holder = self._holder()
            self._look(holder)
            self._sample(holder)

    def _holder(self) -> Holder | None:
        holder = holder_of(frame_of(self._background.thread_id))
        if holder is not None and holder.imports and holder.opens:
            # Do not report an import: a client library is imported once per process, in the loop's thread.
            return None
        return holder

    def _sample(self, holder: Holder | None) -> None:
        """Add a sample to the fraction of time for which calls block the loop."""
        passed, self._sampled = time.monotonic() - self._sampled, time.monotonic()
        # The holder's frame continues to run, so its line must be read before the wait.
        line = None if holder is None else location(holder.mine.f_code, holder.mine.f_lineno)
        found = self._fraction.add(passed, line, lasts=holder is not None and self._still_runs(holder))
        if found is None or found in self._named:
            return
        self._named.add(found)
        text = (
            f"{found} blocks the event loop most of the time, so the calls of this worker process run one "
            "after another: use an async client there, or asyncio.to_thread, or run more concurrent tasks (repartition)"
        )
        _LOG.warning("%s", text)
        for warn in list(self._listeners.values()):
            warn(text)

    def _still_runs(self, holder: Holder) -> bool:
        """Return whether a call continues for a while, without an iteration of the loop."""
        self._has_run = False
        try:
            self._background.loop.call_soon_threadsafe(self._note_iteration)
        except RuntimeError:  # the loop has ended together with its process
            return False
        time.sleep(self._tuning.fraction.gap_seconds)
        again = None if self._has_run else self._holder()
        return again is not None and again.entry is holder.entry

    def _note_iteration(self) -> None:
        self._has_run = True

    def _look(self, holder: Holder | None) -> None:
        if holder is None or holder.entry is not self._entry or self._beat > self._since:
            # No call is running, or a different call than at the last check, so the loop makes progress, even if
            # slowly.
            self._entry = None if holder is None else holder.entry
            self._since = time.monotonic()
            self._looks = 0
            return
        self._looks += 1
        seconds = time.monotonic() - self._since
        if self._looks >= self._tuning.min_looks and seconds > self._tuning.blocked_seconds:
            self._named.add(location(holder.mine.f_code, holder.mine.f_lineno))
            self._report(holder.describe(), seconds)

    def _report(self, where: str, seconds: float) -> None:
        for report in list(self._listeners):
            report(where, seconds)
        if where not in self._logged:
            self._logged.add(where)
            _LOG.warning(
                "%s blocks the event loop (%.1f s so far), so all other calls of this worker process are stalled: "
                "use an async library there, or asyncio.to_thread",
                where,
                seconds,
            )
