"""What was lost on the way, said as an event: silence would be a lie."""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.bridge.records import Dropped
from spark_events.event import Severity
from spark_events.translate.draft import Draft

__all__ = ["dropped"]


def dropped(record: Dropped) -> Iterator[Draft]:
    """The shim's handoff queue was full, or there was no sidecar to take from it."""
    count = sum(record.records.values())
    kinds = ", ".join(f"{number} {kind}" for kind, number in record.records.items())
    yield Draft(
        name="EventsDroppedEvent",
        class_scope="spark_events.dispatch",
        key=("handoff", record.at),
        body=f"{count} records were dropped before they reached the dispatcher: the handoff queue was full ({kinds})",
        severity=Severity.WARN,
        observed_ts_millis=record.at,
        attributes={"dropped.where": "handoff", "dropped.reason": "queue-full", "dropped.count": count},
    )
