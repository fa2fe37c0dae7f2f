"""Fixed pool of workers that store results by index.

A sliding window would stop at one slow call at its front. In this pool, a worker that has finished a row continues with
the next row, whatever the state of earlier rows. Only the buffer limits how far workers run ahead.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

from spark_events.enrichment.engine.attempts import CallAttempts
from spark_events.enrichment.engine.buffer import SAMPLE
from spark_events.enrichment.engine.calls import Call, GroupCall, RowBatch
from spark_events.enrichment.engine.deadlines import GRACE_SECONDS, PoolWorker, Slot, Sweeper
from spark_events.enrichment.engine.failure import ABANDONED, RowFailure, failure_of
from spark_events.enrichment.engine.feed import BLOCK, Feed, LowMark
from spark_events.enrichment.engine.occupancy import Occupancy
from spark_events.enrichment.engine.row_answers import RowAnswers
from spark_events.enrichment.engine.run import EngineRun

__all__ = ["Pool"]

_LOG = logging.getLogger(__name__)

#: Number of rows after which a worker yields to the loop. Calls that return immediately would never yield.
_TURN = 64
#: Time that a partial group waits for more rows if no other call is running, in seconds.
_LINGER_SECONDS = 0.05


class Pool:
    """Workers that make the calls of admitted batches and store the answers.

    Used by the loop's thread only. Workers exist only while there is work. They end when the feed has no call, or when
    the window has shrunk. New workers are created on demand, up to the size of the window.

    Args:
        run: the run that the workers belong to.
        feed: provides the next call.
        attempts: handles calls whose first attempt fails or must wait.
        settlement: stores the answers, and selects the rows that need a call.
        low: learns about admitted batches.

    Attributes:
        admitted: the number of admitted rows.
        occupancy: counts the time by the cause that limits the calls.
    """

    def __init__(
        self, run: EngineRun, feed: Feed, attempts: CallAttempts, settlement: RowAnswers, low: LowMark
    ) -> None:
        self.run = run
        self.feed = feed
        self.admitted = 0
        self.occupancy = Occupancy(run, attempts.admission)
        self._attempts = attempts
        self._settlement = settlement
        self._low = low
        self._window = attempts.window
        #: Number of workers that must end, because the window allows fewer workers.
        self._surplus = 0
        self._slots: set[Slot] = set()
        self._uncancellable: set[asyncio.Task[None]] = set()
        self._linger: asyncio.TimerHandle | None = None
        self._more: asyncio.Handle | None = None
        shortest = min(run.timeout, run.total)
        self._sweeper = Sweeper(
            self._slots, None if shortest == math.inf else shortest, self._abandon, self._beat, run.clock
        )
        run.on_resize(self._resized)
        if attempts.breaker is not None:
            attempts.breaker.add(self._down)

    def start(self) -> None:
        """Start watching deadlines."""
        self._sweeper.start()
        self.occupancy.start()
        self._window.begin(self.run.clock())
        if self._attempts.breaker is not None and self._attempts.breaker.down:
            self._down(self._attempts.breaker.down)

    def admit(self, batch: RowBatch) -> None:
        """Admit a batch and start workers for it."""
        if self.run.stopping:
            return
        indices = self._settlement.settle_early(batch)
        sharing = self._settlement.sharing
        if sharing is not None:
            indices = sharing.admit(batch, indices)
            if sharing.shared is not None:
                sharing.shared.look_up(batch, indices, self._looked_up)
                return
        self._call(batch, indices)

    def _looked_up(self, batch: RowBatch, found: dict[int, Any], indices: list[int]) -> None:
        """Store the answers that a shared cache has found, and make calls for the other rows."""
        sharing = self._settlement.sharing
        assert sharing is not None
        self.run.counts.cached += len(found)
        for index, answer in found.items():
            sharing.settle(batch, index, answer, is_new=False)
        if not self.run.stopping:
            self._call(batch, indices)

    def _call(self, batch: RowBatch, indices: list[int]) -> None:
        self.admitted += len(batch.rows)
        self.feed.add(batch, indices)
        self._low.rearm(self.feed.waiting)
        self._employ()

    def flush(self) -> None:
        """Start partial calls, because no further rows will arrive soon."""
        if not self.run.stopping:
            self.feed.flush()
            self._employ()

    def refuse(self, failure: RowFailure) -> None:
        """Make no further calls: cancel the calls in flight, and fail all other rows immediately."""
        self.run.refusal = failure
        now = self.run.clock()
        for slot in list(self._slots):
            slot.cancel("down", now)

    def _down(self, why: str) -> None:
        if self.run.refusal is None:
            self.refuse(RowFailure("circuit-open", "CircuitOpenError", why, retryable=True))

    async def stop(self) -> None:
        """Start no new call, cancel the calls in flight, and wait for a bounded time until they end."""
        is_over, self.run.stopping = not self.run.stopping, True
        sharing = self._settlement.sharing
        if sharing is not None and sharing.shared is not None:
            await sharing.shared.close(flush=is_over)
        self.occupancy.sample(len(self._slots))
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
                    self._attempts.admission.leave(slots[task])
                self.run.counts.abandoned += len(left)
                _LOG.warning(
                    "%s: %d calls did not end after cancellation; the task ends without them", self.run.name, len(left)
                )
        self._window.leave()

    def _beat(self) -> None:
        self.run.signals.beat()
        self._attempts.admission.note_answers()
        self.occupancy.sample(len(self._slots))
        window, share = self._window, self._attempts.admission.share
        window.is_idle |= len(self._slots) < window.size or not self._attempts.admission.gate.is_open
        try:
            if window.beat(
                self.run.clock(), self.run.counts.flying if share is None or not share.lacking else math.inf
            ):
                self._resized()
        except Exception as error:
            # Otherwise the error would end the heartbeat, and with it all timeouts.
            self.run.signals.on_defect(error)

    def _resized(self) -> None:
        """Start or end workers after a change of the window, and begin its next round."""
        if self.run.stopping:
            return
        self._surplus = max(0, len(self._slots) - self._window.size)
        self._window.begin(math.inf if self._surplus else self.run.clock())
        self._employ()

    def _left(self) -> None:
        """Replace a worker that has ended, if the window allows."""
        if self.run.stopping:
            return
        if self._surplus:
            self._surplus = max(0, len(self._slots) - self._window.size)
            if not self._surplus:
                self._window.begin(self.run.clock())
        self._employ()

    def _employ(self, least: int = 0) -> None:
        """Start workers for the waiting calls, but at least ``least``; a worker without a call ends by itself."""
        loop = asyncio.get_running_loop()
        wanted = min(self._window.size - len(self._slots), max(least, self.feed.waiting))
        # If calls return immediately, a few workers make all calls, so start the workers in groups.
        for _ in range(min(wanted, BLOCK)):
            slot = Slot()
            self._slots.add(slot)
            # Use different start values: if all workers yielded at the same time, their housekeeping would delay all
            # other calls.
            slot.task = worker = PoolWorker(self._serve(slot, len(self._slots) % _TURN), loop=loop)
            worker.slot = slot
            worker.add_done_callback(self._ended)
        if wanted > BLOCK:
            if self._more is None:
                self._more = loop.call_soon(self._employ_more)
        elif len(self._slots) < self._window.size:
            self._window.is_idle = True
        if self.feed.held and not self._slots and self._linger is None:
            self._linger = loop.call_later(_LINGER_SECONDS, self._lingered)

    def _employ_more(self) -> None:
        self._more = None
        if not self.run.stopping:
            # `waiting` omits the rest of an opened block.
            self._employ(self.feed.waiting + BLOCK)

    def _ended(self, worker: asyncio.Task[None]) -> None:
        """Replace a worker that user code cancelled before it began; such a worker could not free its slot."""
        assert isinstance(worker, PoolWorker)
        slot = worker.slot
        slot.task = None  # breaks a reference cycle
        if slot in self._slots:
            self._slots.discard(slot)
            self._left()

    def _lingered(self) -> None:
        self._linger = None
        if not self._slots:
            self.flush()

    async def _serve(self, slot: Slot, turn: int) -> None:
        # Hot path: names are local and small steps are inlined, because a function call is expensive here. `attempts`
        # handles calls whose first attempt fails.
        run, attempts, feed = self.run, self._attempts, self.feed
        plan, counts, clock = run.plan, run.counts, run.clock
        # Fast path: the most common kind of function, with the row as its only argument, is called directly.
        fn = plan.fn if run.is_direct else None
        # Fast path: if rows stay in order and share no calls, their results are stored directly, usually without a
        # function call.
        plain = not (plan.key or plan.batch_size or plan.coalesce_by or plan.cache)
        invoke, accept, breaker, admission = attempts.invoke, attempts.accept, attempts.breaker, attempts.admission
        limited, first = admission.rate is not None or admission.share is not None, min(run.timeout, run.total)
        take, timed, window = feed.take, counts.durations.append, self._window
        latencies, gate, allowed, quota = window.latencies, admission.gate, admission.allowed, admission.quota
        measured = False
        now = clock()
        try:
            while not run.stopping:
                taken = take()
                if taken is None:
                    window.is_idle = True
                    break
                batch, index, call, row = taken
                slot.batch, slot.index, slot.made = batch, index, call
                answer: Any = run.refusal
                if answer is None and (limited or not gate.is_open or allowed.limits or quota.limits):
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
                        answer = await (fn(row) if fn is not None else invoke(call or slot.call(row)))
                        if slot.grant is not None:
                            admission.spend(slot, answer)
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
                            if attempted >= window.since:
                                latencies.append(now - attempted)
                                if len(latencies) >= window.need and window.turn():
                                    self._resized()
                            if slot.passed or (breaker is not None and breaker.failures):
                                attempts.answered(slot)
                if answer is ABANDONED:
                    return
                if not plain or answer.__class__ is RowFailure:
                    self._settle(slot.call(), answer)
                elif measured and index % SAMPLE and batch.left > 1:
                    # This is RowBatch.settle, inlined for the case without notifications.
                    batch.answers[index] = answer
                    batch.left -= 1
                else:
                    batch.settle(index, answer)
                    measured = plan.ordered
                if self._surplus and run.refusal is None:
                    break
                turn += 1
                if turn == _TURN:
                    turn = 0
                    counts.fold()
                    await asyncio.sleep(0)
                    now = clock()
        except Exception as error:
            # End the run; otherwise the row would never receive an answer.
            self.run.signals.on_defect(error)
        finally:
            if not slot.abandoned:
                self._attempts.admission.leave(slot)
                self._slots.discard(slot)
                self._left()

    def _settle(self, call: Call, answer: Any, *, abandoned: bool = False) -> None:
        """Store the result of a call for each of its rows, and report the call's completion to the feed."""
        failure = answer if isinstance(answer, RowFailure) else None
        if isinstance(call, GroupCall):
            for batch, index, one in call.answers if failure is None else call.all_failed(failure):
                self._settlement.settle(batch, index, one)
        else:
            self._settlement.settle(call.batch, call.index, answer)
        self.feed.ended(call, failure, abandoned=abandoned)

    def _abandon(self, slot: Slot) -> None:
        """Settle and replace a call that did not end after its cancellation.

        Otherwise the call would occupy its slot forever.
        """
        call = slot.call()
        slot.abandoned = True
        self._slots.discard(slot)
        counts = self.run.counts
        counts.abandoned += 1
        counts.timeouts += slot.why == "timeout"
        counts.unreachable += 1
        counts.end(self.run.clock() - slot.attempted)
        self._attempts.admission.leave(slot)
        if slot.task is not None:
            self._uncancellable.add(slot.task)
            slot.task.add_done_callback(self._uncancellable.discard)
        elapsed = self.run.clock() - slot.started
        stubborn = f"{self.run.name} does not end after cancellation: it must not swallow CancelledError"
        if counts.abandoned == 1:
            _LOG.error("%s", stubborn)
        if slot.why == "timeout":
            message = f"no answer in time, and {stubborn}"
            failure = RowFailure("timeout", "TimeoutError", message, attempts=call.attempt, elapsed=elapsed)
        else:
            failure = failure_of(self.run.refused(), call.attempt, elapsed)
        self._settle(call, failure, abandoned=True)
        if len(self._uncancellable) > self._window.whole and self.run.refusal is None:
            # The number of running abandoned calls has reached its limit. Further calls would only harm the destination
            # and this process.
            why = f"given up: {len(self._uncancellable)} calls of {self.run.name} continue despite cancellation"
            self.refuse(RowFailure("timeout", "TimeoutError", f"{why}; it must not swallow CancelledError"))
        self._employ(1)
