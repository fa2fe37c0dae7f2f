"""Conversion of alerts to requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from spark_events.event import Event
from spark_events.reporters.alerts.store import Notice

__all__ = ["AlertFormat", "AlertRequest"]


class AlertRequest(NamedTuple):
    """Body of one request, a JSON-serializable value, and the keys of the alerts that it opens or closes."""

    keys: tuple[str, ...]
    body: Any


class AlertFormat(NamedTuple):
    """Conversion of events to requests.

    Attributes:
        requests: converts one alert or recovery.
        plain: converts events that are not alerts; None if the format sends every event as an alert.
        several: converts alerts that are sent at the same time to one request; None: one request per alert.
        most: maximum number of events per request of ``plain`` and ``several``.
    """

    requests: Callable[[Notice], Sequence[AlertRequest]]
    plain: Callable[[Sequence[Event]], Any] | None = None
    several: Callable[[Sequence[Notice]], Any] | None = None
    most: int = 1
