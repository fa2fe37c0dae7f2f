"""The reporters whose answers the driver waits for, and which of them have kept it waiting for too long."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from spark_events.dispatch.delivery import Delivery
from spark_events.event import Severity

__all__ = ["SyncReporters"]

_LOG = logging.getLogger(__name__)


class SyncReporters:
    """One that is late, or that its circuit breaker holds back, is not waited for until it has caught up.

    So a destination that is away costs the driver one timeout, or less, and not one a record; and the others are
    waited for as before. The waiting itself is the driver's: nothing in the sidecar stands still for it.

    Args:
        deliveries: of these reporters.
        timeout: how long the driver waits for one of them, in seconds.
    """

    def __init__(self, deliveries: Sequence[Delivery], timeout: float) -> None:
        self._deliveries = tuple(deliveries)
        self._timeout = timeout
        self._late: frozenset[str] = frozenset()
        self._named: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._deliveries)

    def may_get(self, scope: str | None, name: str | None, severity: Severity) -> bool:
        """Whether events of that kind, as severe as they can be, have to be waited for."""
        return any(delivery.may_get(scope, name, severity) for delivery in self._deliveries)

    def look(self) -> float:
        """Finds those that are late; returns the seconds until the next of the others may be so."""
        left = {delivery: self._timeout - delivery.unanswered_for() for delivery in self._deliveries}
        late = frozenset(delivery.name for delivery in self._deliveries if left[delivery] < 0)
        for delivery in self._deliveries:
            # Of one that its breaker holds back, nobody has waited for the answer until now.
            if delivery.name in late - self._late and not delivery.is_held_back:
                delivery.timeouts += 1
                self._name(delivery.name)
        self._late = late
        return min((seconds for seconds in left.values() if seconds >= 0), default=self._timeout)

    def __contains__(self, delivery: Delivery) -> bool:
        """Whether that one is waited for at this moment."""
        return delivery in self._deliveries and delivery.name not in self._late and not delivery.is_held_back

    def _name(self, name: str) -> None:
        if name not in self._named:
            self._named.add(name)
            _LOG.warning(
                "reporter %s: has not answered within events.dispatcher.sync.timeout (%g s); it is not waited for"
                " until it has caught up",
                name,
                self._timeout,
            )
