"""Window that all worker processes of one job share.

Each task slot has its own Python process. Separate windows would hide each other's effect on the destination
(:mod:`spark_events.enrichment.engine.window`): a process gains from more calls even if the destination is overloaded,
and the trials of one process disturb the measurements of the others. Therefore the driver has one :class:`Window` for
the job, and each process uses a share of its size:

    process 1 ── latencies, rejections ──▶ ┌───────────┐
    process 2 ── latencies, rejections ──▶ │ JobWindow │ ── round, share of the size ──▶ each process
    process 3 ── latencies, rejections ──▶ └───────────┘

A change of the window begins a round. The measurements of a round count as soon as every process uses its new share.

Two alternatives were rejected. Executors with a window each, shared by their processes, compete with each other:
``benchmarks/README.md`` compares both. Processes that know their number, and require a larger gain, would still disturb
each other by their trials.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

from spark_events.enrichment.engine.fair_shares import whole_shares
from spark_events.enrichment.engine.window import Window
from spark_events.enrichment.engine.window_search import WindowTuning
from spark_events.enrichment.settings import Auto

__all__ = ["CallReport", "JobWindow", "Share"]


class CallReport(NamedTuple):
    """What a process reports about its calls since its previous report.

    Attributes:
        round: the round of its latest share.
        size: the share that the process uses; 0: more calls are in flight than its share allows.
        wanted: the number of calls in flight that the process can use; infinite: any number.
        latencies: seconds of answered calls of the round.
        weight: the number of calls for which each latency stands.
        rejected: the number of calls that the destination rejected because of an overload.
        timed_out: whether a call has timed out.
        is_delayed: whether limits of the job delay calls.
    """

    round: int = -1
    size: int = 0
    wanted: float = math.inf
    latencies: tuple[float, ...] = ()
    weight: int = 1
    rejected: int = 0
    timed_out: bool = False
    is_delayed: bool = False


class Share(NamedTuple):
    """A process's share of the window.

    Attributes:
        round: the number of the round.
        has_begun: whether every process uses its share of this round, so that measurements count.
        size: the number of calls in flight.
        part: the number of answered calls after which the process reports.
        whole: the size of the whole window.
        latency: mean seconds of a call; 0 if unknown.
        is_largest: whether the window has reached its upper bound.
        delay: seconds from now until the calls count.
    """

    round: int = -1
    has_begun: bool = False
    size: int = 1
    part: int = 2
    whole: int = 1
    latency: float = 0.0
    is_largest: bool = False
    delay: float = 0.0


_NO_SHARE = Share()


@dataclasses.dataclass(slots=True)
class _Member:
    """A process that shares the window.

    Attributes:
        send: sends its share to the process, without waiting.
        wanted: the number of calls in flight that the process can use.
        round: the latest round whose share the process uses.
        seen: the time of its latest report.
        held: the number of calls that it may have in flight.
        sent: the latest share that was sent to it.
    """

    send: Callable[[Share], None]
    wanted: float = math.inf
    round: int = -1
    seen: float = 0.0
    held: int = 0
    sent: Share = _NO_SHARE


class JobWindow:
    """Thread-safe window of one job, and the processes that share it.

    Args:
        bounds: smallest, largest and first size.
        clock: monotonic time in seconds.
        tuning: constants of the window.
    """

    def __init__(
        self, bounds: Auto, clock: Callable[[], float] = time.monotonic, tuning: WindowTuning | None = None
    ) -> None:
        self._least = bounds.min
        self._clock = clock
        self._reports = (tuning or WindowTuning()).reports
        self._window = Window(bounds, tuning)
        self._lock = threading.Lock()
        self._round = 0
        self._has_begun = False
        self._members: dict[Hashable, _Member] = {}

    @property
    def size(self) -> int:
        """Allowed calls in flight of the job."""
        return self._window.size

    def report(self, name: Hashable, report: CallReport, send: Callable[[Share], None]) -> None:
        """Process the report of a process; the first report adds the process.

        Args:
            name: the process.
            report: its measurements.
            send: sends a share to the process. It is called during this and later calls of this method, from any
                thread, and must neither wait nor report.
        """
        with self._lock:
            now, before = self._clock(), (self._round, self._has_begun)
            member = self._enter(name, report, send, now)
            if self._has_begun and member.round == self._round and self._count(report, now):
                self._round += 1
                self._has_begun = False
            self._tell(before, name, now)

    def leave(self, name: Hashable) -> None:
        """Remove a process; the others use its share."""
        with self._lock:
            if self._members.pop(name, None) is not None:
                self._tell((self._round, self._has_begun), name, self._clock())

    def _enter(self, name: Hashable, report: CallReport, send: Callable[[Share], None], now: float) -> _Member:
        """Add a process or update its state, and remove processes that no longer report."""
        window, members, silent = self._window, self._members, self._reports.silent_seconds
        for other in [other for other, member in members.items() if now - member.seen > silent]:
            del members[other]
        if not members:
            window.begin(now)
            self._round += 1
            self._has_begun = True
        member = members.setdefault(name, _Member(send))
        member.wanted, member.seen = report.wanted, now
        member.round = report.round if report.size else -1
        if report.size:
            # A larger share may be on its way.
            member.held = max(report.size, member.sent.size)
        # Each process can always have one call in flight.
        window.at_least(max(self._least, len(members)))
        window.is_idle |= report.is_delayed or sum(member.wanted for member in members.values()) < window.size
        return member

    def _count(self, report: CallReport, now: float) -> bool:
        """Add measurements to the round; return whether the window has changed."""
        window = self._window
        window.latencies += report.latencies * report.weight
        if report.timed_out:
            return window.timed_out(math.inf)
        if any(window.rejected(math.inf) for _ in range(report.rejected)):
            return True
        # After this delay, every process has reported the answers that end a trial.
        reported = now - self._reports.max_interval
        return window.beat(reported, 0) or (len(window.latencies) >= window.need and window.turn())

    def _tell(self, before: tuple[int, bool], name: Hashable, now: float) -> None:
        """Begin the round if possible, and send the changed shares: to all processes if the round has changed."""
        window, members = self._window, self._members
        if not self._has_begun and all(member.round == self._round for member in members.values()):
            window.begin(now)
            self._has_begun = True
        is_new = before != (self._round, self._has_begun)
        part = math.ceil(window.need / max(1, len(members)))
        for other, fair in self._shares().items():
            member = members[other]
            if not is_new and other != name:
                continue
            # A process gets only calls that the others no longer hold, but always one.
            free = window.size - sum(one.held for one in members.values()) + member.held
            size = min(fair, max(1, member.held, free))
            member.held = max(member.held, size)
            share = Share(self._round, self._has_begun, size, part, window.size, window.latency, window.is_largest)
            if share != member.sent:
                member.sent = share
                # The task may just have ended.
                with contextlib.suppress(RuntimeError):
                    member.send(share._replace(delay=max(0.0, window.since - now)))

    def _shares(self) -> dict[Hashable, int]:
        """Divide the window; each process can always have one call in flight."""
        wanted = {name: member.wanted for name, member in self._members.items()}
        return {name: max(1, share) for name, share in whole_shares(self._window.size, wanted).items()}
