"""Last stage before the reporter: one call, with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from spark_events.dispatch.reporter_calls import Call, begin, end, made
from spark_events.reporters.reporter import Reporter

#: Time limit for a call to the constructor, in seconds. The first call, during startup, has no limit.
_MAKING_SECONDS = 30.0


class TimeoutStage:
    """Call a method of the reporter; an asynchronous call that exceeds the timeout is cancelled.

    A call that blocks its thread cannot be cancelled; the delivery replaces the thread.

    Args:
        timeout: in seconds.
        clock: returns monotonic time in seconds.
    """

    def __init__(self, timeout: float, clock: Callable[[], float]) -> None:
        self.timeout = timeout
        self._clock = clock
        self._limit = timeout
        self._busy_since: float | None = None

    def overdue(self, now: float) -> tuple[float, float]:
        """Return the duration of the current call and its time limit, in seconds; any thread may call this method.

        Args:
            now: the current time in seconds of the clock.
        """
        # Read the limit first: a constructor has a longer limit than the call that follows the constructor.
        limit, since = self._limit, self._busy_since
        return (0.0 if since is None else now - since), limit

    def construct(self, make: Callable[[], Reporter]) -> Reporter:
        """Create the reporter."""
        self._limit = max(_MAKING_SECONDS, self.timeout)
        self._busy_since = self._clock()
        try:
            return made(make)
        finally:
            self._busy_since = None
            self._limit = self.timeout

    async def send(self, call: Call) -> float:
        """Make the call; return how long it took, in seconds, which is above the timeout if it blocked its thread."""
        self._busy_since = began = self._clock()
        try:
            # A synchronous method has finished when it returns, so there is nothing to await or to cancel.
            if (rest := begin(call)) is not None:
                await asyncio.wait_for(end(rest), self.timeout)
        except asyncio.CancelledError as error:
            # The dispatcher never cancels a delivery, so this cancellation comes from the reporter.
            raise RuntimeError("cancelled by the reporter itself") from error
        finally:
            took = self._clock() - began
            self._busy_since = None
        return took
