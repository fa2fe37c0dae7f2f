"""Events in Parquet files, as ``spark_events.replay_all`` writes them: the files of a folder or of a Delta table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from spark_events.errors import SparkEventsError
from spark_events.records.event_log.log_files import is_named_like_a_log
from spark_events.records.event_log.log_paths import LogPath, entries_of, key_of
from spark_events.report.table import quoted
from spark_events.reporters.reporter import load_extra

__all__ = ["narrowed", "own_column", "parquet_files", "read_parquet"]

_DELTA = "_delta_log"
_PARQUET = ".parquet"
_ROLLING_LOG = "eventlog_v2_"
#: Names of the events whose attributes the overview of a fleet uses.
_USED = "('JobStatusChangeEvent', 'JobFailureEvent', 'ApplicationSummaryEvent')"
#: Columns of a run; together with the name and the time of an event, they tell when a run was last seen.
_RUN = "app_id, app_attempt_id, query_run_id"
_FIELDS = (
    f"{_RUN}, name, event_id, sequence, observed_ts_millis, observed_at, severity, severity_number, body, app_name,"
    " query_id, query_name, entity, status, error_type, batch_id"
)


def parquet_files(folder: LogPath) -> list[str]:
    """Return the data files of a folder, on a disk or in a storage; empty if it is not a folder of Parquet files.

    Raises:
        MissingExtraError: the folder is a Delta table, and its library is not installed.
        OSError: the folder cannot be listed.
        SparkEventsError: the Delta table cannot be read.
    """
    if _is_delta(folder):
        deltalake = load_extra("deltalake", "delta")
        try:
            uris = deltalake.DeltaTable(key_of(folder)).file_uris()
        except Exception as error:
            # Catch every error, because the library has its own types.
            raise SparkEventsError(f"{folder}: cannot read the Delta table: {str(error).splitlines()[0]}") from None
        return [unquote(urlsplit(uri).path) if uri.startswith("file:") else uri for uri in uris]
    if isinstance(folder, Path):
        files = (file for file in sorted(folder.rglob("*.parquet")) if file.is_file())
        return [str(file) for file in files if not any(map(_is_hidden, file.relative_to(folder).parts))]
    return [key_of(file) for file in _files_below(folder)] if _is_table(folder) else []


def _is_delta(folder: LogPath) -> bool:
    if isinstance(folder, Path):
        return (folder / _DELTA).is_dir()
    return _is_table(folder) and any(entry.name == _DELTA for entry in folder.iterdir())


def _is_table(folder: LogPath) -> bool:
    """Return whether Spark has written a table to a folder of a storage; a folder of logs is not listed as a whole."""
    for entry in folder.iterdir():
        is_partition = entry.is_dir() and "=" in entry.name
        if is_partition or entry.name in (_DELTA, "_SUCCESS") or entry.name.endswith(_PARQUET):
            return True
        if is_named_like_a_log(entry) or entry.name.startswith(_ROLLING_LOG):
            return False
    return False


def _files_below(folder: LogPath) -> Iterator[LogPath]:
    for entry in entries_of(folder):
        if _is_hidden(entry.name):
            continue
        if entry.is_dir():
            yield from _files_below(entry)
        elif entry.name.endswith(_PARQUET):
            yield entry


def read_parquet(files: Sequence[str]) -> str:
    """Return the table function of DuckDB for these files."""
    names = ", ".join(map(quoted, files))
    return f"read_parquet([{names}], union_by_name = true, hive_partitioning = false)"


def own_column(attribute: str) -> str:
    """Return the column of an attribute in the table that :func:`narrowed` creates."""
    return f'"{attribute}"'


def narrowed(files: Sequence[str], attributes: Sequence[str]) -> str:
    """Return the statement that creates the table ``spark_events`` for the overview of a fleet.

    The table has a column for each attribute. Most events of a fleet are commits, of which only the first and the last
    of each run are kept, with their times: a run without an end ends with its last event.
    """
    paths = ", ".join(quoted(f'$."{key}"') for key in attributes)
    columns = ", ".join(f"found[{number}] AS {own_column(key)}" for number, key in enumerate(attributes, start=1))
    source = read_parquet(files)
    return (
        f"CREATE TABLE spark_events AS SELECT * EXCLUDE (found), {columns} FROM ("
        f"SELECT {_FIELDS}, json_extract_string(attributes, [{paths}]) AS found FROM {source} WHERE name IN {_USED})"
        f" UNION ALL BY NAME SELECT {_RUN}, name, unnest([min(observed_ts_millis), max(observed_ts_millis)])"
        f" AS observed_ts_millis FROM {source} WHERE name NOT IN {_USED} GROUP BY {_RUN}, name"
    )


def _is_hidden(name: str) -> bool:
    """Return whether Spark ignores a file or folder, such as one of an unfinished write."""
    return name.startswith((".", "_"))
