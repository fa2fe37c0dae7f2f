"""Reported limit of a destination that all worker processes of one job share.

    process 1 ── attempts, reported limit, wanted calls ──▶ ┌──────────┐
    process 2 ── attempts, reported limit, wanted calls ──▶ │ JobQuota │ ── leased calls ──▶ the process that asks
    process 3 ── attempts, reported limit, wanted calls ──▶ └──────────┘

A leased call counts as in flight until the process reports that it has ended, so the processes together do not exceed
the remaining calls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple

from spark_events.enrichment.engine.fair_shares import whole_shares
from spark_events.enrichment.engine.remaining_calls import LowestLimit, QuotaTuning, RemainingCalls

__all__ = ["JobQuota", "QuotaLease", "QuotaReport"]


class QuotaReport(NamedTuple):
    """What a process reports about its attempts since its previous report.

    Attributes:
        begun: the number of attempts.
        leased: how many of these used a leased call.
        ended: the number of attempts that have ended.
        returned: the number of leased calls that the process gives back.
        rejected: the number of attempts that were rejected because no call remained.
        limit: the latest reported limit, as a :class:`.LowestLimit`; None: no report.
        wanted: the number of calls that the process asks for.
    """

    begun: int = 0
    leased: int = 0
    ended: int = 0
    returned: int = 0
    rejected: int = 0
    limit: LowestLimit | None = None
    wanted: int = 0


class QuotaLease(NamedTuple):
    """Calls that a process may start, in addition to earlier leases.

    Attributes:
        limits: whether a limit is known.
        calls: the number of calls.
        delay: seconds from now until the reset if no call remains; 0: calls remain.
    """

    limits: bool = False
    calls: int = 0
    delay: float = 0.0


@dataclasses.dataclass(slots=True)
class _QuotaMember:
    """A process: sends its leases; leased and wanted calls, numbers of its attempts in flight, time of its report."""

    send: Callable[[QuotaLease], None]
    leased: int = 0
    wanted: int = 0
    flying: deque[int] = dataclasses.field(default_factory=deque)
    seen: float = 0.0


class JobQuota:
    """Thread-safe reported limit of one job, and the processes that share it.

    Args:
        clock: monotonic time in seconds.
        tuning: constants.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, tuning: QuotaTuning | None = None) -> None:
        self._clock = clock
        self._tuning = tuning or QuotaTuning()
        self._calls = RemainingCalls(clock)
        self._lock = threading.Lock()
        self._members: dict[Hashable, _QuotaMember] = {}

    def report(self, name: Hashable, report: QuotaReport, send: Callable[[QuotaLease], None]) -> None:
        """Process the report of a process; the first report adds the process.

        Args:
            name: the process.
            report: its counts.
            send: sends a lease to the process. It is called during this and later calls of this method, from any
                thread, and must neither wait nor report.
        """
        with self._lock:
            now, calls, had_limits = self._clock(), self._calls, self._calls.limits
            silent = self._tuning.reports.silent_seconds
            for other in [other for other, member in self._members.items() if now - member.seen > silent]:
                self._remove(other)
            is_new = name not in self._members
            member = self._members.setdefault(name, _QuotaMember(send))
            member.seen, member.wanted = now, report.wanted
            member.leased = max(0, member.leased - report.leased - report.returned)
            member.flying.extend(calls.begin() for _ in range(report.begun))
            ended = [member.flying.popleft() for _ in range(min(report.ended, len(member.flying)))]
            if report.limit is not None:
                calls.report(ended[-1] if ended else calls.begun, LowestLimit(*report.limit))
            for number in ended:
                calls.end(number)
            for _ in range(report.rejected):
                calls.rejected()
            granted = self._grant(name, member)
            for other in self._members.values():
                if (other is member and (is_new or report.wanted)) or calls.limits != had_limits:
                    delay = max(0.0, calls.until - now)
                    lease = QuotaLease(calls.limits, granted if other is member else 0, delay)
                    # The task may just have ended.
                    with contextlib.suppress(RuntimeError):
                        other.send(lease)

    def leave(self, name: Hashable) -> None:
        """End the attempts and leases of a process."""
        with self._lock:
            if name in self._members:
                self._remove(name)

    def _remove(self, name: Hashable) -> None:
        for number in self._members.pop(name).flying:
            self._calls.end(number)

    def _grant(self, name: Hashable, member: _QuotaMember) -> int:
        """Lease the process its part of the remaining calls."""
        if not member.wanted:
            return 0
        room = self._calls.room(sum(other.leased for other in self._members.values()))
        if not self._calls.limits or room < 1:
            return 0
        wanted = {one: other.wanted for one, other in self._members.items()}
        granted = min(member.wanted, max(1, whole_shares(int(room), wanted)[name]))
        member.leased += granted
        return granted
