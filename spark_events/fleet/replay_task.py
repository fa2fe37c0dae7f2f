"""The task of a group of event logs, on an executor."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from spark_events.event import Attributes, AttributeValue, Event, Severity
from spark_events.fleet.listing import ListedLog
from spark_events.records.event_log.log_files import EventLog, looks_like_a_log
from spark_events.reporters.database.event_rows import row_of
from spark_events.translate.replays import LogCounts, Selection, read_log
from spark_events.translate.translation_config import TranslateConfig

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "READ", "LogTask", "report_of"]

#: Name of the event that records how far a log was read.
READ = "EventLogReadEvent"
#: Columns of the result and their types in Spark: those of the table of the reporter ``database``.
COLUMNS = {
    "event_id": "string",
    "sequence": "bigint",
    "observed_ts_millis": "bigint",
    "observed_at": "timestamp",
    "name": "string",
    "class_scope": "string",
    "severity": "string",
    "severity_number": "smallint",
    "body": "string",
    **dict.fromkeys(
        ("app_id", "app_attempt_id", "app_name", "query_id", "query_run_id", "query_name", "entity", "status"), "string"
    ),
    "error_type": "string",
    **dict.fromkeys(("batch_id", "batches", "input_rows", "duration_ms"), "bigint"),
    "attributes": "string",
}


@dataclasses.dataclass(frozen=True, slots=True)
class LogTask:
    """Function for ``mapInArrow``: pickled lists of :class:`ListedLog` to rows of events.

    Attributes:
        config: settings of the translation.
        selection: the wanted events.
        rows: number of rows of one Arrow batch.
    """

    config: TranslateConfig
    selection: Selection
    rows: int = 1_000

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns of :data:`COLUMNS`."""
        import pyarrow as pa

        schema = pa.schema(_arrow_fields(pa))
        waiting: list[dict[str, Any]] = []
        for batch in batches:
            logs = itertools.chain.from_iterable(map(pickle.loads, batch.column("logs").to_pylist()))
            for log in logs:
                for events in self.events_of(log):
                    waiting.extend(map(row_of, events))
                    if len(waiting) >= self.rows:
                        yield pa.RecordBatch.from_pylist(waiting, schema)
                        waiting = []
        if waiting:
            yield pa.RecordBatch.from_pylist(waiting, schema)

    def events_of(self, listed: ListedLog) -> Iterator[list[Event]]:
        """Yield the events of a log, and finally the event that records the reading; no log raises an error."""
        log, counts, app_id = listed.log, LogCounts(), ""
        problem, is_readable = "", True
        try:
            if log.asked_for or looks_like_a_log(log.path):
                for events in read_log(log, self.config, self.selection, counts, ends=not log.in_progress):
                    app_id = str(events[-1].attributes.get("spark.app.id", app_id))
                    yield events
                problem, is_readable = _problem_of(log, counts), not counts.unreadable
            else:
                problem = _foreign(log)
        except Exception as error:
            # Catch every error: one log may not end the job that reads all others.
            problem, is_readable = f"{type(error).__name__}: {error}", False
        yield [report_of(listed, counts, app_id, problem, is_readable=is_readable)]


def _problem_of(log: EventLog, counts: LogCounts) -> str:
    is_damaged = counts.damaged or counts.unreadable or (counts.cut_off and not log.in_progress)
    if not counts.recognised and not counts.unreadable and (counts.lines or is_damaged):
        return _foreign(log)
    return next(iter(counts.notes), "damaged") if is_damaged else ""


def _foreign(log: EventLog) -> str:
    return f"{log.path}: not a Spark event log"


def report_of(listed: ListedLog, counts: LogCounts, app_id: str, problem: str, *, is_readable: bool) -> Event:
    """Return the event that records the reading of a log.

    Args:
        listed: the log.
        counts: what it contained.
        app_id: id of its application; empty: unknown.
        problem: first problem; empty: none.
        is_readable: whether all parts could be read; otherwise, the next run reads the log again.
    """
    attributes: dict[str, AttributeValue] = {
        "spark.log.path": listed.log.key,
        "spark.log.size": listed.size,
        "spark.log.modified_millis": listed.modified,
        "spark.log.readable": is_readable,
        "spark.log.complete": counts.is_over,
        "spark.log.lines": counts.lines,
        "spark.log.events": counts.events,
        "spark.log.damaged": counts.damaged,
        **({"spark.log.app_id": app_id} if app_id else {}),
        **({"spark.log.problem": problem} if problem else {}),
    }
    done = f"read {counts.lines:,} lines, {counts.events:,} events" if is_readable else "could not be read"
    # A log that could not be read is read again, and its success is another fact.
    key = "\0".join(map(str, (*listed.version, is_readable)))
    return Event(
        name=READ,
        class_scope="spark_events.fleet",
        body=f"event log {listed.log.path}: {done}{f'; {problem}' if problem else ''}",
        severity=Severity.WARN if problem else Severity.DEBUG,
        observed_ts_millis=max(0, listed.modified),
        event_id=blake2b(key.encode(errors="surrogateescape"), digest_size=16).hexdigest(),
        attributes=Attributes(attributes),
    )


def _arrow_fields(pa: Any) -> list[Any]:
    types = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "smallint": pa.int16(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return [pa.field(name, types[kind]) for name, kind in COLUMNS.items()]
