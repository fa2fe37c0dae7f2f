"""What was lost on the way, said as an event: silence would be a lie."""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.bridge.records import Dropped
from spark_events.event import Severity
from spark_events.translate.draft import Draft

__all__ = ["dropped"]


def dropped(record: Dropped) -> Iterator[Draft]:
    """Spark's listener queue or the shim's handoff queue was full, or a sidecar took with it what it held."""
    count = sum(record.records.values())
    if record.where == "handoff":
        kinds = ", ".join(f"{number} {kind}" for kind, number in record.records.items())
        body = f"{count} records were dropped before they reached the dispatcher: the handoff queue was full ({kinds})"
    else:
        body = f"Spark dropped {count} events before its listeners saw them: its listener queue was full"
    yield Draft(
        name="EventsDroppedEvent",
        class_scope="spark_events.dispatch",
        key=(record.where, record.at),
        body=body,
        severity=Severity.WARN,
        observed_ts_millis=record.at,
        attributes={"dropped.where": record.where, "dropped.reason": "queue-full", "dropped.count": count},
    )
