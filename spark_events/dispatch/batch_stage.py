"""Stage that takes events from the store in batches, and settles them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.drain import Drain
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.reporter_calls import linger_of, lingers_through_of, most_of, rest_of
from spark_events.dispatch.retry_stage import RetryStage
from spark_events.dispatch.turn import DELIVERED, SHUTDOWN, Settlement, Turn
from spark_events.event import Event, Severity
from spark_events.loops import wait_for
from spark_events.reporters.reporter import Reporter, Rest

#: Minimum severity of events that end the linger time at once, such as failures.
_PRESSING = Severity.WARN.number


class BatchStage:
    """Take events, let them linger until a batch is full or pressing, and pass them on.

    Args:
        config: batch size and linger time.
        turn: the thread's turn on the store.
        drain: a drain ends the linger time.
        work: the event that wakes the thread.
        clock: returns monotonic time in seconds.
        following: the next stage.
    """

    def __init__(
        self,
        config: DeliveryConfig,
        turn: Turn,
        drain: Drain,
        work: asyncio.Event,
        clock: Callable[[], float],
        following: RetryStage,
    ) -> None:
        self._config = config
        self._turn = turn
        self._drain = drain
        self._work = work
        self._clock = clock
        self._following = following
        self._batch_size = config.batch_size
        # Until the reporter exists, wait for a larger batch; afterwards, the reporter's class sets the linger time.
        self._can_linger = config.batch_linger != 0
        # End of the current linger time; None if no event waits, 0.0 if the waiting events exceed one batch.
        self._lingers_until: float | None = None
        # Number and highest severity of the events that arrived since the last batch was taken.
        self._untaken = 0
        self._highest = 0
        # End of the rest that the reporter asked for, and the severity from which events do not wait.
        self._rests_until = 0.0
        self._rest = Rest()
        self._pressing = _PRESSING

    def arrived(self, entries: Sequence[Entry]) -> bool:
        """Note new events in the store; return whether they end the linger time, so that the thread must wake up.

        Any thread may call this method.
        """
        if not self._can_linger:
            return False
        was_due = self._is_due()
        self._untaken += len(entries)
        self._highest = max(self._highest, max((entry.event.severity.number for entry in entries), default=0))
        return self._is_due() and not was_due

    def _is_due(self) -> bool:
        return self._untaken >= self._batch_size or self._highest >= self._pressing

    async def run(self, reporter: Reporter, opened: Settlement) -> None:
        """Deliver events until the turn ends, or a stop was requested and no event is left.

        Args:
            reporter: receives the events.
            opened: the answer of the reporter's ``open``; if it is a rejection, all events are dropped, so that no
                caller waits for them.
        """
        while events := await self._next(reporter):
            began = self._clock()
            answer = opened if opened is not DELIVERED else await self._send(reporter, events)
            self._begin_rest(rest_of(reporter))
            self._turn.settle(answer, self._clock() - began)
            if answer.dropped == SHUTDOWN:
                break

    async def _send(self, reporter: Reporter, events: list[Event]) -> Settlement:
        # Pass a copy of the list to each attempt, so that a reporter that modifies its list loses no events.
        return await self._following.send(lambda: reporter.report([*events]), "failed", proves=True)

    async def _next(self, reporter: Reporter) -> list[Event]:
        waited = False
        turn = self._turn
        while not turn.revoked:
            self._work.clear()
            self._batch_size = min(self._config.batch_size, most_of(reporter) or self._config.batch_size)
            if (left := self._linger_left(reporter)) > 0:
                await wait_for(self._work, left)
                waited = True
                continue
            self._untaken = self._highest = 0
            if events := turn.take(self._batch_size):
                # If more events wait than fit in one batch, send the next batch without a linger time.
                self._lingers_until = None if turn.is_exhausted() else 0.0
                if not waited:
                    # Let the reporter's other tasks in this event loop run, even if events arrive without a pause.
                    await asyncio.sleep(0)
                return events
            if self._drain.until is not None and turn.is_exhausted():
                break
            await self._work.wait()
            waited = True
        return []

    def _linger_left(self, reporter: Reporter) -> float:
        """Return the remaining linger time of the queued events, in seconds."""
        configured = self._config.batch_linger
        linger = linger_of(reporter) if configured is None else configured
        now = self._clock()
        if now < self._rests_until and self._highest > self._rest.through.number:
            # A higher severity ends the rest, and waits as long as the first event after a rest.
            self._rests_until, self._lingers_until = 0.0, None
        # The rest of a reporter decides which events may wait as long as it lasts, and otherwise the linger time.
        lingers_through = lingers_through_of(reporter) if configured is None else Severity.INFO
        self._pressing = (lingers_through if now >= self._rests_until else self._rest.through).number + 1
        self._can_linger = linger > 0 or now < self._rests_until
        if not self._can_linger or self._drain.is_active or self._turn.is_exhausted() or self._is_due():
            return 0.0
        if self._lingers_until is None:
            self._lingers_until = now + linger
        return max(self._lingers_until, self._rests_until) - now

    def _begin_rest(self, rest: Rest) -> None:
        # Events beyond a full batch do not wait: otherwise, only one batch would be sent per rest.
        if self._config.batch_linger is None and rest.seconds and self._lingers_until != 0.0:
            self._rests_until = self._clock() + rest.seconds
            self._rest = rest
