"""The thread of one reporter, and its replacement if it blocks or dies."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from spark_events.dispatch.breaker import Breaker
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.reporter_calls import made
from spark_events.dispatch.reporter_thread import ReporterThread
from spark_events.dispatch.tally import Tally
from spark_events.reporters.reporter import Reporter

_LOG = logging.getLogger(__name__)
#: Maximum number of blocked threads per reporter. At this limit, the delivery no longer replaces a blocked thread,
#: because blocked threads may use CPU time and slow down other reporters.
_MOST_HUNG = 4


class ReporterThreads:
    """The current thread, and the abandoned threads that are still blocked.

    Args:
        name: the reporter's name in the configuration.
        make: creates the reporter.
        employ: creates a thread, which has not started, for a reporter that a function creates.
        lock: the lock of the threads' turns; held while one thread replaces another.
        breaker: learns of blocked threads.
        tally: counts blocked threads.
        describe: returns an error as a string, with secrets hidden.

    Attributes:
        current: the thread whose turn it is.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Reporter],
        employ: Callable[[Callable[[], Reporter]], ReporterThread],
        lock: threading.RLock,
        breaker: Breaker,
        tally: Tally,
        describe: Callable[[BaseException], str],
    ) -> None:
        self._name = name
        self._make = make
        self._employ = employ
        self._lock = lock
        self._breaker = breaker
        self._tally = tally
        self._describe = describe
        self._hung: list[ReporterThread] = []
        # Whether a thread is to be replaced and no replacement could be started.
        self._unreplaced = False
        # Create the first reporter here, so that the caller receives an error raised by the reporter's constructor.
        first = made(make)
        self.current = employ(lambda: first)

    def arrived(self, entries: Sequence[Entry], must_wake: bool) -> None:
        """Pass new events in the store on to the current thread."""
        self.current.arrived(entries, must_wake)

    def wake(self) -> None:
        """Wake the current thread."""
        self.current.wake()

    def check(self, now: float, grace: float) -> None:
        """Replace a thread that is blocked or dead.

        Args:
            now: the current time in seconds of the delivery's clock.
            grace: how long a call may exceed its time limit, in seconds.
        """
        with self._lock:
            thread = self.current
            fault = _fault(thread, now, grace)
            # The blocked thread has recovered, so it needs no replacement.
            self._unreplaced = self._unreplaced and fault is not None
            alive = [hung for hung in self._hung if hung.is_alive]
            # At the limit, start no replacement until one of the blocked threads has ended.
            if fault is None or len(alive) >= _MOST_HUNG or not self._replace(*fault):
                return
            # The replacement's first access to the store waits for the lock, so the turn is revoked before it.
            thread.abandon()
            self._hung = [*alive, thread]
            self._tally.hung += thread.death is None
            self._tally.failures += 1
            self.current.wake()
        what, how = fault
        _LOG.error(
            "reporter %s: %s (%s); another thread retries its events; set spark.events.reporter.%s.isolation=process"
            " to run it in a process, which can be killed",
            self._name,
            what,
            how,
            self._name,
        )

    def _replace(self, what: str, how: str) -> bool:
        """Start a replacement for the current thread; return whether it has started."""
        if not self._unreplaced:
            # Count the failure only once, before the first attempt to start a replacement.
            self._breaker.failed(f"{what}: {how}")
        try:
            successor = self._employ(self._make)
            successor.start()
        except Exception as error:
            # The system may have no free file descriptors or threads; the next check tries again.
            if not self._unreplaced:
                self._unreplaced = True
                _LOG.error(
                    "reporter %s: %s; cannot start a replacement thread, retrying: %s",
                    self._name,
                    what,
                    self._describe(error),
                )
            return False
        self._unreplaced = False
        self.current = successor
        return True


def _fault(thread: ReporterThread, now: float, grace: float) -> tuple[str, str] | None:
    """Return what is wrong with the thread, and details; None if the thread is healthy."""
    if thread.death is not None:
        return "ended its thread", thread.death
    busy, limit = thread.overdue(now)
    if busy < limit + grace:
        return None
    return "blocks its thread, which is abandoned", f"for {busy:.1f} s"
