"""Sources of a report: files of JSON lines, databases and Spark's event logs."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from spark_events.config.quoting import quoted_source
from spark_events.config.references import resolve
from spark_events.errors import MissingExtraError, SparkEventsError
from spark_events.event import Event, encode_lines
from spark_events.records.event_log.compression import CutOffError, DamagedLogError, pieces
from spark_events.records.event_log.log_files import EventLog, find_logs, is_named_like_a_log, looks_like_a_log
from spark_events.records.event_log.log_paths import FORMS, LogPath, is_log_url, place_of
from spark_events.report.columnar import parquet_files, read_parquet
from spark_events.report.report_model import SourceSummary
from spark_events.report.table import EventTable, TemporaryFilesError, lasting, quoted, without_environment
from spark_events.report.wording import counted
from spark_events.reporters.database.database_config import DatabaseConfig, database_url
from spark_events.reporters.file.reading import GZIP, event_of
from spark_events.reporters.file.rotation import Archive
from spark_events.translate.replays import Selection, replay_logs
from spark_events.translate.translation_config import TranslateConfig

_SQLITE = b"SQLite format 3\0"
_COLUMNS = ("event_id", "sequence", "observed_ts_millis", "name", "class_scope", "severity", "body")
_CHUNK = 5_000
#: Time limit for a statement on PostgreSQL, in seconds.
_PATIENCE = 600.0

#: Start of a line of an event log, as Spark writes it.
_LOG_START = re.compile(rb'\s*\{\s*"Event"\s*:')
#: Name of the file in which ``spark-events watch`` records the losses that it has reported.
_RECORD = "spark-events-watch.jsonl"
#: Minimum step of the progress display, as a fraction of an event log.
_STEP = 0.01


def source_to_type(source: str) -> str:
    """Return a source as commands name it: complete, so that they work, unless it may contain a secret.

    The URL of event logs that could be read contains none.

    >>> source_to_type("s3://bucket/spark-logs"), source_to_type("sqlite:///events.db")
    ('s3://bucket/spark-logs', 'sqlite:///events.db')
    >>> source_to_type("postgresql://ada:s3cret@db/events"), source_to_type("postgresql://db/events?password=s3cret")
    ('postgresql://db/…', 'postgresql://db/…')
    """
    is_complete = is_log_url(source) or not ("@" in source or "?" in source)
    return source if is_complete else quoted_source(source)


@dataclasses.dataclass(slots=True)
class Reading:
    """Reader of sources, which adds their events to a table.

    Attributes:
        table: the table.
        since: start of the report's period, in milliseconds; None: no limit.
        translation: settings for the events of event logs.
        progress: receives the name of the current source and, for an event log, the fraction read so far.
        jobs: number of processes that read event logs.
        applications: names or ids, if databases and Parquet files should return only the events of these applications.
        notes: problems of the sources, one sentence each.
        summaries: one summary for each source that was read.
    """

    table: EventTable
    since: int | None = None
    translation: TranslateConfig = dataclasses.field(default_factory=TranslateConfig)
    progress: Callable[[str, float | None], None] = lambda text, fraction: None
    jobs: int = 1
    applications: Sequence[str] = ()
    notes: list[str] = dataclasses.field(default_factory=list)
    summaries: list[SourceSummary] = dataclasses.field(default_factory=list)
    _seen: set[LogPath] = dataclasses.field(default_factory=set)

    def read(self, source: str) -> None:
        """Read one source: a path or the URL of a database.

        Raises:
            SparkEventsError: the source does not exist, cannot be read, or has no events.
        """
        try:
            if is_log_url(source):
                self._place(place_of(source), quoted_source(source))
            elif "://" in source:
                self._database(source)
            elif (path := Path(source)).exists():
                self._path(path)
            else:
                raise SparkEventsError(f"{quoted_source(source)}: no such file or folder")
        except (CutOffError, DamagedLogError) as error:
            raise SparkEventsError(f"{quoted_source(source)}: {error}") from None
        except OSError as error:
            where = error.filename or quoted_source(source)
            raise SparkEventsError(f"cannot read {where}: {error.strerror or error}") from None

    def add(self, events: Iterator[list[Event]], text: str, kind: str) -> None:
        """Add events from an iterable."""
        self._load_lines((encode_lines(some) for some in events if some), text, kind)

    def _place(self, place: LogPath, text: str) -> None:
        """Read the table or the event logs of a storage; other files there are skipped."""
        if isinstance(place, Path):
            if not place.exists():
                raise SparkEventsError(f"{place}: no such file or folder")
            self._path(place)
            return
        if place.is_dir() and (files := parquet_files(place)):
            self._parquet(files, place, text)
            return
        before = len(self.notes)
        found = find_logs(place, self._unreadable)
        if not self._logs(log for log in found if log.asked_for or looks_like_a_log(log.path)):
            details = "".join(f"; {note}" for note in self.notes[before : before + 1])
            raise SparkEventsError(f"{text}: no event log and no table{details}")

    def _unreadable(self, error: OSError) -> None:
        self.notes.append(f"cannot read {error.filename}: {error.strerror or error}; skipped")

    def _path(self, path: Path) -> None:
        if path.is_dir():
            if files := parquet_files(path):
                self._parquet(files, path, str(path))
            else:
                self._folder(path)
            return
        kind = _kind_of(path)
        if kind is None:
            raise SparkEventsError(
                f"{path}: unknown format; expected JSON lines of a 'file' reporter, Spark event logs and"
                " SQLite databases of a 'database' reporter"
            )
        self._file(path, kind)
        if kind == "events":
            for older in Archive(path, keep=0).files():
                self._file(older, kind)
            self._losses(path.parent / _RECORD)

    def _folder(self, folder: Path) -> None:
        """Read all files below a folder; note the files that cannot be read."""
        is_empty, notes = True, len(self.notes)
        parts: set[LogPath] = set()
        logs: list[EventLog] = []
        for log in find_logs(folder, self._unreadable):
            if log.files != (log.path,) and any(map(looks_like_a_log, log.files)):
                parts.update(log.files)
                logs.append(log)
        for file in sorted(folder.rglob("*")):
            if file not in parts and file.is_file():
                with self._noting(file):
                    kind = _kind_of(file)
                    if kind == "log":
                        logs.extend(find_logs(file))
                    elif kind is not None and kind != "empty":
                        self._file(file, kind)
                        is_empty = False
                    elif kind is None and is_named_like_a_log(file) and not file.name.startswith("."):
                        self.notes.append(f"{file}: not a Spark event log; skipped")
        if not self._logs(logs) and is_empty:
            details = "".join(f"; {note}" for note in self.notes[notes : notes + 1])
            raise SparkEventsError(f"{folder}: this folder contains no file of events, event log or database{details}")

    @contextlib.contextmanager
    def _noting(self, path: Path) -> Iterator[None]:
        """Add a note if a file or folder cannot be read, instead of raising the error."""
        try:
            yield
        except TemporaryFilesError:
            raise
        except SparkEventsError as error:
            self.notes.append(f"{error}; skipped")
        except OSError as error:
            self.notes.append(f"cannot read {error.filename or path}: {error.strerror or error}; skipped")

    def _is_new(self, path: LogPath) -> bool:
        real = path.resolve()
        if real in self._seen:
            return False
        self._seen.add(real)
        return True

    def _losses(self, file: Path) -> None:
        """Read the losses that ``spark-events watch`` has recorded for the applications in the table."""
        if not file.is_file() or file.resolve() in self._seen:
            return
        known = {row[0] for row in self.table.run("SELECT DISTINCT app_id FROM event WHERE app_id IS NOT NULL")}
        with file.open("rb") as opened:
            events = [event for line in opened if (event := event_of(line)) is not None]
        losses = [event for event in events if event.attributes.get("spark.app.id") in known]
        if losses:
            self.add(iter([losses]), str(file), "events")

    def _file(self, file: Path, kind: str) -> None:
        if not self._is_new(file):
            return
        if kind == "empty":
            self.summaries.append(SourceSummary(str(file), "empty", 0))
        elif kind == "log":
            self._logs(find_logs(file), all_times=True)
        elif kind == "sqlite":
            self._rows(_sqlite_rows(file, self._condition()), str(file))
        else:
            with file.open("rb") as opened:
                compressed = opened.read(2) == GZIP
            try:
                self._load(file, compressed, str(file), "events")
            except OSError:
                if not compressed:
                    raise
                self._load_lines(self._readable_part(file), str(file), "events")

    def _readable_part(self, file: Path) -> Iterator[bytes]:
        """Yield the readable beginning of a damaged compressed file."""
        with file.open("rb") as opened:
            try:
                yield from pieces(opened, self.notes.append)
            except (CutOffError, DamagedLogError) as error:
                self.notes.append(f"{file}: {error}")

    def _load_lines(self, lines: Iterable[bytes], text: str, kind: str) -> None:
        """Load JSON lines through a temporary file."""
        file = self.table.folder / "lines.jsonl"
        try:
            with file.open("wb") as opened:
                opened.writelines(lines)
        except OSError as error:
            # Only writing can fail with these errors, not reading the source.
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self.table.full(error) from None
            raise
        self._load(file, False, text, kind)
        file.unlink()

    def _load(self, file: Path, compressed: bool, text: str, kind: str) -> None:
        damaged = self.table.damaged
        self.progress(text, None)
        found = self.table.load(file, compressed, self.since, len(self.summaries))
        if damaged := self.table.damaged - damaged:
            skipped = counted(damaged, "line that is not an event", "lines that are not events")
            self.notes.append(f"{text}: skipped {skipped}")
        self.summaries.append(SourceSummary(text, kind, found))

    def _logs(self, logs: Iterable[EventLog], *, all_times: bool = False) -> int:
        """Read event logs, unless they are older than the period; return their number."""
        older = found = 0

        def chosen() -> Iterator[EventLog]:
            nonlocal older, found
            for log in logs:
                found += 1
                if not all_times and log.is_older(self.since):
                    older += 1
                elif all_times or self._is_new(log.path):
                    self.progress(str(log.path), None)
                    yield log

        text, shown = "", 0.0

        def progress(fraction: float) -> None:
            nonlocal shown
            if fraction >= shown + _STEP:
                shown = fraction
                self.progress(text, shown)

        for one in replay_logs(chosen(), self.translation, Selection(), self.jobs, on_progress=progress):
            text, shown = str(one.log.path), 0.0
            self._load_lines(one.lines, text, "event log")
            counts = one.counts
            self.notes.extend(counts.notes)
            if not counts.recognised and (counts.lines or counts.damaged):
                self.notes.append(f"{text}: not a Spark event log; pass a file or folder from spark.eventLog.dir")
            elif counts.damaged:
                self.notes.append(f"{text}: skipped {counts.damaged:,} damaged lines or blocks")
        if older:
            self.notes.append(
                f"{counted(older, 'event log')} last modified before the period not read; failures in them that still"
                " stand are missing"
            )
        return found

    def _database(self, source: str) -> None:
        config = _database_config(source)
        url = config.url.reveal()
        if url.startswith("sqlite:"):
            path = _sqlite_path(url)
            self._rows(_sqlite_rows(Path(path), self._condition()), path)
        else:
            where, rows = _postgresql_rows(config, _select(self._condition(), "CAST(attributes AS TEXT)"))
            self._rows(map(tuple, rows), where)

    def _parquet(self, files: Sequence[str], place: LogPath, text: str) -> None:
        self.progress(text, None)
        lines = self.table.folder / "lines.jsonl"
        columns = f"{', '.join(_COLUMNS)}, CAST(attributes AS JSON) AS attributes"
        selected = f"SELECT {columns} FROM {read_parquet(files)} WHERE {self._condition()}"
        self.table.read_files(place, f"COPY ({selected}) TO {quoted(str(lines))} (FORMAT json)")
        self._load(lines, False, text, "parquet")
        lines.unlink()

    def _condition(self) -> str:
        period = "1 = 1" if self.since is None else f"(observed_ts_millis >= {self.since} OR {lasting()})"
        if not self.applications:
            return period
        chosen = {*self.applications, *map(without_environment, self.applications)}
        names = ", ".join(map(quoted, sorted(chosen)))
        return f"{period} AND (app_name IN ({names}) OR app_id IN ({names}))"

    def _rows(self, rows: Iterator[tuple[Any, ...]], text: str) -> None:
        self.progress(text, None)
        self._load_lines(map(_line_of, rows), text, "database")


def _line_of(row: tuple[Any, ...]) -> bytes:
    attributes = row[-1] if isinstance(row[-1], str) else "{}"
    event = dict(zip(_COLUMNS, row, strict=False)) | {"attributes": msgspec.Raw(attributes.encode())}
    return msgspec.json.encode(event) + b"\n"


def _kind_of(file: Path) -> str | None:
    """Return ``events``, ``log``, ``sqlite``, ``empty``, or None for another format.

    Raises:
        MissingExtraError: the library for the file's compression is not installed.
        OSError: the file cannot be read.
    """
    with file.open("rb") as opened:
        start = opened.read(16)
        if not start:
            return "empty"
        if start == _SQLITE:
            return "sqlite"
        opened.seek(0)
        try:
            first = next(pieces(opened, lambda _: None), b"")
        except MissingExtraError as error:
            raise MissingExtraError(f"{file}: {error}") from None
        except (CutOffError, DamagedLogError, EOFError):
            return None
    start = first[:100_000]
    if _LOG_START.match(start):
        return "log"
    if b'"event_id"' in start or b'"observed_ts_millis"' in start:
        return "events"
    return "log" if b'"Event"' in start else None


def _sqlite_rows(path: Path, condition: str) -> Iterator[tuple[Any, ...]]:
    with _sqlite(path) as connection:
        cursor = connection.execute(_select(condition, "attributes"))
        while rows := cursor.fetchmany(_CHUNK):
            yield from rows


@contextlib.contextmanager
def _sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.exists():
        raise SparkEventsError(f"{path}: no such file or folder")
    # Open the database read-only, so that the reader does not block its writers.
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise SparkEventsError(f"cannot read {path}: {error}") from None


def is_database(source: str) -> bool:
    """Return whether a source is the URL of a database."""
    return "://" in source and not is_log_url(source)


def database_rows(source: str, statement: Callable[[str], str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a statement by column name.

    Args:
        source: the URL.
        statement: returns the statement for ``postgresql`` or ``sqlite``.

    Raises:
        SparkEventsError: the database cannot be read.
    """
    config = _database_config(source)
    url = config.url.reveal()
    if not url.startswith("sqlite:"):
        _, rows = _postgresql_rows(config, statement("postgresql"))
        yield from (dict(row._mapping) for row in rows)
        return
    with _sqlite(Path(_sqlite_path(url))) as connection:
        cursor = connection.execute(statement("sqlite"))
        names = [column[0] for column in cursor.description]
        yield from (dict(zip(names, row, strict=True)) for row in cursor)


def _database_config(source: str) -> DatabaseConfig:
    try:
        return DatabaseConfig(database_url.parse(resolve(source)), timeout=_PATIENCE)
    except ValueError:
        raise SparkEventsError(f"SOURCE: expected a path, {database_url.allowed}, or {FORMS}") from None


def _sqlite_path(url: str) -> str:
    return url.removeprefix("sqlite:///").partition("?")[0]


def _postgresql_rows(config: DatabaseConfig, statement: str) -> tuple[str, Iterator[Any]]:
    from spark_events.reporters.reporter import load_extra

    load_extra("sqlalchemy", "database")
    from sqlalchemy import text

    from spark_events.reporters.database import engines, event_tables

    try:
        engine = engines.create(config)
    except ValueError as error:
        raise SparkEventsError(f"SOURCE: {error}") from None
    where = engines.where(engine.url)

    def rows() -> Iterator[Any]:
        try:
            with engine.connect() as connection:
                # Set this option only for the statement. If set for the connection, it would also apply to SET LOCAL.
                streamed = text(statement).execution_options(stream_results=True, yield_per=_CHUNK)
                yield from connection.execute(streamed)
        except Exception as error:
            raise SparkEventsError(f"cannot read {where}: {event_tables.reason(error)}") from None
        finally:
            engine.dispose()

    return where, rows()


def _select(condition: str, attributes: str) -> str:
    return f"SELECT {', '.join(_COLUMNS)}, {attributes} FROM spark_events WHERE {condition}"
