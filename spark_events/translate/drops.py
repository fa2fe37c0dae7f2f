"""Events about records that were lost before translation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spark_events.bridge.records import Dropped
from spark_events.event import Severity
from spark_events.translate.draft import Draft, counted

__all__ = ["dropped"]


class _Cause(NamedTuple):
    reason: str
    sentence: str


_CAUSES = {
    "handoff": _Cause(
        "queue-full",
        "{records} dropped before reaching the dispatcher: the handoff queue was full ({kinds})",
    ),
    "sidecar": _Cause(
        "sidecar-died",
        "{records} lost: the sidecar died before it acknowledged them ({kinds})",
    ),
    "unwritable": _Cause(
        "unwritable",
        "{records} dropped: reading an object of the application raised an error; see the driver's log ({kinds})",
    ),
    "spark-listener-queue": _Cause(
        "queue-full", "Spark dropped {events} before any listener received them: its listener queue was full"
    ),
}


def dropped(record: Dropped) -> Iterator[Draft]:
    """Yield the event for lost data: the shim's records, or Spark's events that the shim did not receive."""
    count = sum(record.records.values())
    kinds = ", ".join(f"{number} {kind}" for kind, number in record.records.items())
    cause = _CAUSES.get(record.where) or _Cause("unknown", "{records} lost for an unknown reason ({kinds})")
    yield Draft(
        name="EventsDroppedEvent",
        class_scope="spark_events.dispatch",
        key=(record.where, record.at),
        body=cause.sentence.format(
            records=counted(count, "record", ("was", "were")), events=counted(count, "event"), kinds=kinds
        ),
        severity=Severity.WARN,
        observed_ts_millis=record.at,
        attributes={
            "spark.events.dropped.where": record.where,
            "spark.events.dropped.reason": cause.reason,
            "spark.events.dropped.count": count,
        },
    )
