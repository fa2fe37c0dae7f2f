"""Statements that the Thrift server or the Spark Connect server runs for a client, if they fail or time out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from spark_events.event import AttributeValue, Severity
from spark_events.records.types import StatementFailed, StatementStarted, StatementTimedOut
from spark_events.translate.call_sites import described
from spark_events.translate.clients import with_client
from spark_events.translate.culprits import Culprits
from spark_events.translate.draft import Draft
from spark_events.translate.entities import failure
from spark_events.translate.executions import Executions, statement_attributes
from spark_events.translate.failures import Diagnosis, Diagnostics
from spark_events.translate.incidents.fingerprint import fingerprint
from spark_events.translate.job_tags import job_tags
from spark_events.translate.jobs import Jobs
from spark_events.translate.pipelines import Pipelines
from spark_events.translate.sql_executions import was_interrupted
from spark_events.translate.standing_failures import StandingFailure, StandingFailures, same_cause

__all__ = ["Statements"]

_TYPE = "QUERY_TIMEOUT"
_CAUSE = "its query timeout passed"
#: Status code with which the Spark Connect server begins the message of a failed operation.
_STATUS = re.compile(r"^[A-Z_]+:\s+")
#: Error of a client that waits for a query that fails; the query reports the failure.
_OF_QUERY = "[STREAM_FAILED]"
#: Text of a SQL statement in the description of a Spark Connect operation.
_QUERY = re.compile(r'\bsql(?:_command)? \{\s+(?:query|sql): "((?:[^"\\]|\\.)*)')
_ESCAPED = re.compile(r"\\(.)")
_BREAKS = {"n": "\n", "t": "\t", "r": "\r"}


class Statements:
    """The statements that failed or timed out.

    Args:
        jobs: to find the jobs of a statement.
        executions: receives the statements of the Thrift server.
        culprits: what failed in the statements; receives those that timed out, whose jobs Spark cancels.
        diagnostics: analyses exceptions.
        standing: the failures that stand.
        pipelines: handle the commands of pipelines, which are no statements.
    """

    def __init__(
        self,
        jobs: Jobs,
        executions: Executions,
        culprits: Culprits,
        diagnostics: Diagnostics,
        standing: StandingFailures,
        pipelines: Pipelines,
    ) -> None:
        self._jobs = jobs
        self._executions = executions
        self._culprits = culprits
        self._diagnostics = diagnostics
        self._standing = standing
        self._pipelines = pipelines

    def started(self, record: StatementStarted) -> None:
        """Note a statement of the Thrift server; emit no event."""
        self._executions.statement_started(record)

    def timed_out(self, record: StatementTimedOut) -> Iterator[Draft]:
        """Report a timeout. Spark does not report the timeout with the statement's execution and jobs.

        The statement's id is the job group of its jobs.
        """
        statement = record.statement_id
        origin = self._jobs.of_group(statement)
        key = ("sql", "statement", statement)
        self._culprits.group_failed(statement, key)
        about: dict[str, AttributeValue | None] = {
            "failure.will_retry": False,
            "error.type": _TYPE,
            "failure.root_cause": _CAUSE,
            "failure.class": "CANCELLED",
            "failure.fingerprint": fingerprint(_TYPE, "", None),
        }
        clause = _clause(record) if origin is None or not origin.clause else origin.clause
        body = f"SQL statement{clause} was cancelled by its query timeout"
        attributes = {} if origin is None else origin.attributes
        details = {**attributes, **statement_attributes(record), **about}
        yield failure("sql", key[1:], body, Severity.WARN, record.time, details)

    def failed(self, record: StatementFailed) -> Iterator[Draft]:
        """Report a statement that failed before a job or a SQL execution started: WARN.

        A statement is not reported if one of its jobs or executions has failed, if it was cancelled or timed out, or if
        it waited for a query that failed. On Spark versions that do not tell the statement of a SQL execution, a
        statement with the cause of the failure that stands is INFO.
        """
        statement = record.statement_id
        if self._pipelines.knows(statement):
            yield from self._pipelines.failed(record)
            return
        if self._culprits.in_statement(statement) or self._culprits.in_group(statement):
            return
        error = _STATUS.sub("", record.error)
        diagnosis = self._diagnostics.of_text(record.trace or error)
        if diagnosis.cancelled or was_interrupted(diagnosis) or error.startswith(_OF_QUERY):
            return
        before = self._standing.last
        is_known = before is not None and before.at >= record.started > 0
        is_known = is_known and before is not None and same_cause(before.diagnosis.root_cause, diagnosis.root_cause)
        clause = _clause(record)
        body = f"SQL statement{clause} failed: {diagnosis.summary}"
        if not is_known:
            self._note(record, clause, diagnosis)
        severity = Severity.INFO if is_known else Severity.WARN
        details = {**_attributes(record), "failure.will_retry": False, **diagnosis.attributes}
        yield failure("sql", ("statement", statement), body, severity, record.time, details)

    def _note(self, record: StatementFailed, clause: str, diagnosis: Diagnosis) -> None:
        title = "SQL statement"
        self._standing.note(StandingFailure(title, f"{title}{clause} failed", diagnosis, record.time))


def _attributes(record: StatementFailed) -> dict[str, AttributeValue | None]:
    if record.tag is None:
        return statement_attributes(record)
    return {**job_tags(record.tag).attributes, "spark.sql.statement": _sql_of(record.statement) or None}


def _clause(record: StatementStarted) -> str:
    """Return the statement's text, user and session in brackets."""
    of_connect = isinstance(record, StatementFailed) and record.tag is not None
    text = described(_sql_of(record.statement) if of_connect else record.statement)
    return with_client(f" ({text})" if text else "", statement_attributes(record))


def _sql_of(operation: str) -> str:
    """Return the SQL text of a Spark Connect operation, which Spark describes as text of its protocol; "" if none."""
    found = _QUERY.search(operation)
    return "" if found is None else _ESCAPED.sub(lambda escaped: _BREAKS.get(escaped[1], escaped[1]), found[1])
