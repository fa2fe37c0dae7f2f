"""Amounts that a job may use within a sliding period, such as the tokens of a minute."""

from __future__ import annotations

import math

__all__ = ["GrantedAmounts"]


class GrantedAmounts:
    """Amounts granted within a sliding period; the caller passes the time.

    Args:
        limit: maximum sum of the grants within a period.
        period: time for which a grant counts, in seconds.
        burst: maximum accumulated credit, as seconds of the limit.
        now: the current time.
        slot: length of a time slot, in seconds; the amounts of a slot are stored as one.
        rounding: fraction of the limit below which an amount counts as a rounding error.
    """

    def __init__(self, limit: float, period: float, burst: float, now: float, slot: float, rounding: float) -> None:
        self._slot = slot
        self._rounding = rounding
        self._limit = limit
        self._period = period
        #: Evenly spaced grants at this rate stay below the limit in every period.
        self._rate = limit / (period + slot)
        self._burst = burst
        self._free = now
        self._granted: dict[int, float] = {}

    def grant(
        self,
        wanted: float,
        least: float,
        sharers: int,
        now: float,
        *,
        whole: bool = False,
        reserved: float = 0.0,
        credit_since: float = math.inf,
    ) -> float:
        """Grant an amount from ``least`` to ``wanted``, or 0 if ``least`` does not fit.

        The waiting tasks share the credit that has accrued since the last grants. A grant may exceed the credit; the
        next grant then waits longer. ``reserved`` is an amount for another task, whose grant this grant must not
        delay. Credit expires after the burst time. Credit that accrued after ``credit_since`` does not expire;
        otherwise throughput would be lost while a large call waits.
        """
        while self._granted and (next(iter(self._granted)) + 1) * self._slot + self._period <= now:
            del self._granted[next(iter(self._granted))]
        used = sum(self._granted.values())
        room = self._limit - used
        if reserved:
            room = min(room, self._limit - reserved - self._remainder(used, reserved))
        self._free = max(self._free, min(now - self._burst, credit_since))
        # An amount above the limit (possible with an even share, see JobLimits.share) needs an empty window.
        is_empty = not reserved and used <= self._rounding * self._limit
        if self._free > now or (room < least and not is_empty):
            return 0.0
        granted = min(wanted, max(least, min(room, (now - self._free) * self._rate / sharers)))
        if whole:
            granted = math.floor(granted)
        self.owe(granted, now)
        return granted

    def _remainder(self, used: float, reserved: float) -> float:
        """Return the part of the used amount that will still count when the reserved amount fits."""
        for amount in self._granted.values():
            if used + reserved <= self._limit:
                break
            used -= amount
        return used

    def seconds(self, amount: float) -> float:
        """Return the number of seconds in which this credit accrues."""
        return amount / self._rate

    def owe(self, amount: float, now: float) -> None:
        """Count an amount that is used now."""
        if amount:
            slot = int(now / self._slot)
            self._granted[slot] = self._granted.get(slot, 0.0) + amount
            self._free += self.seconds(amount)

    def give_back(self, slot: int, amount: float) -> None:
        """Remove an amount from its slot, unless the slot has left the window."""
        found = min(amount, self._granted.get(slot, 0.0))
        if found > 0:
            self._granted[slot] -= found
            self._free -= self.seconds(found)
