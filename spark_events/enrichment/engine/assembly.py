"""Creation of a run's pool from the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from spark_events.enrichment.engine.admission import Admission
from spark_events.enrichment.engine.allowed_rate import AllowedRate
from spark_events.enrichment.engine.attempts import CallAttempts
from spark_events.enrichment.engine.breaker import DestinationBreaker
from spark_events.enrichment.engine.bulk import Accept, Groups, accept_group, accept_one, checked
from spark_events.enrichment.engine.feed import Feed, InOrder, LowMark
from spark_events.enrichment.engine.feedback import DestinationState, Feedback
from spark_events.enrichment.engine.gate import Gate
from spark_events.enrichment.engine.invoke import Invoke
from spark_events.enrichment.engine.keys import KeyedQueues
from spark_events.enrichment.engine.limiter import Limiter
from spark_events.enrichment.engine.models import converter
from spark_events.enrichment.engine.places import Places
from spark_events.enrichment.engine.pool import Pool
from spark_events.enrichment.engine.quota import ReportedQuota
from spark_events.enrichment.engine.row_answers import RowAnswers
from spark_events.enrichment.engine.run import EngineRun
from spark_events.enrichment.engine.sharing import AnswerCache, Sharing
from spark_events.enrichment.engine.tuning import EngineTuning
from spark_events.enrichment.engine.window import Window

__all__ = ["assemble", "limiters"]


def assemble(run: EngineRun, resource: Any) -> Pool:
    """Create the pool of one run, with the open resource of its plan; must run on the loop."""
    plan, signals = run.plan, run.signals
    destination = _destination(run)
    invoke = Invoke(plan, resource, destination.quota)
    admission = Admission(run, tuple(limiters(run, destination)), destination.window)
    places = Places(destination.window, plan.window.max, run.tuning.back_off.busy_jitter)
    attempts = CallAttempts(run, invoke, _acceptor(run), admission, Feedback(run, destination), places)
    settlement = RowAnswers(run.counts, _sharing(run))
    low = LowMark(signals.low, signals.on_low)
    feed: Feed = InOrder(low.look, run.tuning.pool.block_rows)
    if plan.key is not None:
        feed = KeyedQueues(settlement.settle, low.look, skip_after_failure=plan.on_failure == "fail", hot=run.hot)
    elif plan.batch_size is not None:
        feed = Groups(plan.batch_size, low.look)
    return Pool(run, feed, attempts, settlement, low)


def _destination(run: EngineRun) -> DestinationState:
    """Return the state of the destination, which the process keeps between runs."""
    process, definition, tuning, clock = run.process, run.inputs.definition, run.tuning, run.clock
    breaker, config = None, run.plan.circuit_breaker
    if config is not None:
        breaker = process.breakers.get(
            definition.batch, lambda: DestinationBreaker(config, clock, tuning.circuit_breaker)
        )
    bounds, shared = run.plan.task_window, run.inputs.shared
    window = (shared and shared.window) or process.windows.get(
        (definition.calls, bounds.min, bounds.max), lambda: Window(bounds, tuning.window)
    )
    return DestinationState(
        process.gates.get(definition.calls, lambda: Gate(clock)),
        shared.quota
        if shared
        else process.quotas.get(definition.calls, lambda: ReportedQuota(clock, tuning=tuning.quota)),
        shared.rate if shared else process.allowed.get(definition.calls, lambda: _alone(clock, tuning)),
        window,
        breaker,
    )


def _alone(clock: Callable[[], float], tuning: EngineTuning) -> AllowedRate:
    rate = AllowedRate(clock, tuning.allowed_rate)
    rate.go_alone()
    return rate


def limiters(run: EngineRun, destination: DestinationState) -> Iterator[Limiter]:
    """Yield what may delay an attempt, in the order in which an attempt asks for permission."""
    yield destination.gate
    yield destination.quota
    yield destination.allowed
    if run.inputs.share is not None:
        yield run.inputs.share


def _sharing(run: EngineRun) -> Sharing | None:
    """Return what shares answers between rows; None if the plan shares none."""
    process, plan = run.process, run.plan
    if plan.coalesce_by is None and plan.cache is None:
        return None
    memory = cache = None
    if plan.coalesce_by is not None:
        # Keep at most as many answers as the buffer has rows. Equal requests that are further apart cause another call.
        memory = AnswerCache(plan.buffer_rows, ttl=None, most_bytes=plan.buffer_bytes)
    kept = plan.cache
    if kept is not None:
        key = (run.inputs.definition.answers, kept)
        cache = process.caches.get(key, lambda: AnswerCache(kept.max_entries, kept.ttl))
    return Sharing(memory, cache, run.counts)


def _acceptor(run: EngineRun) -> Accept | None:
    plan, misfit = run.plan, run.inputs.misfit
    on_invalid = plan.retry is not None and plan.retry.on_invalid
    if plan.cache is None and not on_invalid and (plan.key is None or plan.on_failure != "fail"):
        # No decision depends on this answer before it is returned, and checking all answers together is much cheaper.
        misfit = None
    convert = converter(plan.model)
    if plan.batch_size is not None:
        return accept_group(plan.retry, checked(convert, misfit), run.clock)
    if convert is not None or misfit is not None or (plan.retry is not None and plan.retry.on_result is not None):
        return accept_one(plan.retry, checked(convert, misfit))
    return None
