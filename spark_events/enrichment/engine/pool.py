"""A fixed pool of workers that write their results by index.

Not a sliding window: there, one slow call in front stops all that come behind it. Here a worker that is done takes the
next row, whatever became of the earlier ones; only the buffer bounds how far it may get ahead.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import time
from collections.abc import Callable
from typing import Any

from spark_events.enrichment.engine.attempts import CallAttempts
from spark_events.enrichment.engine.buffer import SAMPLE
from spark_events.enrichment.engine.calls import Call, GroupCall, RowBatch
from spark_events.enrichment.engine.deadlines import GRACE_SECONDS, PoolWorker, Slot, Sweeper
from spark_events.enrichment.engine.failure import ABANDONED, RowFailure, failure_of
from spark_events.enrichment.engine.feed import Feed, InOrder
from spark_events.enrichment.engine.sharing import Sharing
from spark_events.enrichment.engine.statistics import EngineCounts
from spark_events.enrichment.plan import Plan

__all__ = ["Pool", "Signals"]

_LOG = logging.getLogger(__name__)

#: Calls that answer at once never give the loop back; so many of them in a row, and the worker does.
_TURN = 64
#: A group that is not full waits so long for more rows when nothing else is going on.
_LINGER_SECONDS = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Signals:
    """What a pool tells its surroundings.

    Attributes:
        low: so few calls waiting are news.
        on_low: there are no more than that; said once for each batch.
        beat: the loop turns.
        on_defect: an error of the engine itself, which must end the run.
    """

    low: int
    on_low: Callable[[], None]
    beat: Callable[[], None]
    on_defect: Callable[[BaseException], None]


class Pool:
    """Takes batches, calls what they need, and settles them; for the loop's thread alone.

    Workers exist while there is something to do: they end when the feed has nothing for them, and are made anew, at
    most ``max_in_flight``.

    Args:
        plan: how many at a time, and their times.
        name: of the function, for messages.
        attempts: for calls that do not work at once.
        counts: where everything is counted.
        signals: whom to tell what.

    Attributes:
        feed: which call comes next.
        sharing: which rows need none; None: all do.
        stopping: no call begins any more.
        admitted: rows that were taken in.
    """

    def __init__(self, plan: Plan, name: str, attempts: CallAttempts, counts: EngineCounts, signals: Signals) -> None:
        self.feed: Feed = InOrder(self.look_at_store)
        self.sharing: Sharing | None = None
        self.stopping = False
        self.admitted = 0
        self._width = plan.max_in_flight
        self._name = name
        self._attempts = attempts
        self._counts = counts
        self._signals = signals
        attempts.stopping = lambda: self.stopping
        if attempts.breaker is not None:
            attempts.breaker.add(self._down)
        # The most usual function, of a row alone, is called without a detour.
        self._fn = plan.fn if plan.batch_size is None and not plan.wants_context else None
        # Rows in order and without sharing are settled where they are; the rest takes the long way.
        self._plain = not (plan.key or plan.batch_size or plan.coalesce_by or plan.cache)
        times = [one for one in (plan.timeout, plan.total_timeout) if one is not None]
        self._first = min(times, default=math.inf)
        self._slots: set[Slot] = set()
        self._told_low = False
        self._lost: set[asyncio.Task[None]] = set()
        self._linger: asyncio.TimerHandle | None = None
        self._sweeper = Sweeper(self._slots, min(times, default=None), self._abandon, signals.beat)

    def start(self) -> None:
        """Begins to watch deadlines."""
        self._sweeper.start()
        if self._attempts.breaker is not None and self._attempts.breaker.down:
            self._down(self._attempts.breaker.down)

    def admit(self, batch: RowBatch) -> None:
        """Takes a batch in, and puts workers to it."""
        if self.stopping:
            return
        self.admitted += len(batch.rows)
        known = batch.chunk.known
        indices = list(range(len(batch.rows)))
        if known:
            self._counts.known += len(known)
            indices = [index for index in indices if index not in known]
            for index, answer in known.items():
                batch.settle(index, answer)
        failed = batch.chunk.failed
        if failed:
            indices = [index for index in indices if index not in failed]
            for index, failure in failed.items():
                self._counts.failed(failure)
                batch.settle(index, failure)
        if self.sharing is not None:
            indices = self.sharing.admit(batch, indices)
        self.feed.add(batch, indices)
        self._told_low = False
        self.look_at_store()
        self._employ()

    def flush(self) -> None:
        """Nothing more will come for a while."""
        if not self.stopping:
            self.feed.flush()
            self._employ()

    def refuse(self, failure: RowFailure) -> None:
        """No call is worth making any more: those in flight are ended, the others fail at once."""
        self._attempts.refusal = failure
        now = time.monotonic()
        for slot in list(self._slots):
            slot.cancel("down", now)

    def _down(self, why: str) -> None:
        if self._attempts.refusal is None:
            self.refuse(RowFailure("circuit-open", "CircuitOpenError", why, retryable=True))

    async def stop(self) -> None:
        """Starts nothing new, cancels what is in flight, and waits for it to unwind, a bounded time."""
        self.stopping = True
        self._sweeper.stop()
        if self._attempts.breaker is not None:
            self._attempts.breaker.remove(self._down)
        if self._linger is not None:
            self._linger.cancel()
        slots = {slot.task: slot for slot in self._slots if slot.task is not None}
        for task in slots:
            task.cancel()
        if slots:
            _, left = await asyncio.wait(slots, timeout=GRACE_SECONDS)
            if left:
                for task in left:
                    self._attempts.leave(slots[task])
                self._counts.abandoned += len(left)
                _LOG.warning(
                    "%s: %d calls did not end when they were cancelled; nobody waits for them", self._name, len(left)
                )

    def look_at_store(self) -> None:
        """Says so, once for each batch, when few calls are waiting."""
        if not self._told_low and self.feed.waiting <= self._signals.low:
            self._told_low = True
            self._signals.on_low()

    def _employ(self, least: int = 0) -> None:
        """Puts as many workers to work as there are calls, or ``least``: one that finds nothing ends by itself."""
        loop = asyncio.get_running_loop()
        for _ in range(min(self._width - len(self._slots), max(least, self.feed.waiting))):
            slot = Slot()
            self._slots.add(slot)
            # Workers that all do the same are not to reach the end of their turns together: what each does then would
            # hold up the calls of all others.
            slot.task = worker = PoolWorker(self._serve(slot, len(self._slots) % _TURN), loop=loop)
            worker.slot = slot
            worker.add_done_callback(self._gone)
        if self.feed.held and not self._slots and self._linger is None:
            self._linger = loop.call_later(_LINGER_SECONDS, self._lingered)

    def _gone(self, worker: asyncio.Task[None]) -> None:
        """A worker that somebody has cancelled before it could begin had no chance to make room for another."""
        assert isinstance(worker, PoolWorker)
        slot = worker.slot
        slot.task = None  # else each would keep the other
        if slot in self._slots:
            self._slots.discard(slot)
            if not self.stopping:
                self._employ()

    def _lingered(self) -> None:
        self._linger = None
        if not self._slots:
            self.flush()

    async def _serve(self, slot: Slot, turn: int) -> None:
        # The loop that a call's cost is measured in: names are local and small steps are written out, since at this
        # scale a function call is what is dear. What does not work at once goes to `attempts`.
        attempts, counts, feed, fn, clock = self._attempts, self._counts, self.feed, self._fn, time.monotonic
        invoke, accept, gate, breaker = attempts.invoke, attempts.accept, attempts.gate, attempts.breaker
        limited, plain, first = attempts.rate is not None, self._plain, self._first
        take, timed = feed.take, counts.durations.append
        measured = False
        now = clock()
        try:
            while not self.stopping and (taken := take()) is not None:
                slot.batch, slot.index, slot.made = batch, index, call = taken
                answer: Any = attempts.refusal
                if answer is None and (limited or not gate.is_open):
                    answer = await attempts.begin(slot)
                    now = clock()
                elif answer is None:
                    slot.started = now
                    slot.deadline = now + first
                if answer is None:
                    slot.attempted = now
                    counts.waited += now - batch.admitted
                    counts.begun += 1
                    counts.flying = flying = counts.flying + 1
                    if flying > counts.peak:
                        counts.peak = flying
                    try:
                        answer = await (fn(batch.rows[index]) if fn is not None else invoke(call or slot.call()))
                        if slot.cancelled and slot.why is None:
                            await attempts.heed(slot)
                        if accept is not None and slot.why is None:
                            answer = accept(slot.call(), answer, slot.started)
                    except BaseException as error:
                        answer = await attempts.after(slot, slot.call(), error)
                        now = clock()
                    else:
                        if slot.why is not None:
                            answer = await attempts.after(slot, slot.call(), None)
                            now = clock()
                        else:
                            slot.deadline = math.inf
                            attempted, now = now, clock()
                            counts.flying -= 1
                            timed(now - attempted)
                            if slot.passed or (breaker is not None and breaker.failures):
                                attempts.answered(slot)
                if answer is ABANDONED:
                    return
                if not plain or answer.__class__ is RowFailure:
                    self._settle(slot.call(), answer)
                elif measured and index % SAMPLE and batch.left > 1:
                    # What Batch.settle does where nobody is to be told.
                    batch.answers[index] = answer
                    batch.left -= 1
                else:
                    batch.settle(index, answer)
                    measured = True
                turn += 1
                if turn == _TURN:
                    turn = 0
                    counts.fold()
                    await asyncio.sleep(0)
                    now = clock()
        except Exception as error:
            # A row without an answer would be waited for for ever.
            self._signals.on_defect(error)
        finally:
            if not slot.abandoned:
                self._attempts.leave(slot)
                self._slots.discard(slot)
                if not self.stopping:
                    self._employ()

    def _settle(self, call: Call, answer: Any, *, abandoned: bool = False) -> None:
        """Writes what became of a call for each of its rows, and lets the feed know."""
        failure = answer if isinstance(answer, RowFailure) else None
        if isinstance(call, GroupCall):
            for batch, index, one in call.answers if failure is None else call.all_failed(failure):
                self.settle_row(batch, index, one)
        else:
            self.settle_row(call.batch, call.index, answer)
        self.feed.ended(call, failure, abandoned=abandoned)

    def settle_row(self, batch: RowBatch, index: int, answer: Any) -> None:
        """Writes what became of a row, and of those that share its answer."""
        if isinstance(answer, RowFailure):
            self._counts.failed(answer)
        if self.sharing is not None:
            self.sharing.settle(batch, index, answer)
        else:
            batch.settle(index, answer)

    def _abandon(self, slot: Slot) -> None:
        """A call that does not end when it is cancelled must not hold a place for ever."""
        call = slot.call()
        slot.abandoned = True
        self._slots.discard(slot)
        counts = self._counts
        counts.abandoned += 1
        counts.timeouts += slot.why == "timeout"
        counts.end(time.monotonic() - slot.attempted)
        self._attempts.leave(slot)
        if slot.task is not None:
            self._lost.add(slot.task)
            slot.task.add_done_callback(self._lost.discard)
        elapsed = time.monotonic() - slot.started
        stubborn = f"{self._name} does not end when it is cancelled: it must not swallow CancelledError"
        if counts.abandoned == 1:
            _LOG.error("%s", stubborn)
        if slot.why == "timeout":
            message = f"no answer in time, and {stubborn}"
            failure = RowFailure("timeout", "TimeoutError", message, attempts=call.attempt, elapsed=elapsed)
        else:
            failure = failure_of(self._attempts.refused(), call.attempt, elapsed)
        self._settle(call, failure, abandoned=True)
        if len(self._lost) > self._width and self._attempts.refusal is None:
            # As many calls run unseen as may run at all: more of them would only hurt the destination and this process.
            why = f"given up: {len(self._lost)} calls of {self._name} run on although they were cancelled"
            self.refuse(RowFailure("timeout", "TimeoutError", f"{why}; it must not swallow CancelledError"))
        self._employ(1)
