"""The loop's part of a run: opens the resource, lets the pool make the calls, and ends both."""

from __future__ import annotations

import asyncio
import logging
import queue
from collections.abc import Callable, Iterable
from typing import Any

from spark_events.enrichment.engine.assembly import assemble
from spark_events.enrichment.engine.client_limits import shortcomings, used_up
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.keys import HotKeys
from spark_events.enrichment.engine.pool import Pool
from spark_events.enrichment.engine.process import Process
from spark_events.enrichment.engine.resources import open_resource
from spark_events.enrichment.engine.run import EngineRun, RunInputs, Signals
from spark_events.enrichment.engine.statistics import EngineCounts
from spark_events.enrichment.signature import name_of

__all__ = ["RunLife"]

_LOG = logging.getLogger(__name__)


class _LifeTask(asyncio.Task[None]):
    """Task of a run. Only the engine may cancel it, but user code may cancel all tasks of its loop."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Ignore a cancellation that does not come from the engine."""
        return False

    def end(self) -> None:
        """Cancel the task."""
        super().cancel()


class RunLife:
    """Life of one run on the loop, and the news that its caller waits for; the caller's thread uses this object.

    Args:
        inputs: what the task passes.
        process: the worker process.
        counts: the counters of the run.
        hot: counts rows per key.
        low: the largest number of waiting calls that counts as low.

    Attributes:
        news: events from the loop: None for progress, an exception to end the run.
        pool: the pool; None until the resource is open.
    """

    def __init__(self, inputs: RunInputs, process: Process, counts: EngineCounts, hot: HotKeys, low: int) -> None:
        self.news: queue.SimpleQueue[BaseException | None] = process.background.mailbox()
        self._inputs = inputs
        self._process = process
        self._counts = counts
        self._hot = hot
        self._signals = Signals(low, self.notify, process.watch.beat, self.news.put)
        self.pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: _LifeTask | None = None
        self._ending = False
        self._ended: queue.SimpleQueue[None] = process.background.mailbox()

    def begin(self) -> Pool:
        """Begin the run, and return its pool as soon as the resource is open."""
        self._loop = self._process.background.loop
        self._loop.call_soon_threadsafe(self._begin)
        while self.pool is None:
            self.await_news()
        return self.pool

    def await_news(self) -> None:
        """Wait for an event from the loop, and consume all pending events."""
        while True:
            news = self.news.get()
            if news is not None:
                raise news
            if self.news.empty():
                return

    def notify(self) -> None:
        """Wake the caller; may be called from any thread."""
        self.news.put(None)

    def on_loop(self, step: Callable[[], None]) -> None:
        """Execute a step on the loop, and pass its error to the caller, which would otherwise wait forever."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._guarded, step)

    def cut_off(self) -> None:
        """Start no new call, and cancel the calls in flight at the loop's next iteration; from any thread."""
        if self.pool is not None:
            self.pool.run.stopping = True
        self._ask_to_end()

    def end(self) -> None:
        """End the run, and wait for a bounded time until its calls have ended."""
        if not self._ask_to_end():
            return
        limit = self._inputs.tuning.timeouts.stop_seconds
        try:
            self._ended.get(timeout=limit)
        except queue.Empty:
            # A call blocks the loop's thread; the watch has already logged this call.
            _LOG.warning(
                "%s: the event loop is blocked, and its calls did not stop within %g s; the task ends without them",
                name_of(self._inputs.plan.fn),
                limit,
            )

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            self.news.put(error)

    def _begin(self) -> None:
        self._task = _LifeTask(self._live(), loop=asyncio.get_running_loop())
        self._task.add_done_callback(self._over)

    async def _live(self) -> None:
        """Open the resource, execute the pool until cancellation, and release the resource."""
        process, plan, key = self._process, self._inputs.plan, self._inputs.definition.resource
        resource = await open_resource(plan, key, process.resources)
        refusal = resource if isinstance(resource, RowFailure) else None
        if refusal is None:
            self._warn(shortcomings(resource, plan))
        pool = assemble(EngineRun(self._inputs, process, self._counts, self._hot, self._signals), resource)
        try:
            if refusal is not None:
                pool.refuse(refusal)
            pool.start()
            self.pool = pool
            self.notify()
            await asyncio.Event().wait()
        finally:
            try:
                await pool.stop()
                if refusal is None:
                    self._warn(used_up(resource, plan, self._counts.peak, self._inputs.tuning.client_limits))
            finally:
                if plan.resource is not None and refusal is None:
                    # A client may be unable to reconnect after its connection broke.
                    process.resources.release(key, broken=self._counts.only_unreachable)

    def _warn(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._counts.hints[text] = 1
            self._process.warn_once(text)

    def _over(self, life: asyncio.Task[None]) -> None:
        if not life.cancelled() and (error := life.exception()) is not None:
            self.news.put(error)
        self._ended.put(None)

    def _ask_to_end(self) -> bool:
        """Schedule the shutdown of the run on the loop; return False if no loop is running."""
        if self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            # The loop has ended together with its process.
            return False
        return True

    def _cancel(self) -> None:
        # Cancel only once, because a second cancellation would end the wait for the calls.
        if self._task is not None and not self._ending:
            self._ending = True
            self._task.end()
