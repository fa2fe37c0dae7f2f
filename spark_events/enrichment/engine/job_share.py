"""One task's share of the job's limits.

A :class:`Ledger`, on the driver or in this process, leases the share to the task.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from spark_events.enrichment.engine.calls import Call, GroupCall
from spark_events.enrichment.engine.failure import AttemptError, type_of
from spark_events.enrichment.engine.ledger import LEASE_SECONDS, Ask, JobLimits, Lease
from spark_events.enrichment.engine.limiter import Attempt, Permit
from spark_events.enrichment.engine.verdicts import Verdict
from spark_events.enrichment.settings import Budget

__all__ = ["Grant", "JobShare"]


@dataclasses.dataclass(frozen=True, slots=True)
class JobShareTuning:
    """Constants of a task's share.

    Attributes:
        collect_seconds: how long calls accumulate before a lease request.
        min_seconds: minimum time between two requests for amounts, so that a lease contains several calls if calls
            are frequent. The ledger's credit does not expire in this time.
        max_seconds: maximum time between two requests.
        max_slots: maximum number of time slots in one request; the next request contains the remaining slots.
        spare_ratio: fraction of its permitted calls in flight that a task keeps for its next calls.
    """

    collect_seconds: float = 0.005
    min_seconds: float = 0.05
    max_seconds: float = 1.0
    max_slots: int = 500
    spare_ratio: float = 0.125


class Grant(NamedTuple):
    """Permission for one attempt.

    ``costs`` contains the estimated cost of each row. The estimates count in ``slot``, the time slot of the lease.
    """

    slot: int
    costs: Sequence[float]


class JobShare:
    """Admission of one task's attempts within the job's limits.

    Used by the loop's thread only.

    Args:
        limits: the limits of the whole job.
        budget: estimates and usage; None: calls have no cost.
        clock: monotonic time in seconds.
        tuning: constants.

    Attributes:
        cause: the limit that delays calls, or ""; reported in the statistics.
        used: sum of the usage of answered attempts; the estimate replaces an unknown usage.
        problem: the reason why the usage of an answer is unknown, for the first such answer; "" if every usage is
            known.
    """

    #: A lease needs a round trip to the driver.
    limits, until, is_timed, min_wait = True, 0.0, False, 0.02

    def __init__(
        self,
        limits: JobLimits,
        budget: Budget | None,
        clock: Callable[[], float] = time.monotonic,
        tuning: JobShareTuning | None = None,
    ) -> None:
        self._tuning = tuning or JobShareTuning()
        self._limits = limits
        self._budget = budget
        self._clock = clock
        self._again: deque[tuple[asyncio.Future[Grant], Sequence[float]]] = deque()
        self._first: deque[tuple[asyncio.Future[Grant], Sequence[float]]] = deque()
        self._lease = Lease()
        self._expires = -math.inf
        self._in_flight = 0
        self._unused: dict[int, float] = {}
        self._debt = 0.0
        self._news = asyncio.Event()
        self.cause = ""
        self.used = 0.0
        self.problem = ""

    def cost_of(self, call: Call) -> Sequence[float]:
        """Return the estimates for the rows of a call; an empty sequence if calls have no cost.

        Raises:
            ValueError: when the user's function returns an invalid value, or a number above the whole budget.
        """
        if self._budget is None:
            return ()
        costs = [self._budget.cost(batch.rows[index]) for batch, index in call.positions()]
        cost = sum(costs)
        if not 0 <= cost < math.inf:
            raise ValueError(f"Budget.cost returned {cost!r}; allowed: a finite number, 0 or more")
        if cost > self._budget.per_minute:
            raise ValueError(
                f"Budget.cost is {cost:,g} for one call, above Budget.per_minute={self._budget.per_minute:,g}, so the "
                "call can never start; make the call smaller, or raise the budget"
            )
        return [float(one) for one in costs]

    async def enter(self, attempt: Attempt) -> Permit:
        """Wait until the job's limits admit the attempt.

        Raises:
            AttemptError: when the estimate of the cost is invalid.
        """
        call = attempt.call()
        try:
            costs = self.cost_of(call)
        except Exception as error:
            raise AttemptError(error, Verdict(retryable=False)) from error
        return _Granted(self, await self.wait(costs, again=attempt.overtakes), several=isinstance(call, GroupCall))

    async def wait(self, costs: Sequence[float], *, again: bool) -> Grant:
        """Wait until an attempt may start; retries have priority over first attempts.

        ``costs`` is the result of :meth:`cost_of`.
        """
        if not (self._again or self._first) and self._admits(costs):
            return self._take(costs)
        waiting: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        (self._again if again else self._first).append((waiting, costs))
        self._news.set()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                # The attempt was admitted and cancelled at the same time.
                self.give_back(waiting.result())
            raise

    def give_back(self, grant: Grant) -> None:
        """Release the permission for an attempt that has not started."""
        self._correct(grant, 0.0)
        self.ended()

    def ended(self) -> None:
        """Record that an attempt is no longer in flight."""
        self._in_flight -= 1
        self._serve()
        if not (self._again or self._first) and self._limits.in_flight is not None and self._has_spare_places():
            self._news.set()

    def _has_spare_places(self) -> bool:
        """Return whether the task should give back some of its permitted calls in flight.

        The task keeps a few unused permissions for its next calls.
        """
        places = self._lease.places
        return places - self._in_flight > int(places * self._tuning.spare_ratio) or not self._in_flight

    def spent(self, grant: Grant, answer: Any, *, several: bool) -> None:
        """Count the usage of an answered attempt.

        Usage below the estimate is returned to the ledger; usage above the estimate is a debt. A failed row of a
        multi-row call has no known usage, so its estimate counts.

        Args:
            grant: the permission of the attempt.
            answer: the result that the function returned.
            several: whether ``answer`` is a list with one result per row.
        """
        budget, used = self._budget, sum(grant.costs)
        if budget is None:
            return
        parts = answer if several and isinstance(answer, Sequence) else (answer,)
        # A call whose answer has the wrong number of results fails, so its estimate counts.
        if budget.usage is not None and len(parts) == len(grant.costs):
            try:
                rows = zip(parts, grant.costs, strict=True)
                used = float(sum(cost if isinstance(one, BaseException) else budget.usage(one) for one, cost in rows))
                if not 0 <= used < math.inf:
                    raise ValueError(f"{used!r} is not a finite number of 0 or more")
            except Exception as error:
                used = sum(grant.costs)
                self.problem = self.problem or f"{type_of(error)}: {error}"
        self.used += used
        self._correct(grant, used)

    def _correct(self, grant: Grant, used: float) -> None:
        cost = sum(grant.costs)
        if used < cost:
            self._unused[grant.slot] = self._unused.get(grant.slot, 0.0) + cost - used
        self._debt += max(0.0, used - cost)

    def _admits(self, costs: Sequence[float]) -> bool:
        lease, limits = self._lease, self._limits
        if limits.in_flight is not None and self._in_flight >= lease.places:
            return False
        if limits.calls_per_second is None and limits.amount_per_minute is None:
            return True
        # The sums are rounded, so a missing fraction of a token must not block a call.
        return lease.calls >= 1 and lease.amount * (1 + 1e-9) >= sum(costs) and self._clock() < self._expires

    def _take(self, costs: Sequence[float]) -> Grant:
        lease = self._lease
        self._lease = lease._replace(calls=lease.calls - 1, amount=max(0.0, lease.amount - sum(costs)))
        self._in_flight += 1
        return Grant(lease.slot, costs)

    def _serve(self) -> None:
        """Admit waiting attempts, as far as the lease allows."""
        while queue := self._again or self._first:
            waiting, costs = queue[0]
            if not waiting.done():
                if not self._admits(costs):
                    return
                waiting.set_result(self._take(costs))
            queue.popleft()

    async def run(self, lease_for: Callable[[Ask], Awaitable[Lease]]) -> None:
        """Request leases while calls wait, and return unused amounts; run until cancelled."""
        try:
            await self._run(lease_for)
        except Exception as error:
            # If the ledger raises an error, fail the waiting calls; otherwise they would wait forever.
            for waiting, _ in (*self._again, *self._first):
                if not waiting.done():
                    waiting.set_exception(error)
            raise

    async def _run(self, lease_for: Callable[[Ask], Awaitable[Lease]]) -> None:
        while True:
            self._news.clear()
            asked = self._clock()
            # The ledger grants the lease after `asked`. Therefore the lease expires here no later than in the ledger.
            self._lease, self._expires = await lease_for(self.ask()), asked + LEASE_SECONDS
            self.cause = self._lease.lacking
            self._serve()
            if not (self._again or self._first):
                try:
                    await asyncio.wait_for(self._news.wait(), self._tuning.max_seconds)
                except asyncio.TimeoutError:
                    continue
            # Calls in flight are free again after each call, and other tasks wait for them.
            least = 0.0 if self._limits.in_flight is not None else asked + self._tuning.min_seconds - self._clock()
            await asyncio.sleep(max(self._tuning.collect_seconds, least))

    def ask(self, *, is_last: bool = False) -> Ask:
        """Return the next request, which also returns the unused part of the current lease.

        With ``is_last``, the request asks for no new lease.
        """
        lease, limits = self._lease, self._limits
        self._lease = lease._replace(calls=0, amount=0.0)
        if limits.amount_per_minute is not None and lease.amount:
            self._unused[lease.slot] = self._unused.get(lease.slot, 0.0) + lease.amount
        unused = tuple(self._unused.items())[: self._tuning.max_slots]
        for slot, _ in unused:
            del self._unused[slot]
        debt, self._debt = self._debt, 0.0
        held = max(lease.places, self._in_flight)
        queues = () if is_last else (self._again, self._first)
        costs = [sum(of_rows) for queue in queues for waiting, of_rows in queue if not waiting.done()]
        wanted = 0 if is_last else self._in_flight + len(costs)
        if not is_last and not self._has_spare_places():
            wanted = max(wanted, lease.places)
        if limits.in_flight is not None:
            costs = costs[: max(0, lease.places - self._in_flight)]
        first = costs[0] if costs else 0.0
        return Ask(len(costs), sum(costs), first, held, wanted, lease.slot, lease.calls, unused, debt)


class _Granted(Permit):
    """Permission of an attempt that the job's limits have admitted."""

    __slots__ = ("_grant", "_several", "_share")

    def __init__(self, share: JobShare, grant: Grant, *, several: bool) -> None:
        self._share = share
        self._grant = grant
        self._several = several

    def spend(self, answer: Any) -> None:
        self._share.spent(self._grant, answer, several=self._several)

    def end(self, *, answered: bool) -> None:
        self._share.ended()

    def give_back(self) -> None:
        self._share.give_back(self._grant)
