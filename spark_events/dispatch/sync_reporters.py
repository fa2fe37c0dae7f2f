"""Reporters that the driver waits for, without those that are late."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from spark_events.dispatch.delivery import Delivery
from spark_events.event import Severity

__all__ = ["SyncReporters"]

_LOG = logging.getLogger(__name__)


class SyncReporters:
    """Set of reporters that the driver currently waits for.

    The driver does not wait for a late reporter until it has caught up, nor for one whose circuit breaker is not
    closed. Therefore an unreachable destination costs the driver at most one timeout instead of one for each record.
    The driver still waits for the other reporters. Only the driver waits; the sidecar itself never blocks on them.

    Args:
        deliveries: the deliveries of these reporters.
        timeout: how long the driver waits for each reporter, in seconds.
    """

    def __init__(self, deliveries: Sequence[Delivery], timeout: float) -> None:
        self._deliveries = tuple(deliveries)
        self._timeout = timeout
        self._late: frozenset[str] = frozenset()
        self._named: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._deliveries)

    def may_get(self, scope: str | None, name: str | None, severity: Severity) -> bool:
        """Return whether one of these reporters may get such events.

        Args:
            scope: the class scope of the events; None for any.
            name: the name of the events; None for any.
            severity: the highest severity that the events may have.
        """
        return any(delivery.may_get(scope, name, severity) for delivery in self._deliveries)

    def look(self) -> float:
        """Update the set of late reporters.

        Returns:
            The seconds until the next reporter may become late.
        """
        left = {delivery: self._timeout - delivery.unanswered_for() for delivery in self._deliveries}
        late = frozenset(delivery.name for delivery in self._deliveries if left[delivery] < 0)
        for delivery in self._deliveries:
            # A reporter whose breaker is not closed did not keep the driver waiting, so it had no timeout.
            if delivery.name in late - self._late and not delivery.is_held_back:
                delivery.timeouts += 1
                self._name(delivery.name)
        self._late = late
        return min((seconds for seconds in left.values() if seconds >= 0), default=self._timeout)

    def __contains__(self, delivery: Delivery) -> bool:
        """Return whether the driver currently waits for this reporter."""
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
