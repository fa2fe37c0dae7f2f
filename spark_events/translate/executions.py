"""Descriptions, sources and targets of SQL executions. Events of jobs and stages contain them as attributes."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from spark_events.event import AttributeValue
from spark_events.records.types import SqlExecutionStart
from spark_events.translate.bounded import put
from spark_events.translate.draft import present

__all__ = ["Executions"]

_REMEMBERED = 1_024
_LIMIT = 4_096


class Executions:
    """The attributes of the latest SQL executions, by execution id."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, dict[str, AttributeValue]] = OrderedDict()

    def started(self, record: SqlExecutionStart) -> None:
        """Remember an execution; emit no event."""
        details: dict[str, AttributeValue | None] = {
            "spark.sql.description": (record.description or "")[:_LIMIT] or None,
            "spark.sql.reads": _listed(record.reads),
            "spark.sql.writes": _listed(record.writes),
        }
        put(self._known, str(record.execution_id), present(details), _REMEMBERED)

    def attributes(self, execution_id: object) -> dict[str, AttributeValue]:
        """Return the attributes of an execution; empty if its start was not recorded or is no longer stored."""
        return self._known.get(str(execution_id), {})

    def description(self, execution_id: object) -> str:
        """Return the description of an execution, for example its call site; empty if it is unknown."""
        return str(self.attributes(execution_id).get("spark.sql.description", ""))


def _listed(names: list[str]) -> str | None:
    return msgspec.json.encode(names).decode() if names else None
