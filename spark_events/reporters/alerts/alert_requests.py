"""Conversion of alerts to requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from spark_events.event import Event
from spark_events.reporters.alerts.store import Notice

__all__ = ["AlertFormat", "AlertRequest"]

#: Maximum number of alerts in one message. A longer list helps nobody.
_MOST_LISTED = 100


class AlertRequest(NamedTuple):
    """Body of one request, a JSON-serializable value, and the keys of the alerts that it opens or closes."""

    keys: tuple[str, ...]
    body: Any


class AlertFormat(NamedTuple):
    """Conversion of events to requests.

    Attributes:
        requests: converts one alert or recovery.
        plain: converts events that are not alerts; None if the format sends every event as an alert.
        several: converts alarms, or recoveries, that are sent at the same time to one request; None: one request per
            alert.
        most: maximum number of events per request of ``plain``.
    """

    requests: Callable[[Notice], Sequence[AlertRequest]]
    plain: Callable[[Sequence[Event]], Any] | None = None
    several: Callable[[Sequence[Notice]], Any] | None = None
    most: int = 1

    @property
    def is_for_people(self) -> bool:
        """Whether people read the messages, so that a recovery of an alert that was never sent tells them nothing."""
        return self.several is not None

    @property
    def batch_size(self) -> int:
        """Maximum number of events that are sent at the same time."""
        return 1 if self.several is None else _MOST_LISTED
