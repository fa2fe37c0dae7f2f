"""Limits of a whole job, leased to its tasks in small amounts.

A task requests leases for its waiting calls; the ledger leases as much as the limits allow. Calls per second and the
budget per minute are amounts: a task must use a lease within :data:`LEASE_SECONDS` after its request, and returns the
unused part. Calls in flight (``places``) are not used up: a task keeps its number until it reports a smaller number.

    task                                    ledger
    Ask(calls, amount, unused, debt) -----> counts unused amounts and debts, waits for credit
    starts calls  <------------------------ Lease(slot, calls, amount, places)

The ledger stores the amounts of the last minute, plus the lifetime of a lease, by time slot. It never grants more than
the limit minus their sum. A crashed task returns nothing, so its lease counts as used. Usage above an estimate is a
debt: the ledger adds the debt to the current slot, which delays the next leases of all tasks. Usage below an estimate
is returned to the slot of its lease.

The longest-waiting task has priority for the budget: the ledger reserves the estimate of its first call.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

from spark_events.enrichment.engine.fair_shares import whole_shares
from spark_events.enrichment.engine.granted_amounts import GrantedAmounts

__all__ = ["LEASE_SECONDS", "Ask", "JobLimits", "Lease", "Ledger", "LedgerTuning", "granted", "leased"]

#: Time from a lease request until the lease expires, in seconds. Not a tuning: the driver and the tasks agree on it.
LEASE_SECONDS = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class LedgerTuning:
    """Constants of the ledger.

    Attributes:
        slot: length of a time slot, in seconds.
        min_calls: minimum number of calls in a window; for low rates, the window is therefore longer than a minute.
        burst_of_calls: maximum credit that an idle job accumulates, as seconds of the limit of calls.
        burst_of_amount: the same for the budget.
        tick: polling interval for up to ``tick_tasks`` waiting tasks, in seconds; with more tasks, it is longer.
        tick_tasks: see ``tick``.
        max_wait: maximum time until an answer, in seconds.
        rounding: fraction of a limit below which an amount counts as a rounding error.
        silent: if a task makes no request for this time, in seconds, the ledger frees its calls in flight.
    """

    slot: float = 0.25
    min_calls: int = 10
    burst_of_calls: float = 0.1
    burst_of_amount: float = 1.0
    tick: float = 0.02
    tick_tasks: int = 10
    max_wait: float = 0.25
    rounding: float = 1e-9
    silent: float = 10.0


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
        """Return the even share of one task, with at least one call in flight.

        Therefore, more tasks than ``in_flight`` exceed the limit together. A call whose estimate exceeds the share of
        ``amount_per_minute`` may start after a minute without usage, and the next call then waits longer. The average
        of each task stays within its share, but the tasks together may exceed the limit in a single minute.
        """
        calls, amount, places = self.calls_per_second, self.amount_per_minute, self.in_flight
        return JobLimits(
            None if calls is None else calls / tasks,
            None if amount is None else amount / tasks,
            None if places is None else max(1, places // tasks),
        )


class Ask(NamedTuple):
    """Lease request of a task, with the unused parts of earlier leases.

    Attributes:
        calls: number of waiting calls that the limit of calls in flight permits.
        amount: sum of the estimates of these calls.
        first: estimate of the first of these calls; a smaller amount is useless.
        held: number of calls that the task has or may have in flight now.
        wanted: number of calls in flight that the task could use.
        slot: time slot of the previous lease.
        unused_calls: number of calls in the previous lease that did not start.
        unused: unused amounts, by time slot.
        debt: usage above the estimates.
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


class Lease(NamedTuple):
    """Calls that a task may start, all counted in one time slot.

    Attributes:
        slot: time slot in which the amounts count.
        calls: number of calls that may start.
        amount: sum of the estimates of these calls.
        places: maximum number of calls in flight, until the next lease.
        lacking: the limiting factor: ``rate_limit``, ``budget``, ``max_in_flight_job``, or "".
    """

    slot: int = 0
    calls: int = 0
    amount: float = 0.0
    places: int = 0
    lacking: str = ""


class Ledger:
    """Thread-safe ledger that leases the limits of one job.

    Args:
        limits: the limits.
        clock: monotonic time in seconds.
        tuning: constants.
    """

    def __init__(
        self,
        limits: JobLimits,
        clock: Callable[[], float] = time.monotonic,
        tuning: LedgerTuning | None = None,
    ) -> None:
        self.tuning = tuning = tuning or LedgerTuning()
        now = clock()
        self._clock = clock
        self._lock = threading.Lock()
        self._calls = self._amount = None
        if (rate := limits.calls_per_second) is not None:
            period = max(60.0, tuning.min_calls / rate)
            self._calls = self._granted(rate * period, period, tuning.burst_of_calls, now)
        if limits.amount_per_minute is not None:
            self._amount = self._granted(limits.amount_per_minute, 60.0, tuning.burst_of_amount, now)
        self._places = limits.in_flight
        self._asks: dict[Hashable, Ask] = {}
        #: For each task that waits for the budget: start of the wait, and estimate of the first call.
        self._waits: dict[Hashable, tuple[float, float]] = {}
        #: For each task: number of calls that it may have in flight, number that it could use, and time of its last
        #: request.
        self._held: dict[Hashable, int] = {}
        self._wanted: dict[Hashable, int] = {}
        self._seen: dict[Hashable, float] = {}

    def _granted(self, limit: float, period: float, burst: float, now: float) -> GrantedAmounts:
        # A grant counts from the start of its lease, and may be used until the end of the lease.
        return GrantedAmounts(limit, period + LEASE_SECONDS, burst, now, self.tuning.slot, self.tuning.rounding)

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for a lease."""
        return len(self._asks)

    def ask(self, task: Hashable, ask: Ask) -> None:
        """Register a task's request; credit its unused amounts and charge its debt."""
        with self._lock:
            now = self._clock()
            self._asks[task], self._seen[task] = ask, now
            if self._calls is not None:
                self._calls.give_back(ask.slot, ask.unused_calls)
            if self._amount is not None:
                for slot, amount in ask.unused:
                    self._amount.give_back(slot, amount)
                self._amount.owe(ask.debt, now)
                since, _ = self._waits.pop(task, (now, 0.0))
                if ask.calls:
                    self._waits[task] = since, ask.first
            if self._places is not None:
                self._held[task], self._wanted[task] = ask.held, ask.wanted
                for other in [one for one in self._held if self._seen[one] < now - self.tuning.silent]:
                    self._forget(other)

    def lease(self, task: Hashable, *, at_once: bool) -> Lease | None:
        """Return a lease for the task's last request, or None.

        None means that the limits allow no lease yet. With ``at_once``, the result is never None.
        """
        with self._lock:
            now, ask = self._clock(), self._asks[task]
            sharers = sum(one.calls > 0 for one in self._asks.values())
            places = self._place(task, ask)
            calls, amount, lacking = self._amounts(task, ask, sharers, now)
            if not calls and places <= ask.held and (ask.calls or ask.wanted > ask.held) and not at_once:
                return None
            del self._asks[task]
            if not lacking and self._places is not None and ask.wanted > places:
                lacking = "max_in_flight_job"
            return Lease(int(now / self.tuning.slot), calls, amount, places, lacking)

    def leave(self, task: Hashable) -> None:
        """Free the calls in flight of a disconnected task; the amounts of its lease count as used."""
        with self._lock:
            self._asks.pop(task, None)
            self._forget(task)

    def _forget(self, task: Hashable) -> None:
        for known in (self._held, self._wanted, self._seen, self._waits):
            known.pop(task, None)

    def _amounts(self, task: Hashable, ask: Ask, sharers: int, now: float) -> tuple[int, float, str]:
        """Return the granted calls, their amount, and the limiting factor.

        The ledger reserves budget for the first call of the longest-waiting task. Otherwise small calls by other
        tasks would use up the budget, and a large call would never start.
        """
        calls, amount = ask.calls, ask.amount
        if calls and self._amount is not None:
            # A task without recent requests has died or has lost its connection.
            current = [one for one in self._waits if self._seen[one] >= now - LEASE_SECONDS]
            longest = min(current or [task], key=lambda one: self._waits[one][0])
            since, first = self._waits[longest]
            reserved = 0.0 if longest == task else first
            credit_since = max(since, now - self._amount.seconds(first))
            amount = self._amount.grant(
                ask.amount, ask.first, sharers, now, reserved=reserved, credit_since=credit_since
            )
            if amount < ask.first:
                return 0, 0.0, "budget"
        if calls and self._calls is not None:
            calls = int(self._calls.grant(ask.calls, 1, sharers, now, whole=True))
            if not calls and self._amount is not None:
                self._amount.give_back(int(now / self.tuning.slot), amount)
        if calls:
            self._waits.pop(task, None)
        lacking = "rate_limit" if calls < ask.calls else "budget" if amount < ask.amount else ""
        return calls, amount if calls else 0.0, lacking

    def _place(self, task: Hashable, ask: Ask) -> int:
        """Return the number of calls that a task may have in flight.

        The number is the fair share, and never exceeds the number that the other tasks have reported as free.
        """
        if self._places is None:
            return 0
        fair = self._fair(task)
        if fair > ask.held:
            free = self._places - sum(self._held.values()) + self._held[task]
            fair = self._held[task] = max(ask.held, min(fair, free))
        # If a task's share has shrunk, other tasks can use the difference after this task reports its smaller
        # number.
        return fair

    def _fair(self, task: Hashable) -> int:
        """Return the max-min fair share of a task."""
        assert self._places is not None
        if task not in self._wanted:
            return 0
        return min(self._wanted[task], whole_shares(self._places, self._wanted, self._held)[task])


async def leased(ledger: Ledger, task: Hashable, ask: Ask) -> Lease:
    """Request a lease, and return it like :func:`granted`."""
    ledger.ask(task, ask)
    return await granted(ledger, task)


async def granted(ledger: Ledger, task: Hashable) -> Lease:
    """Return the lease for a task's request; after a fraction of a second, the lease may be empty."""
    clock = asyncio.get_running_loop().time
    tuning = ledger.tuning
    latest = clock() + tuning.max_wait
    while True:
        # Poll, because credit accrues with time, and because channels with other event loops share the ledger.
        lease = ledger.lease(task, at_once=clock() >= latest)
        if lease is not None:
            return lease
        await asyncio.sleep(min(tuning.max_wait, tuning.tick * max(1.0, ledger.waiting / tuning.tick_tasks)))
