"""SQL statements of the Thrift server that exceeded their query timeout."""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.event import AttributeValue, Severity
from spark_events.records.types import StatementTimedOut
from spark_events.translate.culprits import Culprits
from spark_events.translate.draft import Draft
from spark_events.translate.entities import failure
from spark_events.translate.incidents.fingerprint import fingerprint
from spark_events.translate.jobs import Jobs

__all__ = ["Statements"]

_TYPE = "QUERY_TIMEOUT"
_CAUSE = "its query timeout passed"


class Statements:
    """The statements that timed out.

    Args:
        jobs: to find the statement's text.
        culprits: receives the statement, whose jobs Spark cancels.
    """

    def __init__(self, jobs: Jobs, culprits: Culprits) -> None:
        self._jobs = jobs
        self._culprits = culprits

    def timed_out(self, record: StatementTimedOut) -> Iterator[Draft]:
        """Report a timeout. Spark does not report the timeout with the statement's execution and jobs.

        The statement's id is the job group of its jobs.
        """
        statement = record.statement_id
        origin = self._jobs.of_group(statement)
        key = ("sql", "statement", statement)
        self._culprits.group_failed(statement, key)
        about: dict[str, AttributeValue | None] = {
            "spark.job.group": statement,
            "failure.will_retry": False,
            "error.type": _TYPE,
            "failure.root_cause": _CAUSE,
            "failure.class": "CANCELLED",
            "failure.fingerprint": fingerprint(_TYPE, "", None),
        }
        clause = "" if origin is None else origin.clause
        body = f"SQL statement{clause} was cancelled by its query timeout"
        details = {**({} if origin is None else origin.attributes), **about}
        yield failure("sql", key[1:], body, Severity.WARN, record.time, details)
