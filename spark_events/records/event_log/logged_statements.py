"""Statements in the event log, converted as in the shim (``StatementRecords.java``)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from spark_events.records.event_log import shapes
from spark_events.records.event_log.logged_failures import beginning, cut
from spark_events.records.event_log.redaction import Redaction
from spark_events.records.types import (
    PipelineCommandCancelled,
    PipelineCommandEnded,
    PipelineCommandStarted,
    StatementFailed,
    StatementStarted,
    StatementTimedOut,
)

_MOST_RUNNING = 2_000
#: Beginning of the text of a command that defines or runs a declarative pipeline, and the indentation of the lines
#: inside the plan of such a command.
_PIPELINE, _INSIDE = "pipeline_command {", "       "


class StatementLines:
    """Converter for the lines of statements of the Thrift server and of Spark Connect clients.

    Attributes:
        redaction: redaction of the statements' texts.
    """

    def __init__(self, redaction: Redaction) -> None:
        self.redaction = redaction
        self._running: OrderedDict[str, StatementStarted] = OrderedDict()
        self._tags: dict[str, str] = {}

    def thrift_started(self, line: shapes.StatementStartLine) -> StatementStarted:
        """Return the record of a statement's start."""
        return self._noted(line.id, line.start_time, line.session_id, line.user_name, line.statement)

    def connect_started(self, line: shapes.OperationStartedLine) -> PipelineCommandStarted | None:
        """Note the start of an operation; return the record of a command of a pipeline."""
        noted = self._noted(line.operation_id, line.event_time, line.session_id, line.user_id, line.statement_text)
        self._tags[line.operation_id] = line.job_tag
        return PipelineCommandStarted(**_fields(noted, noted.time)) if _is_of_pipeline(noted) else None

    def connect_ended(
        self, line: shapes.OperationEndedLine, kind: type[PipelineCommandEnded | PipelineCommandCancelled]
    ) -> StatementStarted | None:
        """Return the record of a command of a pipeline that succeeded or was cancelled."""
        known = self._known(line.operation_id)
        return kind(**_fields(known, line.event_time)) if _is_of_pipeline(known) else None

    def _redacted(self, statement: str) -> str:
        if not statement.startswith(_PIPELINE):
            return self.redaction.text("spark.job.description", statement)
        lines = (line for line in statement.split("\n") if not line.startswith(_INSIDE))
        return "\n".join(self.redaction.text("spark.job.description", line) for line in lines).rstrip("\n")

    def _noted(self, identity: str, time: int, session: str, user: str, statement: str) -> StatementStarted:
        shown = self._redacted(beginning(statement))
        started = StatementStarted(
            statement_id=identity, time=time, started=time, session_id=session, user=user, statement=shown
        )
        self._running[identity] = started
        if len(self._running) > _MOST_RUNNING:
            self.closed(next(iter(self._running)))
        return started

    def timed_out(self, line: shapes.StatementTimeoutLine) -> StatementTimedOut:
        """Return the record of a statement that exceeded its query timeout."""
        known = self._known(line.id)
        return StatementTimedOut(
            statement_id=line.id,
            time=line.finish_time,
            started=known.started,
            session_id=known.session_id,
            user=known.user,
            statement=known.statement,
        )

    def failed(self, identity: str, time: int, error: str, trace: str = "") -> StatementFailed:
        """Return the record of a failed statement."""
        known = self._known(identity)
        return StatementFailed(
            statement_id=identity,
            time=time,
            started=known.started,
            session_id=known.session_id,
            user=known.user,
            statement=known.statement,
            tag=self._tags.get(identity),
            error=cut(error),
            trace=cut(trace),
        )

    def closed(self, identity: str) -> None:
        """Forget a statement."""
        self._running.pop(identity, None)
        self._tags.pop(identity, None)

    def _known(self, identity: str) -> StatementStarted:
        return self._running.get(identity) or StatementStarted(statement_id=identity, time=0)


def _is_of_pipeline(statement: StatementStarted) -> bool:
    return statement.statement.startswith(_PIPELINE)


def _fields(statement: StatementStarted, time: int) -> dict[str, Any]:
    fields = msgspec.structs.asdict(statement)
    return {**fields, "time": time}
