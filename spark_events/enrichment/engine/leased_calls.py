"""Calls of a reported limit that the driver leases to this process; see :class:`.JobQuota`."""

from __future__ import annotations

import math
from collections.abc import Callable

from spark_events.enrichment.engine.job_quota import QuotaLease, QuotaReport
from spark_events.enrichment.engine.remaining_calls import LowestLimit, QuotaTuning

__all__ = ["LeasedCalls"]


class LeasedCalls:
    """Attempts of this process that the driver allows; has the methods and attributes of a :class:`.RemainingCalls`.

    Args:
        clock: monotonic time in seconds.
        tuning: constants.

    Attributes:
        limits: whether a limit is known.
        until: time until which no call remains; 0 if calls remain.
        begun: the number of the latest attempt.
    """

    def __init__(self, clock: Callable[[], float], tuning: QuotaTuning | None = None) -> None:
        self._reports = (tuning or QuotaTuning()).reports
        self.limits = False
        self.until = 0.0
        self.begun = 0
        self._clock = clock
        self._lease = 0
        self._in_flight: set[int] = set()
        self._draft, self._reported = QuotaReport(), -math.inf
        self._send: Callable[[QuotaReport], None] | None = None
        self._on_lease: Callable[[], None] = lambda: None

    @property
    def reset_at(self) -> float:
        """Time at which waiting attempts ask the driver again."""
        return max(self.until, self._reported + self._reports.min_interval)

    def on_lease(self, listener: Callable[[], None]) -> None:
        """Call a function when calls have been leased."""
        self._on_lease = listener

    def connect(self, send: Callable[[QuotaReport], None]) -> None:
        """Report with this function from now on; :meth:`receive` gets the leases."""
        self._send = send
        send(QuotaReport())

    def leave(self) -> None:
        """Stop reporting, because the run has ended."""
        self._send = None

    def receive(self, lease: QuotaLease) -> None:
        """Use further calls."""
        self.limits, self._lease = lease.limits, self._lease + lease.calls
        self.until = self._clock() + lease.delay if lease.delay else 0.0
        self._on_lease()

    def begin(self) -> int:
        """Count the start of an attempt, and return its number."""
        self.begun += 1
        self._in_flight.add(self.begun)
        is_leased = self._lease > 0
        self._lease -= is_leased
        draft = self._draft
        self._draft = draft._replace(begun=draft.begun + 1, leased=draft.leased + is_leased)
        return self.begun

    def end(self, number: int) -> bool:
        """Record that an attempt has ended; return whether it was in flight."""
        if number not in self._in_flight:
            return False
        self._in_flight.remove(number)
        self._draft = self._draft._replace(ended=self._draft.ended + 1)
        return True

    def report(self, number: int, limit: LowestLimit) -> None:
        """Pass a report on to the driver, soon; without remaining calls, no attempt starts meanwhile."""
        is_first, last = not self.limits, self._draft.limit
        if last is not None and last[0] == limit.name:
            limit = limit._replace(high=max(limit.high, last[4]), reports=last[5] + 1)
        self._draft = self._draft._replace(limit=limit)
        if limit.left < 1:
            self.until = self._clock() + limit.seconds
            self._draft = self._draft._replace(returned=self._draft.returned + self._lease)
            self._lease = 0
        if is_first:
            self.limits = True
            self._report()

    def rejected(self) -> bool:
        """Return whether a rejection is due to this limit, because no call remains; if so, count the rejection."""
        is_exhausted = self.until > self._clock()
        self._draft = self._draft._replace(rejected=self._draft.rejected + is_exhausted)
        return is_exhausted

    def room(self, reserved: int, wanted: int) -> float:
        """Return the number of attempts that may start now; if there is none, ask for the wanted number."""
        if not self.limits:
            return math.inf
        room, now = self._lease - reserved, self._clock()
        if room < 1 and now >= self.reset_at:
            self._report(wanted + self._needed)
        return room

    @property
    def _needed(self) -> int:
        """Number of calls that the process keeps in advance, so that its attempts need not wait for a lease."""
        return 2 * self._draft.begun

    def beat(self, reserved: int) -> None:
        """Report, ask for the calls that the process needs, and return the others; called several times per second."""
        if self._clock() - self._reported < self._reports.max_interval:
            return
        lacking = self._needed + reserved - self._lease
        if lacking < 0:
            self._lease += lacking
            self._draft = self._draft._replace(returned=self._draft.returned - lacking)
        self._report(max(0, lacking) if self.limits and self._clock() >= self.until else 0)

    def _report(self, wanted: int = 0) -> None:
        if self._send is None:
            return
        draft, self._draft, self._reported = self._draft, QuotaReport(), self._clock()
        if wanted or draft != QuotaReport() or self.limits:
            self._send(draft._replace(wanted=wanted))
