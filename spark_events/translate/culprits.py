"""What failed in each SQL execution, statement and job group, so that work that ends with it is no second problem."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeAlias

from spark_events.event import AttributeValue
from spark_events.translate.bounded import put

__all__ = ["Culprits", "Key"]

_REMEMBERED = 4_096
#: Key of the failure event of a job or SQL execution.
Key: TypeAlias = tuple[str | int, ...]


class Culprits:
    """The first failure in each SQL execution, statement and job group."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Key] = OrderedDict()

    def execution_failed(self, execution_id: int, key: Key) -> None:
        """Note a failure in a SQL execution; only the first one counts."""
        self._note(("execution", str(execution_id)), key)

    def group_failed(self, group: str, key: Key) -> None:
        """Note that a job group was cancelled as a whole."""
        self._note(("group", group), key)

    def statement_failed(self, attributes: Mapping[str, AttributeValue], key: Key) -> None:
        """Note a failure in the statement of a client that the attributes of a job or SQL execution name, if any."""
        for name in ("spark.connect.operation_id", "spark.job.group"):
            if name in attributes:
                self._note(("statement", str(attributes[name])), key)

    def in_statement(self, statement: str) -> Key | None:
        """Return the first failure in a statement; None if nothing has failed."""
        return self._known.get(("statement", statement))

    def _note(self, work: tuple[str, str], key: Key) -> None:
        if work not in self._known:
            put(self._known, work, key, _REMEMBERED)

    def in_execution(self, execution_id: object) -> Key | None:
        """Return the first failure in a SQL execution; None if nothing has failed."""
        return self._known.get(("execution", str(execution_id)))

    def in_group(self, group: str) -> Key | None:
        """Return the failure with which a job group was cancelled as a whole; None if it was not."""
        return self._known.get(("group", group))

    def of(self, job_id: int, attributes: dict[str, AttributeValue]) -> Key | None:
        """Return the failure of other work that explains why a job failed or was cancelled; None if there is none.

        Args:
            job_id: the job.
            attributes: the attributes of the job, which name its SQL execution and its group.
        """
        found = self.in_execution(attributes.get("spark.sql.execution.id"))
        found = found or self.in_group(str(attributes.get("spark.job.group")))
        return None if found == ("job", job_id) else found
