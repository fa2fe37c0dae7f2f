"""The books of one reporter: what was accepted is delivered, dropped for a reason, or still held."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = ["DeliveryCounters", "account", "statistics", "with_those_before"]


_DROPPED = "dropped."


@dataclasses.dataclass(frozen=True, slots=True)
class DeliveryCounters:
    """A moment's account of one reporter.

    ``accepted = delivered + sum(dropped) + spooled + held`` at every moment; a test holds that law.

    Attributes:
        accepted: events that passed its filter.
        delivered: events it has answered for.
        dropped: events that were given up, by reason: ``mailbox-full``, ``rejected``, ``shutdown``,
            ``spool-full``, ``spool-corrupt``.
        held: events that wait or are being delivered, and would be lost with the process.
        spooled: events that wait or are being delivered, and are safe on disk.
        failures: attempts that raised or took too long.
        hung: threads that were abandoned because the reporter blocked them.
        timeouts: how often the driver has waited for it in vain.
        latency: seconds that the last batch took, retries included.
        oldest_age: seconds since the oldest held event was accepted; 0 when nothing is held.
        breaker: the state of its circuit breaker.
    """

    accepted: int
    delivered: int
    dropped: Mapping[str, int]
    held: int
    failures: int
    hung: int
    latency: float
    oldest_age: float
    breaker: str
    spooled: int = 0
    timeouts: int = 0

    @property
    def balances(self) -> bool:
        """Whether the law holds."""
        return self.accepted == self.delivered + sum(self.dropped.values()) + self.spooled + self.held

    @property
    def lost(self) -> int:
        """Events that will never be delivered."""
        return sum(self.dropped.values())


def account(books: Mapping[str, DeliveryCounters]) -> dict[str, dict[str, int]]:
    """The books as the final report has them: plain numbers, by reporter."""
    return {
        name: {
            "accepted": one.accepted,
            "delivered": one.delivered,
            "held": one.held,
            "spooled": one.spooled,
            "failures": one.failures,
            "timeouts": one.timeouts,
            **_by_reason(one),
        }
        for name, one in books.items()
    }


def with_those_before(
    books: Mapping[str, Mapping[str, int]], before: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """The same over all sidecars of an application.

    What a predecessor held when it died was sent again, and what it had on disk is still there: both are in the present
    books. Of its own, what had come to an end counts: delivered, or dropped.

    Args:
        books: as :func:`account` makes them.
        before: what :func:`statistics` had last told of the predecessors, summed up.
    """
    total = {name: dict(one) for name, one in books.items()}
    for name, told in before.items():
        one = total.setdefault(name, {"accepted": 0, "delivered": 0, "held": 0, "spooled": 0})
        for key, count in told.items():
            ended = key == "delivered" or key.startswith(_DROPPED)
            if ended:
                one["accepted"] += count
            if ended or key in ("failures", "timeouts"):
                one[key] = one.get(key, 0) + count
    return total


def statistics(one: DeliveryCounters) -> dict[str, int | float | str]:
    """The books as the driver's metrics have them."""
    return {
        "accepted": one.accepted,
        "delivered": one.delivered,
        "dropped": one.lost,
        "failures": one.failures,
        "hung": one.hung,
        "timeouts": one.timeouts,
        "latency_ms": round(one.latency * 1000, 3),
        "breaker": one.breaker,
        "in_flight": one.held,
        "spooled": one.spooled,
        "oldest_age_ms": round(one.oldest_age * 1000),
        **_by_reason(one),
    }


def _by_reason(one: DeliveryCounters) -> dict[str, int]:
    return {f"{_DROPPED}{reason}": count for reason, count in one.dropped.items()}
