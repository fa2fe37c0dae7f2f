"""Pool of runners, the asyncio tasks that make the calls and store the answers by index.

A sliding window would stop at one slow call at its front. In this pool, a runner that has finished a row continues with
the next row, whatever the state of earlier rows. Only the buffer limits how far runners run ahead.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

from spark_events.enrichment.engine.attempts import CallAttempts
from spark_events.enrichment.engine.calls import Call, GroupCall, RowBatch
from spark_events.enrichment.engine.failure import ABANDONED, RowFailure, failure_of
from spark_events.enrichment.engine.feed import Feed, LowMark
from spark_events.enrichment.engine.occupancy import Occupancy
from spark_events.enrichment.engine.row_answers import RowAnswers
from spark_events.enrichment.engine.run import EngineRun
from spark_events.enrichment.engine.shared_window import SharedWindow
from spark_events.enrichment.engine.timeouts import Runner, RunnerTask, Sweeper

__all__ = ["Pool"]

_LOG = logging.getLogger(__name__)


class Pool:
    """Runners that make the calls of admitted batches and store the answers.

    Used by the loop's thread only. Runners exist only while there is work. They end when the feed has no call, or when
    the window has shrunk. New runners are created on demand, up to the size of the window.

    Args:
        run: the run that the runners belong to.
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
        destination = attempts.feedback.destination
        self.occupancy = Occupancy(run, attempts.admission, destination.window)
        self._attempts = attempts
        self._settlement = settlement
        self._low = low
        self._window = destination.window
        self._breaker = destination.breaker
        self._places = attempts.places
        #: Whether more calls are in flight than a smaller window allows.
        self._shrinks = False
        self._uncancellable: set[asyncio.Task[None]] = set()
        self._linger: asyncio.TimerHandle | None = None
        self._more: asyncio.Handle | None = None
        shortest = min(run.timeout, run.total)
        self._sweeper = Sweeper(
            self._places.runners,
            None if shortest == math.inf else shortest,
            self._abandon,
            self._beat,
            run.clock,
            run.tuning.timeouts,
        )
        run.on_resize(self._resized)
        if isinstance(self._window, SharedWindow):
            self._window.on_change(self._reshared)
        self._places.on_free(self._employ)
        if self._breaker is not None:
            self._breaker.add(self._down)

    def start(self) -> None:
        """Start watching the timeouts."""
        self._sweeper.start()
        self.occupancy.start()
        self._window.begin(self.run.clock())
        if self._breaker is not None and self._breaker.down:
            self._down(self._breaker.down)

    def admit(self, batch: RowBatch) -> None:
        """Admit a batch and start runners for it."""
        if self.run.stopping:
            return
        indices = self._settlement.settle_early(batch)
        sharing = self._settlement.sharing
        if sharing is not None:
            indices = sharing.admit(batch, indices)
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
        latest = self.run.clock() + self.run.tuning.timeouts.grace_seconds
        for runner in list(self._places.runners):
            runner.cancel("down", latest)

    def _down(self, why: str) -> None:
        if self.run.refusal is None:
            self.refuse(RowFailure("circuit-open", "CircuitOpenError", why, retryable=True))

    async def stop(self) -> None:
        """Start no new call, cancel the calls in flight, and wait for a bounded time until they end."""
        self.run.stopping = True
        self.occupancy.sample(self._places.taken)
        self._sweeper.stop()
        if self._breaker is not None:
            self._breaker.remove(self._down)
        if self._linger is not None:
            self._linger.cancel()
        runners = {runner.task: runner for runner in self._places.runners if runner.task is not None}
        for task in runners:
            task.cancel()
        if runners:
            _, left = await asyncio.wait(runners, timeout=self.run.tuning.timeouts.grace_seconds)
            if left:
                for task in left:
                    self._attempts.abandon(runners[task])
                self.run.counts.abandoned += len(left)
                _LOG.warning(
                    "%s: %d calls did not end after cancellation; the task ends without them", self.run.name, len(left)
                )
        self._window.leave()

    def _beat(self) -> None:
        self.run.signals.beat()
        self._attempts.feedback.note_answers()
        self.occupancy.sample(self._places.taken)
        window, share = self._window, self.run.inputs.share
        window.is_idle |= self._places.taken < window.size or not self._attempts.feedback.destination.gate.is_open
        try:
            if window.beat(self.run.clock(), self.run.counts.flying if share is None or not share.cause else math.inf):
                self._resized()
        except Exception as error:
            # Otherwise the error would end the heartbeat, and with it all timeouts.
            self.run.signals.on_defect(error)

    def _resized(self) -> None:
        """Start or end runners after a change of the window, and begin its next round."""
        if self.run.stopping:
            return
        self._attempts.feedback.note_answers()
        self._places.update()
        self._shrinks = self._places.taken > self._window.size
        self._window.begin(math.inf if self._shrinks else self.run.clock())
        self._employ()

    def _reshared(self) -> None:
        """Use another share of the window of the job."""
        self._resized()
        if not self.run.stopping:
            # No call may end for a long time, and `waiting` omits the rest of an opened block.
            self._employ(self.feed.waiting + self.run.tuning.pool.block_rows)

    def _left(self) -> None:
        """Replace a runner that has ended, if the window allows."""
        if self.run.stopping:
            return
        self._places.update()
        if self._shrinks and self._places.taken <= self._window.size:
            self._shrinks = False
            self._window.begin(self.run.clock())
        self._employ()

    def _employ(self, least: int = 0) -> None:
        """Start runners for the waiting calls, but at least ``least``; a runner without a call ends by itself."""
        loop = asyncio.get_running_loop()
        places = self._places
        wanted = min(places.free, max(least, self.feed.waiting))
        # If calls return immediately, a few runners make all calls, so start the runners in groups.
        for _ in range(min(wanted, self.run.tuning.pool.block_rows)):
            runner = Runner()
            places.runners.add(runner)
            # Use different start values: if all runners yielded at the same time, their housekeeping would delay all
            # other calls.
            turn = len(places.runners) % self.run.tuning.pool.turn_rows
            runner.task = task = RunnerTask(self._serve(runner, turn), loop=loop)
            task.runner = runner
            task.add_done_callback(self._ended)
        if wanted > self.run.tuning.pool.block_rows:
            if self._more is None:
                self._more = loop.call_soon(self._employ_more)
        elif places.free > 0:
            self._window.is_idle = True
        if self.feed.held_back and not places.runners and self._linger is None:
            self._linger = loop.call_later(self.run.tuning.pool.linger_seconds, self._lingered)

    def _employ_more(self) -> None:
        self._more = None
        if not self.run.stopping:
            # `waiting` omits the rest of an opened block.
            self._employ(self.feed.waiting + self.run.tuning.pool.block_rows)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Replace a runner that user code cancelled before it began; such a runner could not free its place."""
        assert isinstance(task, RunnerTask)
        runner = task.runner
        runner.task = None  # breaks a reference cycle
        if runner in self._places.runners:
            self._places.runners.discard(runner)
            self._left()

    def _lingered(self) -> None:
        self._linger = None
        if not self._places.runners:
            self.flush()

    async def _serve(self, runner: Runner, turn: int) -> None:
        # Hot path: names are local and small steps are inlined, because a function call is expensive here. `attempts`
        # handles calls whose first attempt fails.
        run, attempts, feed, places = self.run, self._attempts, self.feed, self._places
        plan, counts, clock = run.plan, run.counts, run.clock
        # Fast path: the most common kind of function, with the row as its only argument, is called directly.
        fn = plan.fn if run.is_direct else None
        # Fast path: if rows stay in order and share no calls, their results are stored directly, usually without a
        # function call.
        plain = not (plan.key or plan.batch_size or plan.coalesce_by or plan.cache)
        invoke, accept, breaker, window = attempts.invoke, attempts.accept, self._breaker, self._window
        # Fast path: without a loop over the limiters, of which most plans have three. Any further one is always asked.
        first_limit, second_limit, third_limit, *further = attempts.admission.limiters
        limited = bool(further)
        take, timed, first = feed.take, counts.durations.latest.append, min(run.timeout, run.total)
        latencies, permits, turn_rows = window.latencies, runner.permits, run.tuning.pool.turn_rows
        sample = run.tuning.buffer.sample_rows
        measured, now = False, clock()
        try:
            while not run.stopping:
                taken = take()
                if taken is None:
                    window.is_idle = True
                    break
                batch, index, call, row = taken
                runner.batch, runner.index, runner.made = batch, index, call
                answer: Any = run.refusal
                if answer is None and (limited or first_limit.limits or second_limit.limits or third_limit.limits):
                    answer = await attempts.begin(runner)
                    now = clock()
                elif answer is None:
                    runner.started = now
                    runner.expires = now + first
                if answer is None:
                    runner.attempted = now
                    counts.waited += now - batch.admitted
                    counts.begun += 1
                    counts.flying = flying = counts.flying + 1
                    if flying > counts.peak:
                        counts.peak = flying
                    try:
                        answer = await (fn(row) if fn is not None else invoke(call or runner.call(row)))
                        if permits:
                            for permit in permits.values():
                                permit.spend(answer)
                        if runner.cancelled and runner.why is None:
                            await attempts.heed(runner)
                        if accept is not None and runner.why is None:
                            answer = accept(runner.call(), answer, runner.started)
                    except BaseException as error:
                        answer = await attempts.after(runner, runner.call(), error)
                        now = clock()
                    else:
                        if runner.why is not None:
                            answer = await attempts.after(runner, runner.call(), None)
                            now = clock()
                        else:
                            runner.expires = math.inf
                            attempted, now = now, clock()
                            counts.flying -= 1
                            timed(now - attempted)
                            if attempted >= window.since:
                                latencies.append(now - attempted)
                                if len(latencies) >= window.need and window.turn():
                                    self._resized()
                            if permits or (breaker is not None and breaker.failures):
                                attempts.answered(runner)
                if answer is ABANDONED:
                    return
                if not plain or answer.__class__ is RowFailure:
                    self._settle(runner.call(), answer)
                elif measured and index % sample and batch.left > 1:
                    # This is RowBatch.settle, inlined for the case without notifications.
                    batch.answers[index] = answer
                    batch.left -= 1
                else:
                    batch.settle(index, answer)
                    measured = plan.ordered
                if places.surplus and run.refusal is None:
                    break
                turn += 1
                if turn == turn_rows:
                    turn = 0
                    counts.durations.fold()
                    await asyncio.sleep(0)
                    now = clock()
        except Exception as error:
            # End the run; otherwise the row would never receive an answer.
            self.run.signals.on_defect(error)
        finally:
            if not runner.abandoned:
                self._attempts.admission.leave(runner)
                self._places.runners.discard(runner)
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

    def _abandon(self, runner: Runner) -> None:
        """Settle and replace a call that did not end after its cancellation.

        Otherwise the call would occupy its place forever.
        """
        call = runner.call()
        runner.abandoned = True
        self._places.runners.discard(runner)
        counts = self.run.counts
        counts.abandoned += 1
        counts.timeouts += runner.why == "timeout"
        counts.unreachable += 1
        counts.end(self.run.clock() - runner.attempted)
        self._attempts.abandon(runner)
        if runner.task is not None:
            self._uncancellable.add(runner.task)
            runner.task.add_done_callback(self._uncancellable.discard)
        elapsed = self.run.clock() - runner.started
        stubborn = f"{self.run.name} does not end after cancellation: it must not swallow CancelledError"
        if counts.abandoned == 1:
            _LOG.error("%s", stubborn)
        if runner.why == "timeout":
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
