"""Table of events in DuckDB: one row per event, with the attributes that a report uses as columns.

DuckDB uses a temporary file, so that a report's memory does not grow with the number of events.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from spark_events.config.quoting import with_short_urls
from spark_events.errors import SparkEventsError
from spark_events.records.event_log.log_paths import LogPath
from spark_events.reporters.reporter import load_extra
from spark_events.sql import definitions
from spark_events.translate.summaries.stage_problems import KINDS

T = TypeVar("T")

#: Application name for events that contain neither the name nor the id of an application.
NO_APPLICATION = "(unknown application)"

#: Columns that contain attributes, by type.
_TEXTS = {
    "app_id": "spark.app.id",
    "app_name": "spark.app.name",
    "attempt": "spark.app.attempt_id",
    "query_id": "spark.streaming.query.id",
    "run_id": "spark.streaming.query.run_id",
    "query_name": "spark.streaming.query.name",
    "entity": "spark.entity",
    "status": "spark.status.new",
    "status_old": "spark.status.old",
    "incident_id": "incident.id",
    "incident_key": "incident.key",
    "incident_role": "incident.role",
    "environment": "deployment.environment.name",
    "reason": "spark.status.reason",
    "end_reason": "spark.app.end_reason",
    "error_type": "error.type",
    "fingerprint": "failure.fingerprint",
    "root_cause": "failure.root_cause",
    "location": "failure.location",
    "label": "failure.label.type",
    "will_retry": "failure.will_retry",
    "failure_class": "failure.class",
    "retry_useful": "failure.retry_useful",
    "message": "exception.message",
    "stack": "exception.stacktrace",
    "executor": "spark.executor.id",
    "loss": "spark.executor.loss",
    "watermark_subject": "spark.watermark.subject",
    "partition": "spark.source.partition",
    "source": "spark.source.description",
    "held_back_by": "spark.watermark.held_back_by",
    "rule": "spark.deadline.rule",
    "overdue_subject": "spark.deadline.subject",
    "place": "spark.deadline.place",
    "deadline_location": "spark.deadline.location",
    "topic": "spark.deadline.topic",
    "stage_name": "spark.stage.name",
    "function": "spark.enrich.function",
    "outcome": "spark.enrich.outcome",
    "dropped_where": "spark.events.dropped.where",
    "dropped_reason": "spark.events.dropped.reason",
    "reporter": "spark.events.reporter.name",
    "team": "spark.tag.team",
    "committed": "spark.batch.committed",
    "is_test": "spark.events.test",
}
_NUMBERS = {
    "batch_id": "spark.batch.id",
    "batches": "spark.batch.count",
    "rows_in": "spark.batch.rows_input",
    "trigger_ms": "spark.batch.duration.trigger_execution_ms",
    "job_id": "spark.job.id",
    "stage_id": "spark.stage.id",
    "stage_attempt": "spark.stage.attempt",
    "stage_ms": "spark.stage.duration_ms",
    "stage_lost_ms": "spark.stage.lost_ms",
    "more_added": "spark.executor.more_added",
    "more_removed": "spark.executor.more_removed",
    "source_index": "spark.source.index",
    "lag_ms": "spark.watermark.lag_ms",
    "idle_since": "spark.watermark.idle_since_millis",
    "late_rows": "spark.watermark.rows_dropped_late",
    "limit_ms": "spark.deadline.limit_ms",
    "elapsed_ms": "spark.deadline.elapsed_ms",
    "overdue_source": "spark.deadline.source",
    "calls": "spark.enrich.calls",
    "attempts": "spark.enrich.attempts",
    "retries": "spark.enrich.retries",
    "timeouts": "spark.enrich.timeouts",
    "unanswered": "spark.enrich.failures",
    "dropped": "spark.events.dropped.count",
    "lost": "spark.events.lost",
    "lost_records": "spark.events.records.dropped",
    "heartbeat_ms": "spark.heartbeat.interval_ms",
    "retried_ms": "spark.summary.retried_ms",
}
_FLOATS = {
    "p99_ms": "spark.enrich.latency.p99_ms",
    "core_hours": "spark.summary.core_hours",
    "core_hours_used": "spark.summary.core_hours_used",
    "core_hours_idle": "spark.summary.core_hours_idle",
    "cost": "spark.summary.cost",
}
#: Problems of a stage; each entry of the column ``problems`` contains the kind and the text of a problem.
_PROBLEMS = {kind: f"problem.{kind}" for kind in KINDS}
_TIMES = {"watermark": "spark.watermark.time", "newest_row": "spark.batch.event_time_max"}

_FIELDS = (
    "name: 'VARCHAR', class_scope: 'VARCHAR', body: 'VARCHAR', severity: 'VARCHAR', observed_ts_millis: 'BIGINT',"
    " event_id: 'VARCHAR', sequence: 'BIGINT'"
)
#: Events whose attributes are kept whole, for cards and comparisons of runs.
_DETAILED = (
    "JobFailureEvent",
    "JobStatusChangeEvent",
    "DeadlineStatusChangeEvent",
    "ReporterStatusChangeEvent",
    "ApplicationSummaryEvent",
)
_LAST_MILLIS = 253_402_300_799_999  # the year 9999 is the last year that both Python and JavaScript support
#: Names of events that begin or end a state. A report needs such events even from before its period.
LASTING = (
    *("DeadlineStatusChangeEvent", "ExecutorStatusChangeEvent", "ReporterStatusChangeEvent"),
    *("WatermarkStatusChangeEvent", "HeartbeatEvent"),
)
_COMPUTED = tuple(f"spark_events_{name}" for name in ("runs", "failures", "incidents", "silent_runs", "silent", "now"))
_MEMORY, _THREADS = "300MB", 2
#: Errors of DuckDB about its memory, and about the disk for temporary files.
_FULL = re.compile(r"(?i)out of memory|no space left|quota|max_temp_directory_size|could not write|failed to offload")
_ROW_GROUP = 16_384


def _columns() -> list[tuple[str, str, str]]:
    """Return name, type and SQL expression of each column that contains an attribute."""
    columns = [(name, "VARCHAR", f'attributes."{key}"') for name, key in _TEXTS.items()]
    columns += [(name, "BIGINT", f'TRY_CAST(attributes."{key}" AS BIGINT)') for name, key in _NUMBERS.items()]
    columns += [(name, "DOUBLE", f'TRY_CAST(attributes."{key}" AS DOUBLE)') for name, key in _FLOATS.items()]
    app = ", ".join(f"nullif(attributes.\"{_TEXTS[name]}\", '')" for name in ("app_name", "app_id"))
    columns.append(("app", "VARCHAR", f"coalesce({app}, '{NO_APPLICATION}')"))
    found = ", ".join(f"'{kind}' || chr(31) || attributes.\"{key}\"" for kind, key in _PROBLEMS.items())
    columns.append(("problems", "VARCHAR", f"nullif(concat_ws(chr(30), {found}), '')"))
    for name, key in _TIMES.items():
        columns.append((name, "BIGINT", f'epoch_ms(TRY_CAST(attributes."{key}" AS TIMESTAMP))'))
    return columns


def column_of(attribute: str) -> str:
    """Return the column of ``spark_events`` with an attribute."""
    known = {key: name for columns in (_TEXTS, _NUMBERS, _FLOATS) for name, key in columns.items()}
    return f'"{known[attribute]}"'


#: The events, in the columns of the database reporter's table. A run whose start and end are missing, because its file
#: was rotated, gets a row without a status.
_SPARK_EVENTS = f"""
CREATE OR REPLACE VIEW spark_events AS
WITH row AS (
  SELECT id AS event_id, sequence, ts AS observed_ts_millis, epoch_ms(ts) AS observed_at, name, body,
    ['TRACE', 'DEBUG', 'INFO', 'WARN', 'ERROR', 'FATAL'][severity] AS severity, 4 * severity - 3 AS severity_number,
    attempt AS app_attempt_id, run_id AS query_run_id, rows_in AS input_rows, trigger_ms AS duration_ms,
    app AS app_name, coalesce(app_id, app) AS app_id, source_number AS source,
    * EXCLUDE (id, sequence, ts, name, body, severity, attempt, run_id, app_id, app_name, source_number)
  FROM event WHERE name <> 'TestEvent'
)
SELECT * FROM row
WHERE name <> 'JobStatusChangeEvent' OR entity <> 'application' OR app_name <> '{NO_APPLICATION}'
UNION ALL BY NAME
SELECT 'JobStatusChangeEvent' AS name, 'application' AS entity, app_name, app_id, app_attempt_id,
  min(observed_ts_millis) AS observed_ts_millis, min(source) AS source
FROM row WHERE app_name <> '{NO_APPLICATION}' GROUP BY app_name, app_id, app_attempt_id
HAVING NOT bool_or(name = 'JobStatusChangeEvent' AND entity = 'application')
UNION ALL BY NAME
SELECT 'JobStatusChangeEvent' AS name, 'query' AS entity, app_name, app_id, app_attempt_id, query_run_id,
  any_value(query_id) AS query_id, any_value(query_name) AS query_name, min(observed_ts_millis) AS observed_ts_millis,
  min(source) AS source
FROM row WHERE coalesce(query_id, query_name) IS NOT NULL AND query_run_id IS NOT NULL
GROUP BY app_name, app_id, app_attempt_id, query_run_id
HAVING NOT bool_or(name = 'JobStatusChangeEvent' AND entity = 'query')
"""


class TemporaryFilesError(SparkEventsError):
    """The folder for temporary files is unusable or full, or the memory is full."""


class EventTable:
    """Table of a report's events; a context manager that deletes the temporary files.

    Raises:
        MissingExtraError: DuckDB is not installed.
        TemporaryFilesError: no folder for temporary files is usable.
    """

    def __init__(self) -> None:
        duckdb = load_extra("duckdb", "report")
        self._errors: type[Exception] = duckdb.Error
        self._limits: tuple[type[Exception], ...] = (duckdb.IOException, duckdb.OutOfMemoryException)
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="spark-events-report-")
        except OSError as error:
            raise TemporaryFilesError(
                f"no folder for temporary files is usable ({error.strerror}); set TMPDIR to another folder"
            ) from None
        self.folder = Path(self._folder.name)
        self._connection = duckdb.connect(
            config={
                "threads": _THREADS,
                "memory_limit": _MEMORY,
                "preserve_insertion_order": False,
                "temp_directory": str(self.folder / "spill"),
                # Prevent DuckDB from downloading extensions.
                "autoinstall_known_extensions": False,
            },
        )
        # DuckDB would print it to standard output.
        self.run("SET enable_progress_bar = false")
        # Use small row groups, because each thread buffers one row group per column in memory.
        path = quoted(str(self.folder / "events.duckdb"))
        self.run(f"ATTACH {path} AS stored (ROW_GROUP_SIZE {_ROW_GROUP})")
        self.run("USE stored")
        columns = ", ".join(f'"{name}" {kind}' for name, kind, _ in _columns())
        self.run(
            "CREATE TABLE event (id UHUGEINT, ts BIGINT, sequence BIGINT, name VARCHAR, severity UTINYINT,"
            f" body VARCHAR, {columns}, source_number INTEGER, is_ahead BOOLEAN)"
        )
        self.run("CREATE TABLE detail (id UHUGEINT, attributes JSON)")
        self._links = 0
        #: Number of lines that are not events.
        self.damaged = 0

    def run(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement and return its rows.

        Raises:
            TemporaryFilesError: the memory or the disk for temporary files is full.
        """
        try:
            rows: list[Any] = self._connection.execute(statement, values or None).fetchall()
            return rows
        except self._limits as error:
            raise self.full(error) from None

    def read_files(self, place: LogPath, statement: str) -> None:
        """Run a statement that reads Parquet files of a place, on a disk or in a storage.

        Raises:
            SparkEventsError: a file cannot be read.
            TemporaryFilesError: the memory or the disk for temporary files is full.
        """
        if not isinstance(place, Path):
            filesystem = place.filesystem()  # type: ignore[attr-defined]
            protocols = filesystem.protocol
            name = protocols if isinstance(protocols, str) else protocols[0]
            if not self._connection.filesystem_is_registered(name):
                self._connection.register_filesystem(filesystem)
        try:
            self._connection.execute(statement)
        except Exception as error:
            # Catch every error, because each storage library has its own types.
            if isinstance(error, self._limits) and _FULL.search(str(error)):
                raise self.full(error) from None
            reason = with_short_urls((str(error).strip() or type(error).__name__).splitlines()[0])
            raise SparkEventsError(f"{place}: cannot read the table: {reason}") from None

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """Run one statement and return its rows by column name; raise the errors of :meth:`run`."""
        rows = self.run(statement)
        names = [column[0] for column in self._connection.description]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def records(self, kind: type[T], statement: str) -> list[T]:
        """Return the rows of a statement, whose columns have the names of the fields of ``kind``."""
        return [msgspec.convert(row, kind) for row in self.rows(statement)]

    def by_subject(self, kind: type[T], statement: str) -> dict[str, tuple[T, ...]]:
        """Return the rows of a statement like :meth:`records`, by the column ``subject``."""
        found: dict[str, list[T]] = defaultdict(list)
        for row in self.rows(statement):
            found[row["subject"]].append(msgspec.convert(row, kind))
        return {subject: tuple(some) for subject, some in found.items()}

    def full(self, error: Exception) -> TemporaryFilesError:
        """Return the error for full memory or a full disk."""
        first = str(error).partition("\n")[0]
        return TemporaryFilesError(
            f"cannot compute the report in {self.folder.parent}; set TMPDIR to use another folder: {first}"
        )

    def load(self, file: Path, compressed: bool, since: int | None, source: int = 0) -> int:
        """Add the events of a file of JSON lines; return their number.

        The failure and the recovery that ``spark-events send-test --sample failure`` sends are left out.

        Args:
            file: the file.
            compressed: whether the file is compressed with gzip.
            since: start of the report's period. Earlier events are kept only if the period needs them.
            source: number of the source.

        Raises:
            OSError: the file cannot be read, or ends within a compressed block.
            TemporaryFilesError: the disk with the temporary files is full.
        """
        # Read the file through a symbolic link: DuckDB expands *, ? and [ in file names, and derives the compression
        # from the name.
        self._links += 1
        link = self.folder / f"{self._links}.jsonl{'.gz' if compressed else ''}"
        link.symlink_to(file.resolve())
        attributes = ", ".join(
            f'"{key}" VARCHAR' for keys in (_TEXTS, _NUMBERS, _FLOATS, _TIMES, _PROBLEMS) for key in keys.values()
        )
        expressions = ", ".join(expression for _, _, expression in _columns())
        entity = f'attributes."{_TEXTS["entity"]}"'
        where = f"(name = 'TestEvent' OR attributes.\"{_TEXTS['is_test']}\" IS DISTINCT FROM 'true')"
        if since is not None:
            where += f" AND (name IS NULL OR ts >= {since} OR {lasting(entity)})"
        before = self.count()
        statement = (
            "INSERT INTO event SELECT md5_number(event_id), observed_ts_millis AS ts, sequence, name,"
            " list_position(['TRACE', 'DEBUG', 'INFO', 'WARN', 'ERROR', 'FATAL'], severity),"
            " CASE WHEN name <> 'BatchCommitEvent' AND name <> 'HeartbeatEvent' THEN body END,"
            f" {expressions}, {source}, false FROM read_json({quoted(str(link))}, format = 'newline_delimited',"
            f" ignore_errors = true, columns = {{{_FIELDS}, attributes: 'STRUCT({attributes})'}}) WHERE {where}"
        )
        names = ", ".join(f"'{name}'" for name in _DETAILED)
        details = (
            f"INSERT INTO detail SELECT md5_number(event_id), attributes FROM read_json({quoted(str(link))},"
            " format = 'newline_delimited', ignore_errors = true,"
            " columns = {event_id: 'VARCHAR', name: 'VARCHAR', attributes: 'JSON'})"
            f" WHERE name IN ({names}) AND event_id IS NOT NULL"
        )
        try:
            self._connection.execute(statement)
            self._connection.execute(details)
        except self._errors as error:
            if isinstance(error, self._limits[1]) or "No space left" in str(error):
                raise self.full(error) from None
            raise OSError(None, str(error).partition("\n")[0]) from None
        bad = f"id IS NULL OR name IS NULL OR ts IS NULL OR ts NOT BETWEEN 0 AND {_LAST_MILLIS}"
        damaged = int(self.run(f"SELECT count(*) FROM event WHERE {bad}")[0][0])
        if damaged:
            self.damaged += damaged
            self.run(f"DELETE FROM event WHERE {bad}")
        return self.count() - before

    def count(self) -> int:
        """Return the number of events in the table."""
        return int(self.run("SELECT count(*) FROM event")[0][0])

    def newest(self, *, is_ahead: bool = True) -> int | None:
        """Return the time of the newest event; None without events.

        Args:
            is_ahead: whether events that were dated in the future count.
        """
        time: int | None = self.run(f"SELECT max(ts) FROM event{'' if is_ahead else ' WHERE NOT is_ahead'}")[0][0]
        return time

    def remove_duplicates(self) -> int:
        """Remove events with duplicate ids; return how many were removed.

        The outcome and reason of a live run replace the unknown outcome and reason of a replay.
        """
        repeated = int(self.run("SELECT count(*) - count(DISTINCT id) FROM event")[0][0])
        if repeated:
            for column, unknown in (("status", "ENDED"), ("end_reason", "UNKNOWN")):
                known = f"SELECT id FROM event WHERE name = 'JobStatusChangeEvent' AND {column} <> '{unknown}'"
                self.run(f"DELETE FROM event WHERE {column} = '{unknown}' AND id IN ({known})")
            self.run("DELETE FROM event WHERE rowid NOT IN (SELECT min(rowid) FROM event GROUP BY id)")
        return repeated

    def separate_environments(self) -> None:
        """Add the environment to the name of each application that has events of several environments."""
        several = "SELECT app FROM event GROUP BY app HAVING count(DISTINCT coalesce(environment, '')) > 1"
        self.run(
            "UPDATE event SET app = app || ' (' || environment || ')'"
            f" WHERE environment IS NOT NULL AND app IN ({several})"
        )

    def compute_sources(self, now: int) -> None:
        """Compute the table of sources, from all events; ``now`` is the current time in milliseconds."""
        self.run(_SPARK_EVENTS)
        self.run(definitions.table("spark_events_sources", column_of, now))

    def compute(self, now: int, column: Callable[[str], str] = column_of, names: Sequence[str] = _COMPUTED) -> None:
        """Compute the tables of runs, failures, incidents and current problems, from the events that remain.

        Args:
            now: the current time, in milliseconds.
            column: returns the expression of an attribute in ``spark_events``.
            names: the wanted tables.
        """
        for name in names:
            self.run(definitions.table(name, column, now))

    def __enter__(self) -> EventTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._folder.cleanup()


def named(application: str, environment: str) -> str:
    """Return the name of an application of several environments, as :class:`EventTable` writes it."""
    return f"{application} ({environment})"


def without_environment(application: str) -> str:
    """Return the name of an application without the environment that :class:`EventTable` may have added."""
    name, _, rest = application.rpartition(" (")
    return name if name and rest.endswith(")") else application


def quoted(text: str) -> str:
    """Return a string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def lasting(entity: str = "entity") -> str:
    """Return the SQL condition for events that a report needs even from before its period.

    Args:
        entity: expression of the attribute ``spark.entity``.
    """
    names = ", ".join(f"'{name}'" for name in LASTING)
    return f"(name IN ({names}) OR (name = 'JobStatusChangeEvent' AND {entity} IN ('application', 'query')))"
