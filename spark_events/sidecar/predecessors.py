"""Report, at the start of an application's run, earlier runs that could not report their own end.

Two sources show such runs: :mod:`marks` in the spool directory, and :mod:`open_runs` in a database. The order is the
same for both: the run's events are passed to the driver session, which confirms that its reporters have settled them;
only then the evidence is destroyed. Each run is passed once. If this process is killed in between, the next run finds
the evidence again, and reports events with the same ids.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from spark_events.clocks import SYSTEM, Clocks
from spark_events.errors import SparkEventsError
from spark_events.event import AttributeValue, Event
from spark_events.records.types import ApplicationStart
from spark_events.watch.marks import LeftMark, MarkConfig, Marks
from spark_events.watch.open_runs import OpenRuns, database
from spark_events.watch.watcher import WatchConfig

if TYPE_CHECKING:
    from spark_events.reporters.database.database_config import DatabaseConfig

_LOG = logging.getLogger(__name__)
#: Pause after a failed look into a database, and longest wait for the threads at the end, in seconds.
_RETRY_SECONDS, _END_SECONDS = 10.0, 1.0
#: Receives the events of one earlier run, and a function to call when the reporters have settled them.
Report: TypeAlias = Callable[[Sequence[Event], Callable[[], None]], None]


class Predecessors:
    """Threads that find earlier runs, and mark this run as running.

    Args:
        spool: directory of the spool; None without a spool.
        databases: databases that receive this run's events.
        is_unique: whether at most one application of this name runs at any time.
        driver: identity of this run's driver.
        report: called in these threads with the events of each earlier run.
        marked: called with the folder of this run's mark, into which the driver stores an end without a sidecar.
        clocks: the clocks of this process.
        config: times of marks.
    """

    def __init__(
        self,
        spool: Path | None,
        databases: Sequence[DatabaseConfig],
        is_unique: bool,
        driver: str,
        report: Report,
        marked: Callable[[Path], None] = lambda _: None,
        clocks: Clocks = SYSTEM,
        config: MarkConfig | None = None,
    ) -> None:
        self._spool = spool
        self._databases = tuple(databases)
        self._is_unique = is_unique
        self._driver = driver
        self._report = report
        self._marked = marked
        self._clocks = clocks
        self._config = config or MarkConfig()
        self._over = threading.Event()
        # Set when the marks need attention: an event is settled, or this run is over.
        self._news = threading.Event()
        self._threads: list[threading.Thread] = []
        # Guards the attributes below; an RLock, because methods that hold it call each other.
        self._lock = threading.RLock()
        # For each run whose events were passed on, whether they are settled.
        self._settled: dict[tuple[str, str], threading.Event] = {}
        self._marks: Marks | None = None
        self._left: list[LeftMark] = []

    def begin(self, start: ApplicationStart, scope: Mapping[str, AttributeValue]) -> None:
        """Start looking for earlier runs of this application. Further calls have no effect.

        Args:
            start: identity of this run.
            scope: this run's attributes and the key of its incident.
        """
        if self._threads or start.app_id is None or (self._spool is None and not self._databases):
            return
        if self._spool is not None:
            self._marks = Marks(self._spool, start, scope, self._driver, self._clocks, self._config)
        self._begin_thread("predecessors", lambda: self._run(start, scope))

    def end(self) -> None:
        """Note that this run has ended. Further calls have no effect."""
        self._over.set()
        self._news.set()

    def join(self) -> None:
        """Delete the mark of this run, and those of the runs whose events are settled; wait a short time."""
        self.end()
        until = self._clocks.monotonic() + _END_SECONDS
        for thread in self._threads:
            # A thread may wait for a database or a disk for longer than this.
            thread.join(max(0.0, until - self._clocks.monotonic()))
        self._clean()

    def _begin_thread(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=f"spark-events-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, start: ApplicationStart, scope: Mapping[str, AttributeValue]) -> None:
        marks = self._marks
        if marks is not None:
            self._look_at(marks)
        if self._databases:
            # Begin after the marks, one of which may show that an open run has ended. Use another thread, because a
            # database may not answer for longer than a mark may stay untouched.
            self._begin_thread("open-runs", lambda: self._search(start, scope))
        while marks is not None and not self._over.is_set():
            self._news.wait(self._config.touch)
            self._news.clear()
            if not self._over.is_set():
                self._look_at(marks)
        self._clean()

    def _look_at(self, marks: Marks) -> None:
        with self._lock:
            # A mark that is placed after the end of this run may remain, and cause a false LOST.
            placed = None if self._over.is_set() else marks.place()
        if placed is not None:
            self._marked(placed)
        for left in marks.left():
            self._pass_on(left.identity, left.events())
            with self._lock:
                self._left.append(left)
        self._delete_settled()

    def _search(self, start: ApplicationStart, scope: Mapping[str, AttributeValue]) -> None:
        searches = [
            OpenRuns(database(config, start), start, scope, self._is_unique, self._clocks, WatchConfig())
            for config in self._databases
        ]
        while searches and not self._over.is_set():
            pause = _RETRY_SECONDS
            for search in [*searches]:
                try:
                    lost, left = search.look()
                except SparkEventsError as error:
                    _LOG.warning("cannot look for a lost earlier run; retrying in %g s: %s", _RETRY_SECONDS, error)
                    continue
                for one in lost:
                    self._pass_on(one.identity, [one.lost(search.sightings.works_since(one))])
                if left is None:
                    searches.remove(search)
                else:
                    pause = min(pause, max(0.0, left) + 0.001)
            self._over.wait(pause)

    def _pass_on(self, identity: tuple[str, str], events: Sequence[Event]) -> None:
        """Pass on the events of an earlier run, once."""
        with self._lock:
            if identity in self._settled:
                return
            settled = self._settled[identity] = threading.Event()

        def settle() -> None:
            settled.set()
            self._news.set()

        self._report(events, settle)

    def _delete_settled(self) -> None:
        with self._lock:
            for left in [*self._left]:
                if self._settled[left.identity].is_set():
                    left.delete()
                    self._left.remove(left)

    def _clean(self) -> None:
        # If a disk does not answer, a thread keeps the lock, and this process must exit nevertheless.
        if self._lock.acquire(timeout=_END_SECONDS):
            try:
                if self._marks is not None:
                    self._marks.remove()
                self._delete_settled()
            finally:
                self._lock.release()
