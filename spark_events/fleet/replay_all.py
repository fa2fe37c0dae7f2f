"""``replay_all``: a DataFrame with the events of all logs in a folder."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from spark_events.config import Settings
from spark_events.dispatch.pipeline_plan import read
from spark_events.event import Severity
from spark_events.fleet.listing import grouped, listed_logs
from spark_events.fleet.replay_task import COLUMNS, READ, LogTask
from spark_events.translate.replays import Selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["replay_all"]

_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


def replay_all(
    spark: SparkSession,
    path: str,
    *,
    since: datetime | timedelta | None = None,
    written: DataFrame | None = None,
    min_severity: Severity | str = Severity.TRACE,
    names: Collection[str] | None = None,
    conf: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the events of all event logs in a folder that are not written yet, as a DataFrame.

    A task reads one large log or a group of small logs, each with all its parts, with the reader of ``spark-events
    replay``. The columns are those of the table of the reporter ``database``. For each log, the result also contains
    an ``EventLogReadEvent`` with the log's path, size and time of modification, and its problems. A log that cannot be
    read fails no task.

    The driver lists the folder in this call. The executors read the logs when an action uses the DataFrame.

    >>> table = "s3://lake/spark_events"                                    # doctest: +SKIP
    >>> events = replay_all(spark, "s3://bucket/spark-logs", since=timedelta(days=7),
    ...                     written=spark.read.parquet(table))              # doctest: +SKIP
    >>> events.write.mode("append").parquet(table)                          # doctest: +SKIP

    Args:
        spark: the session. The executors need ``spark-events`` with the extras of a replay, and access to the logs.
        path: path or URL of a log, or of a folder with logs, as for ``spark-events replay``.
        since: read only logs that were changed since this time, or in this period before now.
        written: the events in the table to which the result will be appended. Logs that have not changed since are not
            read, and events whose ``event_id`` occurs there are left out.
        min_severity: the lowest severity of an event.
        names: names of events; None: all.
        conf: settings ``spark.events.*`` of the translation, such as the price of a core-hour.

    Raises:
        SparkEventsError: the place does not exist or cannot be reached.
        ConfigError: a setting is invalid.

    .. versionadded:: 0.1
    """
    from pyspark.sql import functions as F

    severity = Severity(min_severity.upper() if isinstance(min_severity, str) else min_severity)
    selection = Selection(severity, None if names is None else frozenset(names))
    task = LogTask(read(Settings.of(conf or {})).translation, selection)
    known = set() if written is None else _known(written)
    logs = [one for one in listed_logs(path, _millis(since)) if hash(one.version) not in known]
    if not logs:
        return spark.createDataFrame([], _SCHEMA)
    rows = [(number, pickle.dumps(group)) for number, group in enumerate(grouped(logs))]
    listing = spark.createDataFrame(rows, "id bigint, logs binary")
    # A range has exactly one number in each partition, and a broadcast join keeps the partitions.
    tasks = spark.range(0, len(rows), 1, len(rows)).join(F.broadcast(listing), "id").select("logs")
    # Two logs may describe one application, such as a log and its copy.
    events = tasks.mapInArrow(task, _SCHEMA).dropDuplicates(["event_id"])
    return events if written is None else events.join(written.select("event_id"), "event_id", "left_anti")


def _millis(since: datetime | timedelta | None) -> int | None:
    if since is None:
        return None
    start = datetime.now(timezone.utc) - since if isinstance(since, timedelta) else since
    return round(start.timestamp() * 1000)


def _known(written: DataFrame) -> set[int]:
    """Return the hashes of the versions of the logs that were read; the versions themselves would need much memory."""
    from pyspark.sql import functions as F

    keys = ("path", "size", "modified_millis", "readable")
    columns = (F.get_json_object("attributes", f"$['spark.log.{key}']").alias(key) for key in keys)
    rows = written.where(F.col("name") == READ).select(*columns).where("readable = 'true'")
    return {hash((row.path, int(row.size), int(row.modified_millis))) for row in rows.toLocalIterator()}
