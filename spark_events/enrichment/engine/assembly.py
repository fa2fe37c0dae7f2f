"""Puts the parts of a run together."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from spark_events.enrichment.engine.attempts import CallAttempts
from spark_events.enrichment.engine.breaker import DestinationBreaker
from spark_events.enrichment.engine.bulk import Accept, Groups, Misfit, accept_group, accept_one
from spark_events.enrichment.engine.calls import Call, Context
from spark_events.enrichment.engine.keys import HotKeys, KeyedQueues
from spark_events.enrichment.engine.limits import Gate, RateLimit
from spark_events.enrichment.engine.pool import Pool, Signals
from spark_events.enrichment.engine.process import Process
from spark_events.enrichment.engine.sharing import AnswerCache, Sharing
from spark_events.enrichment.engine.statistics import EngineCounts
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.signature import name_of

__all__ = ["Definition", "assemble"]


@dataclasses.dataclass(frozen=True, slots=True)
class Definition:
    """What of the worker process may be used again, as digests made on the driver.

    A function that comes out of a pickle is a new object in every task; these say that it is the same.

    Attributes:
        calls: of the function, its answers' schema and the resource: the key of the Retry-After gate, and with the rate
            the key of the rate limit, so that the attempts of tasks that follow each other here are counted together.
        answers: of that, and the names and types of the columns that make a request: the cache is kept
            by it. A request itself has values alone, of which 1, 1.0 and true are equal.
        resource: of the function that opens the resource: the open resource is kept by it.
        batch: of this run of this micro-batch: the circuit breaker is kept by it, so that the tasks that follow in
            this process need not find out again that the destination is down. A replay is another run.
    """

    calls: str
    answers: str
    resource: str
    batch: str


def assemble(
    plan: Plan,
    definition: Definition,
    process: Process,
    resource: Any,
    rate: float | None,
    began: float,
    counts: EngineCounts,
    hot: HotKeys,
    signals: Signals,
    misfit: Misfit | None,
) -> Pool:
    """The pool of one run, with all that the plan asks for; on the loop. Its task began at that moment."""
    limit = None
    if rate is not None:
        limit = process.rates.get((definition.calls, rate), lambda: RateLimit(rate))
        limit.begin(began)
    breaker = None
    if plan.circuit_breaker is not None:
        config = plan.circuit_breaker
        breaker = process.breakers.get(definition.batch, lambda: DestinationBreaker(config))
    attempts = CallAttempts(
        plan,
        _invoker(plan, resource),
        _acceptor(plan, misfit),
        process.gates.get(definition.calls, Gate),
        limit,
        breaker,
        counts,
    )
    pool = Pool(plan, name_of(plan.fn), attempts, counts, signals)
    if plan.key is not None:
        pool.feed = KeyedQueues(
            pool.settle_row, pool.look_at_store, skip_after_failure=plan.on_failure == "fail", hot=hot
        )
    elif plan.batch_size is not None:
        pool.feed = Groups(plan.batch_size, pool.look_at_store)
    if plan.coalesce_by is not None or plan.cache is not None:
        memory = cache = None
        if plan.coalesce_by is not None:
            # Bounded like the buffer: equal requests farther apart than that make another call.
            memory = AnswerCache(plan.buffer_rows, ttl=None, most_bytes=plan.buffer_bytes)
        if plan.cache is not None:
            kept = plan.cache
            cache = process.caches.get((definition.answers, kept), lambda: AnswerCache(kept.max_entries, kept.ttl))
        pool.sharing = Sharing(memory, cache, counts)
    return pool


def _invoker(plan: Plan, resource: Any) -> Callable[[Call], Awaitable[Any]]:
    fn = plan.fn
    if plan.wants_context and plan.batch_size is None:
        return lambda call: fn(call.batch.rows[call.index], Context(call, resource))
    if plan.wants_context:
        return lambda call: fn(call.argument(), Context(call, resource))
    if plan.batch_size is not None:
        return lambda call: fn(call.argument())
    # The shortest way for the most usual function.
    return lambda call: fn(call.batch.rows[call.index])


def _acceptor(plan: Plan, misfit: Misfit | None) -> Accept | None:
    if plan.cache is None and (plan.key is None or plan.on_failure != "fail"):
        # Nothing is decided by an answer before it goes out; there all are looked at together, which costs far less.
        misfit = None
    if plan.batch_size is not None:
        return accept_group(plan.retry, misfit)
    if misfit is not None or (plan.retry is not None and plan.retry.on_result is not None):
        return accept_one(plan.retry, misfit)
    return None
