"""What the attempts of one reporter's thread have shown about the destination."""

from __future__ import annotations

import logging
from collections.abc import Callable

from spark_events.dispatch.breaker import Breaker, BreakerState
from spark_events.dispatch.reporter_calls import asked_pause
from spark_events.dispatch.turn import Turn
from spark_events.errors import PermanentError

_LOG = logging.getLogger(__name__)
#: Number of consecutive attempts without an answer after which a destination counts as dead. A single such attempt may
#: be due to a lost connection.
_DEAD_AFTER = 2


class Health:
    """Count and log the failures of one thread, and decide whether the destination is dead.

    Args:
        name: the reporter's name in the configuration.
        breaker: the reporter's circuit breaker.
        turn: counts the failures.
        describe: returns an error as a string, with secrets hidden.

    Attributes:
        in_failure: whether the last attempt failed.
    """

    def __init__(self, name: str, breaker: Breaker, turn: Turn, describe: Callable[[BaseException], str]) -> None:
        self._name = name
        self._breaker = breaker
        self._turn = turn
        self._describe = describe
        self.in_failure = False
        # Number of consecutive failed attempts without an answer; a request for a pause counts as an answer.
        self._unanswered = 0
        self._asks_for_pause = False

    @property
    def is_dead(self) -> bool:
        """Whether the destination counts as dead.

        A destination counts as dead while its breaker is not closed, or after several consecutive attempts without an
        answer. If the events are safe on disk, a single failure is enough. A destination that requests a pause counts
        as alive.
        """
        if self._asks_for_pause:
            return False
        is_failing = self._turn.is_durable and self.in_failure
        is_paused = self._breaker.state is not BreakerState.CLOSED
        return is_failing or is_paused or self._unanswered >= _DEAD_AFTER

    def failed(self, verb: str, error: Exception) -> str:
        """Count a failed attempt, and log the first of consecutive failures; return the reason.

        Args:
            verb: the words with which the log describes the failure.
            error: the error that the attempt raised.
        """
        self._asks_for_pause = asked_pause(error) is not None
        self._unanswered = 0 if self._asks_for_pause else self._unanswered + 1
        why = self._describe(error)
        if not self.in_failure and not self._turn.revoked:
            self.in_failure = True
            _LOG.error("reporter %s: %s; holding its events and retrying: %s", self._name, verb, why)
        # Log the reason before counting the failure, so that the log explains every change of the counter.
        self._turn.failed(is_dead=self.is_dead)
        return why

    def rejected(self, verb: str, error: PermanentError) -> None:
        """Count and log an attempt that the destination answered by rejecting events."""
        _LOG.error("reporter %s: %s; dropping the rejected events: %s", self._name, verb, self._describe(error))
        self._answered(failed=True)

    def succeeded(self, *, is_late: bool) -> None:
        """Record an attempt that succeeded; if it succeeded after its timeout, count it as a failure too."""
        self._answered(failed=is_late)
        if self.in_failure:
            self.in_failure = False
            _LOG.warning("reporter %s: works again", self._name)

    def _answered(self, *, failed: bool) -> None:
        self._unanswered = 0
        self._asks_for_pause = False
        self._turn.answered(failed=failed)
