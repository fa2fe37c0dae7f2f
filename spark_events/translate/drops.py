"""What was lost on the way, said as an event: silence would be a lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spark_events.bridge.records import Dropped
from spark_events.event import Severity
from spark_events.translate.draft import Draft, counted

__all__ = ["EARLIER_RUN", "dropped"]

#: Where records were lost in an earlier run of the application; they are not in the counts of this run.
EARLIER_RUN = "earlier-run"


class _Place(NamedTuple):
    reason: str
    sentence: str


_PLACES = {
    "handoff": _Place(
        "queue-full",
        "{records} dropped before reaching the dispatcher: the handoff queue was full ({kinds})",
    ),
    "sidecar": _Place(
        "sidecar-died",
        "{records} lost with a sidecar that died ({kinds})",
    ),
    "unwritable": _Place(
        "unwritable",
        "{records} not written: an object of the application raised an error, see the driver's log ({kinds})",
    ),
    EARLIER_RUN: _Place(
        "sidecar-died",
        "{records} lost by an earlier run of this application, whose sidecar had died too often ({kinds})",
    ),
    "spark-listener-queue": _Place(
        "queue-full", "Spark dropped {events} before its listeners saw them: its listener queue was full"
    ),
}


def dropped(record: Dropped) -> Iterator[Draft]:
    """Records, or events of Spark's, that were lost in the driver."""
    count = sum(record.records.values())
    kinds = ", ".join(f"{number} {kind}" for kind, number in record.records.items())
    place = _PLACES.get(record.where) or _Place("unknown", "{records} lost ({kinds})")
    yield Draft(
        name="EventsDroppedEvent",
        class_scope="spark_events.dispatch",
        key=(record.where, record.at),
        body=place.sentence.format(
            records=counted(count, "record", ("was", "were")), events=counted(count, "event"), kinds=kinds
        ),
        severity=Severity.WARN,
        observed_ts_millis=record.at,
        attributes={"dropped.where": record.where, "dropped.reason": place.reason, "dropped.count": count},
    )
