"""Allowed rate that all worker processes of one job share.

    process 1 ── attempts, answers, rejections ──▶ ┌─────────┐
    process 2 ── attempts, answers, rejections ──▶ │ JobRate │ ── epoch, share of the rate ──▶ each process
    process 3 ── attempts, answers, rejections ──▶ └─────────┘

Separate estimates would each cost rejections: with ``Retry-After``, each process would pause on its own.

A rejection with a pause begins an epoch for all processes: no attempt starts until the pause has ended and all
processes have reported. Rejections of attempts of an earlier epoch do not count.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

from spark_events.enrichment.engine.fair_shares import fair_shares
from spark_events.enrichment.engine.rate_search import AllowedRateTuning, RateSearch

__all__ = ["JobRate", "RateReport", "RateShare"]


class RateReport(NamedTuple):
    """What a process reports about its attempts since its previous report.

    Attributes:
        epoch: the epoch of its latest share.
        begun: the number of attempts.
        answers: the number of answered attempts.
        rejected: the number of attempts that the destination rejected because of the rate.
        current: how many of these began in the epoch.
        asked: the longest pause that the destination asks for, in seconds.
        latency: the usual latency in seconds; 0 if unknown.
        wanted: the attempts per second that the process can use; infinite: any number.
        asks: whether the process waits for an answer.
    """

    epoch: int = 0
    begun: int = 0
    answers: int = 0
    rejected: int = 0
    current: int = 0
    asked: float = 0.0
    latency: float = 0.0
    wanted: float = math.inf
    asks: bool = False


class RateShare(NamedTuple):
    """A process's share of the allowed rate.

    Attributes:
        epoch: the number of the epoch.
        limits: whether attempts must wait.
        rate: attempts per second.
        is_settling: whether attempts pause until an estimate; after the pause, the process asks for its next share.
        delay: seconds from now until the next attempt may start; 0: no change.
    """

    epoch: int = 0
    limits: bool = False
    rate: float = math.inf
    is_settling: bool = False
    delay: float = 0.0


@dataclasses.dataclass(slots=True)
class _RateMember:
    """A process: sends its share, wanted attempts per second, time of its latest report, and its latest share."""

    send: Callable[[RateShare], None]
    wanted: float = math.inf
    seen: float = 0.0
    sent: RateShare | None = None


class JobRate:
    """Thread-safe allowed rate of one job, and the processes that share it.

    Args:
        clock: monotonic time in seconds.
        tuning: constants of the search.
        rate: the rate at first; infinite: unknown.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        tuning: AllowedRateTuning | None = None,
        rate: float = math.inf,
    ) -> None:
        self._clock = clock
        self._tuning = tuning or AllowedRateTuning()
        self._search = RateSearch(clock, self._tuning)
        self._search.rate, self._search.limits = rate, rate < math.inf
        self._lock = threading.Lock()
        self._members: dict[Hashable, _RateMember] = {}

    def report(self, name: Hashable, report: RateReport, send: Callable[[RateShare], None]) -> None:
        """Process the report of a process; the first report adds the process.

        Args:
            name: the process.
            report: its counts.
            send: sends a share to the process. It is called during this and later calls of this method, from any
                thread, and must neither wait nor report.
        """
        with self._lock:
            now, search, before, tuning = self._clock(), self._search, self._search.free, self._tuning
            silent = tuning.reports.silent_seconds
            for other in [other for other, member in self._members.items() if now - member.seen > silent]:
                del self._members[other]
            member = self._members.setdefault(name, _RateMember(send))
            member.wanted, member.seen = report.wanted, now
            search.passed(report.begun, report.answers)
            current = report.current if report.epoch == search.epoch else 0
            all_report = tuning.all_report_seconds if len(self._members) > 1 else 0.0
            least = max(tuning.min_pause_ratio * report.latency, all_report)
            for number in range(report.rejected):
                search.rejected(is_current=number < current, asked=report.asked, least=least)
            if report.asks:
                member.sent = None
            self._tell(now, is_new=search.free != before)

    def leave(self, name: Hashable) -> None:
        """Remove a process; the others use its share after their next reports."""
        with self._lock:
            self._members.pop(name, None)

    def _tell(self, now: float, *, is_new: bool) -> None:
        """Send the changed shares; ``is_new``: a pause has begun, or its end has changed."""
        search = self._search
        rates = fair_shares(search.rate, {name: member.wanted for name, member in self._members.items()})
        for number, (name, member) in enumerate(self._members.items()):
            share = RateShare(search.epoch, search.limits, rates[name], search.is_settling)
            if share == member.sent:
                continue
            starts = is_new or member.sent is None
            member.sent = share
            # The processes begin one after another.
            delay = max(0.0, search.free - now) + (0.0 if search.is_settling else number / search.rate)
            # The task may just have ended.
            with contextlib.suppress(RuntimeError):
                member.send(share._replace(delay=delay if starts else 0.0))
