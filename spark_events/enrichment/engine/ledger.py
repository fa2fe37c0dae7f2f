"""Limits of a whole job, leased to its workers in small amounts.

A worker asks for the calls that wait now; the ledger leases what the limits allow. Calls per second and the budget per
minute are amounts: a lease must be used within :data:`LEASE_SECONDS` after it was asked for, and its remainder is
returned. Calls in flight are places, which a worker holds until it reports fewer.

    worker                                  ledger
    Ask(calls, amount, unused, debt) -----> counts what is returned and owed, waits for credit
    starts calls  <------------------------ Lease(slot, calls, amount, places)

The bound is simple: the ledger remembers the amounts of the last minute, plus the lifetime of a lease, by slots of
time, and never lets their sum exceed the limit. A crashed worker returns nothing, so its lease counts as used. Usage
above an estimate is a debt, added to the current slot: it delays the next leases of all workers. Usage below an
estimate is returned to the slot of its lease.

The budget is granted in order of waiting: the first call of the worker that waits longest reserves its estimate.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

__all__ = ["LEASE_SECONDS", "Ask", "JobLimits", "Lease", "Ledger", "leased"]

#: Seconds from an ask until its lease expires.
LEASE_SECONDS = 1.0
#: Length of a slot of time, in seconds.
_SLOT = 0.25
#: Least number of calls in a window; windows of lower rates are longer than a minute.
_LEAST_CALLS = 10
#: Seconds of the limit that may be leased at once after a time of less use.
_BURST_OF_CALLS, _BURST_OF_AMOUNT = 0.1, 1.0
#: Seconds between two attempts to lease for up to ten waiting workers, and the longest time until an answer.
_TICK, _LONGEST = 0.02, 0.25
#: Share of a limit that is a rounding error.
_NOTHING = 1e-9
#: Seconds of silence after which a worker's places are free.
_SILENT = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits of a job, or of one task's share; None: no limit.

    Attributes:
        calls_per_second: attempts that may start per second.
        amount_per_minute: sum of the estimates, corrected by the usage, per minute.
        in_flight: attempts in flight.
    """

    calls_per_second: float | None = None
    amount_per_minute: float | None = None
    in_flight: int | None = None

    def __bool__(self) -> bool:
        return self != JobLimits()

    def share(self, tasks: int) -> JobLimits:
        """Return an even share for each of some tasks; at least one call may be in flight in each."""
        calls, amount, places = self.calls_per_second, self.amount_per_minute, self.in_flight
        return JobLimits(
            None if calls is None else calls / tasks,
            None if amount is None else amount / tasks,
            None if places is None else max(1, places // tasks),
        )


class Ask(NamedTuple):
    """What a worker asks for and returns.

    Attributes:
        calls: number of calls that wait and have a place.
        amount: sum of their estimates.
        first: estimate of the first one; less is useless.
        held: places that the worker uses or may use now.
        wanted: places that it could use.
        slot: slot of the previous lease.
        unused_calls: calls that the previous lease did not need.
        unused: amounts that were not used, by slot.
        debt: amount that was used in addition to estimates.
    """

    calls: int = 0
    amount: float = 0.0
    first: float = 0.0
    held: int = 0
    wanted: int = 0
    slot: int = 0
    unused_calls: int = 0
    unused: tuple[tuple[int, float], ...] = ()
    debt: float = 0.0

    def to_bytes(self) -> bytes:
        """Return the ask as bytes."""
        return json.dumps(self).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Ask:
        """Return the ask from the bytes of :meth:`to_bytes`."""
        return Ask(*json.loads(data))


class Lease(NamedTuple):
    """Lease: the calls that a worker may start in one time slot.

    Attributes:
        slot: slot of time in which the amounts count.
        calls: number of calls that may start.
        amount: sum of the estimates of these calls.
        places: calls that may be in flight from now on, until the next lease.
        lacking: the limit that prevented more: ``rate_limit``, ``budget``, ``max_in_flight_job``, or "".
    """

    slot: int = 0
    calls: int = 0
    amount: float = 0.0
    places: int = 0
    lacking: str = ""

    def to_bytes(self) -> bytes:
        """Return the lease as bytes."""
        return json.dumps(self).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Lease:
        """Return the lease from the bytes of :meth:`to_bytes`."""
        return Lease(*json.loads(data))


class _Window:
    """Amounts granted in the last seconds; pure.

    Args:
        limit: the most that may be granted within a period.
        period: its seconds.
        burst: seconds of the limit that may be granted at once.
        now: the current time.
    """

    def __init__(self, limit: float, period: float, burst: float, now: float) -> None:
        self._limit = limit
        self._kept = period + LEASE_SECONDS
        #: Grants that are evenly spaced at this rate stay below the limit of every minute.
        self._rate = limit / (self._kept + _SLOT)
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
        """Grant an amount from ``least`` to ``wanted``, or 0 if even the former is too much now.

        The credit of the time since the last grants is divided among the sharers. A grant may exceed the credit, and
        the next one then waits longer. ``reserved`` is the amount of another
        worker that must fit as early as without this grant. Credit expires after the burst time,
        but not the credit after ``credit_since``: without that, the wait of a large call would cost throughput.
        """
        while self._granted and (next(iter(self._granted)) + 1) * _SLOT + self._kept <= now:
            del self._granted[next(iter(self._granted))]
        used = sum(self._granted.values())
        room = self._limit - used
        if reserved:
            room = min(room, self._limit - reserved - self._remainder(used, reserved))
        self._free = max(self._free, min(now - self._burst, credit_since))
        # An amount above the limit, as of an even share, needs a window of its own.
        is_empty = not reserved and used <= _NOTHING * self._limit
        if self._free > now or (room < least and not is_empty):
            return 0.0
        granted = min(wanted, max(least, min(room, (now - self._free) * self._rate / sharers)))
        if whole:
            granted = math.floor(granted)
        self.owe(granted, now)
        return granted

    def _remainder(self, used: float, reserved: float) -> float:
        """Return how much of the used amount still counts when the reserved amount fits."""
        for amount in self._granted.values():
            if used + reserved <= self._limit:
                break
            used -= amount
        return used

    def seconds(self, amount: float) -> float:
        """Return the time in which this much credit accrues."""
        return amount / self._rate

    def owe(self, amount: float, now: float) -> None:
        """Count an amount that is used now."""
        if amount:
            slot = int(now / _SLOT)
            self._granted[slot] = self._granted.get(slot, 0.0) + amount
            self._free += self.seconds(amount)

    def give_back(self, slot: int, amount: float) -> None:
        """Remove an amount from its slot; after the end of its window, it no longer counts anyway."""
        found = min(amount, self._granted.get(slot, 0.0))
        if found > 0:
            self._granted[slot] -= found
            self._free -= self.seconds(found)


class Ledger:
    """Leases the limits of one job; may be used by several threads.

    Args:
        limits: the limits.
        clock: monotonic time in seconds.
    """

    def __init__(self, limits: JobLimits, clock: Callable[[], float] = time.monotonic) -> None:
        now = clock()
        self._clock = clock
        self._lock = threading.Lock()
        self._calls = self._amount = None
        if (rate := limits.calls_per_second) is not None:
            period = max(60.0, _LEAST_CALLS / rate)
            self._calls = _Window(rate * period, period, _BURST_OF_CALLS, now)
        if limits.amount_per_minute is not None:
            self._amount = _Window(limits.amount_per_minute, 60.0, _BURST_OF_AMOUNT, now)
        self._places = limits.in_flight
        self._asks: dict[Hashable, Ask] = {}
        #: Workers that wait for the budget: since when, and the estimate of the first call.
        self._waits: dict[Hashable, tuple[float, float]] = {}
        #: Places by worker: those that it may use, those that it could use, and the time of its last ask.
        self._held: dict[Hashable, int] = {}
        self._wanted: dict[Hashable, int] = {}
        self._seen: dict[Hashable, float] = {}

    @property
    def waiting(self) -> int:
        """Number of workers that wait for a lease."""
        return len(self._asks)

    def ask(self, worker: Hashable, ask: Ask) -> None:
        """Register what a worker asks for, and count what it returns; :meth:`lease` answers."""
        with self._lock:
            now = self._clock()
            self._asks[worker], self._seen[worker] = ask, now
            if self._calls is not None:
                self._calls.give_back(ask.slot, ask.unused_calls)
            if self._amount is not None:
                for slot, amount in ask.unused:
                    self._amount.give_back(slot, amount)
                self._amount.owe(ask.debt, now)
                since, _ = self._waits.pop(worker, (now, 0.0))
                if ask.calls:
                    self._waits[worker] = since, ask.first
            if self._places is not None:
                self._held[worker], self._wanted[worker] = ask.held, ask.wanted
                for other in [one for one in self._held if self._seen[one] < now - _SILENT]:
                    self._forget(other)

    def lease(self, worker: Hashable, *, at_once: bool) -> Lease | None:
        """Return a lease for the last ask, or None if there is none yet and ``at_once`` is False."""
        with self._lock:
            now, ask = self._clock(), self._asks[worker]
            sharers = sum(one.calls > 0 for one in self._asks.values())
            places = self._place(worker, ask)
            calls, amount, lacking = self._amounts(worker, ask, sharers, now)
            if not calls and places <= ask.held and (ask.calls or ask.wanted > ask.held) and not at_once:
                return None
            del self._asks[worker]
            if not lacking and self._places is not None and ask.wanted > places:
                lacking = "max_in_flight_job"
            return Lease(int(now / _SLOT), calls, amount, places, lacking)

    def leave(self, worker: Hashable) -> None:
        """Free the places of a worker that has ended; the rest of its lease counts as used."""
        with self._lock:
            self._asks.pop(worker, None)
            self._forget(worker)

    def _forget(self, worker: Hashable) -> None:
        for known in (self._held, self._wanted, self._seen, self._waits):
            known.pop(worker, None)

    def _amounts(self, worker: Hashable, ask: Ask, sharers: int, now: float) -> tuple[int, float, str]:
        """Return the granted calls and amount, and what prevented more.

        The first call of the worker that waits longest has a reservation. Otherwise small calls of other workers would
        take all room, and a large call would never start.
        """
        calls, amount = ask.calls, ask.amount
        if calls and self._amount is not None:
            # A worker that asks no more has died or lost its connection.
            current = [one for one in self._waits if self._seen[one] >= now - LEASE_SECONDS]
            longest = min(current or [worker], key=lambda one: self._waits[one][0])
            since, first = self._waits[longest]
            reserved = 0.0 if longest == worker else first
            credit_since = max(since, now - self._amount.seconds(first))
            amount = self._amount.grant(
                ask.amount, ask.first, sharers, now, reserved=reserved, credit_since=credit_since
            )
            if amount < ask.first:
                return 0, 0.0, "budget"
        if calls and self._calls is not None:
            calls = int(self._calls.grant(ask.calls, 1, sharers, now, whole=True))
            if not calls and self._amount is not None:
                self._amount.give_back(int(now / _SLOT), amount)
        if calls:
            self._waits.pop(worker, None)
        lacking = "rate_limit" if calls < ask.calls else "budget" if amount < ask.amount else ""
        return calls, amount if calls else 0.0, lacking

    def _place(self, worker: Hashable, ask: Ask) -> int:
        """Return the places of a worker: a fair share, and no more than others have reported as free."""
        if self._places is None:
            return 0
        fair = self._fair(worker)
        if fair > ask.held:
            free = self._places - sum(self._held.values()) + self._held[worker]
            fair = self._held[worker] = max(ask.held, min(fair, free))
        # A smaller share is free for others as soon as the worker reports it.
        return fair

    def _fair(self, worker: Hashable) -> int:
        """Return the max-min fair share of a worker."""
        assert self._places is not None
        left, workers = self._places, sorted(self._wanted, key=self._wanted.__getitem__)
        for number, one in enumerate(workers):
            share = min(self._wanted[one], left // (len(workers) - number))
            if one == worker:
                return share
            left -= share
        return 0


async def leased(ledger: Ledger, worker: Hashable, ask: Ask) -> Lease:
    """Return the lease for an ask, as soon as there is one; an empty one after a fraction of a second."""
    ledger.ask(worker, ask)
    clock = asyncio.get_running_loop().time
    latest = clock() + _LONGEST
    while True:
        # Polls, because time gives credit, and channels with loops of their own share the ledger.
        lease = ledger.lease(worker, at_once=clock() >= latest)
        if lease is not None:
            return lease
        await asyncio.sleep(min(_LONGEST, _TICK * max(1.0, ledger.waiting / 10)))
