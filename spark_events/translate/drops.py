"""Events about records that were lost before translation."""

from __future__ import annotations

from collections.abc import Iterable

from spark_events.event import Severity
from spark_events.records.types import Dropped
from spark_events.translate.draft import Draft, counted

__all__ = ["Drops"]

#: Reason and body for each place where records are lost.
_CAUSES = {
    "handoff": (
        "queue-full",
        "{records} dropped before reaching the dispatcher: the record queue was full ({kinds})",
    ),
    "sidecar": (
        "sidecar-died",
        "{records} lost: the sidecar died before it acknowledged them ({kinds})",
    ),
    "unwritable": (
        "unwritable",
        "{records} dropped: reading an object of the application raised an error; see the driver's log ({kinds})",
    ),
    "spark-listener-queue": (
        "queue-full",
        "Spark dropped {events} before any listener received them: its listener queue was full",
    ),
}
_UNKNOWN = ("unknown", "{records} lost for an unknown reason ({kinds})")


class Drops:
    """The records of an application that were lost.

    Args:
        is_missing_any: whether records were lost before this translation began.

    Attributes:
        count: number of lost records, according to the records.
    """

    def __init__(self, is_missing_any: bool) -> None:
        self.is_missing_any = is_missing_any
        self.count = 0

    def dropped(self, record: Dropped) -> Iterable[Draft]:
        """Report lost records."""
        self.count += sum(record.records.values())
        self.is_missing_any = True
        return (_event(record),)


def _event(record: Dropped) -> Draft:
    """Return the event for lost data: the shim's records, or Spark's events that the shim did not receive."""
    count = sum(record.records.values())
    kinds = ", ".join(f"{number} {kind}" for kind, number in record.records.items())
    reason, sentence = _CAUSES.get(record.where, _UNKNOWN)
    return Draft(
        name="EventsDroppedEvent",
        class_scope="spark_events.dispatch",
        key=(record.where, record.at),
        body=sentence.format(
            records=counted(count, "record", ("was", "were")), events=counted(count, "event"), kinds=kinds
        ),
        severity=Severity.WARN,
        observed_ts_millis=record.at,
        attributes={
            "spark.events.dropped.where": record.where,
            "spark.events.dropped.reason": reason,
            "spark.events.dropped.count": count,
        },
    )
