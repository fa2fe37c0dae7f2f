"""Stage that counts the result of each attempt for the circuit breaker and the health of the thread."""

from __future__ import annotations

from spark_events.dispatch.breaker import Breaker, BreakerState
from spark_events.dispatch.health import Health
from spark_events.dispatch.reporter_calls import Call
from spark_events.dispatch.timeout_stage import TimeoutStage
from spark_events.dispatch.turn import Turn
from spark_events.errors import PermanentError


class BreakerStage:
    """Make one attempt, and count its result.

    It stands before the timeout, because an attempt that exceeds the timeout is a failure for the breaker.

    Args:
        breaker: the reporter's circuit breaker, which attempts on other threads may also change.
        health: the health of the thread.
        turn: the thread's turn; the results of a revoked turn do not count as late.
        following: the next stage.
    """

    def __init__(self, breaker: Breaker, health: Health, turn: Turn, following: TimeoutStage) -> None:
        self._breaker = breaker
        self._health = health
        self._turn = turn
        self._following = following

    def pause(self) -> float:
        """Return the seconds until the breaker allows the next attempt."""
        return self._breaker.pause() if self._breaker.state is BreakerState.OPEN else 0.0

    async def send(self, call: Call, verb: str, *, proves: bool) -> None:
        """Make one attempt; raise the error of the call.

        Args:
            call: calls the reporter's method.
            verb: the words with which the log describes a failure of this method.
            proves: whether success closes the breaker even if the previous attempt did not fail.
        """
        breaker, health = self._breaker, self._health
        if breaker.state is BreakerState.OPEN:
            breaker.attempt()
        try:
            took = await self._following.send(call)
        except PermanentError as error:
            # The destination answered, so it is available; it rejects only these events.
            breaker.succeeded()
            health.rejected(verb, error)
            raise
        except Exception as error:
            breaker.failed(health.failed(verb, error))
            raise
        timeout = self._following.timeout
        if not (breaker.failures or health.in_failure or took > timeout):
            return
        if is_late := took > timeout and not self._turn.revoked:
            # The call blocked the event loop, so the timeout could not cancel it. The call succeeded but counts as a
            # timeout.
            breaker.failed(f"an attempt took {took:.1f} s, its timeout is {timeout:g} s")
        elif breaker.failures and (proves or health.in_failure):
            breaker.succeeded()
        health.succeeded(is_late=is_late)
