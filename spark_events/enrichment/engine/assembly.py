"""Creation of a run's pool from the plan."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from spark_events._version import __version__
from spark_events.enrichment.engine.admission import Admission
from spark_events.enrichment.engine.allowed_rate import AllowedRate
from spark_events.enrichment.engine.attempts import CallAttempts
from spark_events.enrichment.engine.breaker import DestinationBreaker
from spark_events.enrichment.engine.bulk import Accept, Groups, Misfit, accept_group, accept_one, checked
from spark_events.enrichment.engine.calls import Call, Context
from spark_events.enrichment.engine.feed import Feed, InOrder, LowMark
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.keys import HotKeys, KeyedQueues
from spark_events.enrichment.engine.limits import Gate, RateLimit
from spark_events.enrichment.engine.models import converter
from spark_events.enrichment.engine.pool import Pool
from spark_events.enrichment.engine.process import Process
from spark_events.enrichment.engine.quota import ReportedQuota
from spark_events.enrichment.engine.row_answers import RowAnswers
from spark_events.enrichment.engine.run import EngineRun, Signals
from spark_events.enrichment.engine.shared_cache import Codec, Pause, SharedCache
from spark_events.enrichment.engine.shared_window import SharedWindow
from spark_events.enrichment.engine.sharing import AnswerCache, Sharing
from spark_events.enrichment.engine.statistics import EngineCounts
from spark_events.enrichment.engine.window import Window
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Auto

__all__ = ["Definition", "assemble"]


@dataclasses.dataclass(frozen=True, slots=True)
class Definition:
    """Digests, computed on the driver, that identify reusable state of the worker process.

    Unpickling creates a new function object in every task, so functions are compared by these digests.

    Attributes:
        calls: digest of the function, the schema of its answers and the resource. It is the key of the Retry-After
            gate, of the allowed rate, of the reported quota, and of the rate limit with the rate: consecutive tasks of
            this process share them. All tasks of the executor share the window; its key is this digest with the
            smallest and the largest size.
        answers: digest of ``calls`` and of the names and types of the request columns. It is the key of the cache. The
            types are needed because a request contains only values, and 1, 1.0 and true are equal.
        resource: digest of the function that opens the resource; the key under which the open resource is stored.
        batch: identity of this run of this micro-batch, different in a replay. It is the key of the circuit breaker, so
            that later tasks of this process know that the destination is down.
        stored: like ``answers``, but a digest of the names of functions instead of their code, and therefore the same
            in every driver process. It is part of the keys of a shared cache.
    """

    calls: str
    answers: str
    resource: str
    batch: str
    stored: str = ""


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
    clock: Callable[[], float] = time.monotonic,
    share: JobShare | None = None,
    codec: Callable[[], Codec] | None = None,
) -> Pool:
    """Create the pool of one run; must run on the loop.

    ``began`` is the time at which the task began; ``codec`` is used only for a shared cache.
    """
    limit = None
    if rate is not None:
        limit = process.rates.get((definition.calls, rate), lambda: RateLimit(rate, clock))
        limit.begin(began)
    breaker = None
    if plan.circuit_breaker is not None:
        config = plan.circuit_breaker
        breaker = process.breakers.get(definition.batch, lambda: DestinationBreaker(config, clock))
    bounds = plan.executor_window
    quota = process.quotas.get(definition.calls, lambda: ReportedQuota(clock))
    run = EngineRun(plan, counts, signals, clock)
    admission = Admission(
        run,
        process.gates.get(definition.calls, lambda: Gate(clock)),
        limit,
        process.allowed.get(definition.calls, lambda: AllowedRate(clock)),
        quota,
        process.windows.get(
            (definition.calls, bounds.min, bounds.max), lambda: _window(bounds, definition, process, clock)
        ),
        share,
    )
    invoke, accept = _invoker(plan, resource, quota), _acceptor(plan, misfit)
    attempts = CallAttempts(run, invoke, accept, admission, breaker)
    settlement = RowAnswers(counts, _sharing(run, definition, process, codec))
    low = LowMark(signals.low, signals.on_low)
    feed: Feed = InOrder(low.look)
    if plan.key is not None:
        feed = KeyedQueues(settlement.settle, low.look, skip_after_failure=plan.on_failure == "fail", hot=hot)
    elif plan.batch_size is not None:
        feed = Groups(plan.batch_size, low.look)
    return Pool(run, feed, attempts, settlement, low)


def _sharing(
    run: EngineRun, definition: Definition, process: Process, codec: Callable[[], Codec] | None
) -> Sharing | None:
    """Return what shares answers between rows; None if the plan shares none."""
    plan, counts = run.plan, run.counts
    if plan.coalesce_by is None and plan.cache is None:
        return None
    memory = cache = shared = None
    if plan.coalesce_by is not None:
        # Keep at most as many answers as the buffer has rows. Equal requests that are further apart cause another call.
        memory = AnswerCache(plan.buffer_rows, ttl=None, most_bytes=plan.buffer_bytes)
    kept = plan.cache
    if kept is not None and kept.store is None:
        cache = process.caches.get((definition.answers, kept), lambda: AnswerCache(kept.max_entries, kept.ttl))
    if kept is not None and kept.store is not None and codec is not None:
        pause = process.store_pauses.get(kept.store, Pause)
        shared = SharedCache(kept, definition.stored, codec, process.resources, pause, counts, run.clock)
    return Sharing(memory, cache, counts, shared)


def _window(
    bounds: Auto, definition: Definition, process: Process, clock: Callable[[], float]
) -> Window | SharedWindow:
    if process.directory is None or bounds.min == bounds.max:
        return Window(bounds)
    # The name excludes the first size, which changes with the number of executors.
    name = hashlib.sha256(repr((__version__, definition.calls, bounds.min, bounds.max)).encode()).hexdigest()[:32]
    path = process.directory / f"spark-events-window-{name}"
    try:
        return SharedWindow(bounds, path, clock)
    except OSError as error:
        process.warn_once(
            f"max_in_flight: cannot use {path} ({type(error).__name__}: {error}); each task of this executor adapts "
            "its own number of calls in flight, so the total may be higher: check that spark.local.dir supports flock"
        )
        return Window(bounds)


def _invoker(plan: Plan, resource: Any, quota: ReportedQuota) -> Callable[[Call], Awaitable[Any]]:
    fn = plan.fn
    if plan.wants_context:

        async def with_context(call: Call) -> Any:
            context = Context(call, resource, quota)
            try:
                return await fn(call.argument(), context)
            finally:
                quota.end(call.number)

        return with_context
    return lambda call: fn(call.argument())


def _acceptor(plan: Plan, misfit: Misfit | None) -> Accept | None:
    on_invalid = plan.retry is not None and plan.retry.on_invalid
    if plan.cache is None and not on_invalid and (plan.key is None or plan.on_failure != "fail"):
        # No decision depends on this answer before it is returned, and checking all answers together is much cheaper.
        misfit = None
    convert = converter(plan.model)
    if plan.batch_size is not None:
        return accept_group(plan.retry, checked(convert, misfit))
    if convert is not None or misfit is not None or (plan.retry is not None and plan.retry.on_result is not None):
        return accept_one(plan.retry, checked(convert, misfit))
    return None
