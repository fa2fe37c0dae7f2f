"""Events for committed micro-batches, created from Spark's progress reports."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import msgspec

from spark_events.event import AttributeValue, Severity, snake_case
from spark_events.records.query_progress import SourceProgress, StreamingProgress
from spark_events.records.types import QueryProgress
from spark_events.translate.clients import with_client
from spark_events.translate.commit_log import CommitLog
from spark_events.translate.draft import Draft, counted, iso_millis, present
from spark_events.translate.offsets import lag, offset_text
from spark_events.translate.queries import Run
from spark_events.translate.state import repaired, state_attributes
from spark_events.translate.translation_config import BatchCommitConfig

__all__ = ["Commits", "committed_at", "is_commit"]

_SOURCES = "spark.batch.sources"
_COMMITTED = "spark.batch.committed"
_TENTH = Decimal("0.1")
#: Sinks with which Spark rejects asynchronous progress tracking, and whose rows real-time mode cannot write.
_SYNCHRONOUS = ("FileSink[", "ForeachBatchSink", "DeltaSink[")


def is_commit(progress: StreamingProgress) -> bool:
    """Return whether the trigger processed a batch; a trigger without data may process none.

    In the progress report of a trigger without a batch, the batch is the next one. Such a report contains no
    ``addBatch`` phase, because Spark did not call the sink.
    """
    return "addBatch" in progress.duration_ms


def is_proven(record: QueryProgress) -> bool | None:
    """Return whether the report proves that the batch is in the checkpoint's ``commits/`` folder; None if unknown.

    Spark reports progress after it has written the entry, except with asynchronous progress tracking, which it allows
    for queries without state and for some sinks only.
    """
    sink = record.progress.sink
    if record.progress.state_operators or (sink is not None and sink.description.startswith(_SYNCHRONOUS)):
        return True
    return None if record.asynchronous is None else not record.asynchronous


class Commits:
    """The commits of one run of one query.

    Args:
        run: the run.
        config: whether and how often commits are reported.
    """

    def __init__(self, run: Run, config: BatchCommitConfig) -> None:
        self._run = run
        self._config = config
        self._interval = round(config.min_interval * 1000)
        self._quiet_until = 0
        self._merging: Draft | None = None
        self._log = CommitLog(run, self._interval)

    @property
    def next_due(self) -> int | None:
        """Time at which the merged event must be reported, in milliseconds since the epoch."""
        return None if self._merging is None else self._quiet_until

    def progress(self, record: QueryProgress, at: int) -> Iterator[Draft]:
        """Yield the event of this commit and of the commits merged so far, or merge this commit too.

        Args:
            record: a progress report for which :func:`is_commit` is true.
            at: when the batch was committed, in milliseconds since the epoch.
        """
        self._run.batches.last_committed = record.progress.batch_id
        proven = is_proven(record)
        self._run.batches.is_asynchronous = proven is False
        if proven is False:
            self._log.processed(record.progress)
        else:
            self._run.batches.committed_offsets = [offset_text(source.end_offset) for source in record.progress.sources]
        if not self._config.enabled:
            return
        yield from self.flush(at)
        draft = _draft(self._run, record.progress, at, self._config.max_duration, proven)
        if draft.severity is Severity.WARN:
            # Report a slow batch in its own event; a merged event would not show which batch was slow.
            yield from self.flush()
        self._merging = draft if self._merging is None else _merged(self._merging, draft)
        # A longer wait shows that the driver's clock was set back. Report immediately instead of waiting for the old
        # time.
        wait = self._quiet_until - at
        if draft.severity is Severity.WARN or not 0 < wait <= self._interval:
            yield from self.flush()

    def written(self, through: int | None, at: int) -> Iterator[Draft]:
        """Report the batches that the last entry in ``commits/`` commits, if Spark writes them after its reports."""
        for draft in self._log.written(through, at):
            if self._config.enabled:
                yield draft

    def close(self) -> Iterator[Draft]:
        """Report the merged event, and the entries that wait for the minimum interval."""
        yield from self.flush()
        for draft in self._log.flush():
            if self._config.enabled:
                yield draft

    def idle(self, at: int) -> Iterator[Draft]:
        """Report the merged event if the clock was set back, according to the time of this idle trigger."""
        if self._quiet_until - at > self._interval:
            # The merged event's time was computed before the clock was set back.
            yield from self.flush()

    def flush(self, now: int | None = None) -> Iterator[Draft]:
        """Report the merged event if it is due, or unconditionally if ``now`` is None."""
        if self._merging is not None and (now is None or now >= self._quiet_until):
            merged, self._merging = self._merging, None
            reported = merged.observed_ts_millis if now is None else self._quiet_until
            self._quiet_until = reported + self._interval
            yield merged


def _draft(run: Run, progress: StreamingProgress, at: int, max_duration: float | None, proven: bool | None) -> Draft:
    took = progress.duration_ms.get("triggerExecution")
    too_long = max_duration is not None and took is not None and took > max_duration * 1000
    rows = progress.rows
    repairs = repaired(progress.state_operators)
    return Draft(
        name="BatchCommitEvent",
        class_scope="spark.streaming.query",
        key=("commit", progress.run_id, progress.batch_id),
        body=_sentence(run, progress, rows, took, proven)
        + (f" (over the limit of {round((max_duration or 0) * 1000)} ms)" if too_long else "")
        + (f"; Spark repaired {counted(repairs, 'damaged snapshot')} of its state" if repairs else ""),
        severity=Severity.WARN if too_long or repairs else Severity.INFO,
        observed_ts_millis=at,
        attributes=present(
            {
                **run.scope_variables,
                "spark.batch.id": progress.batch_id,
                "spark.batch.count": 1,
                _COMMITTED: proven,
                "spark.batch.rows_input": rows,
                "spark.batch.rows_output": _known(progress.sink.num_output_rows) if progress.sink else None,
                "spark.batch.no_data": rows == 0,
                "spark.batch.limit_ms": None if max_duration is None else round(max_duration * 1000),
                "spark.watermark.time": progress.event_time.get("watermark"),
                "spark.batch.event_time_min": progress.event_time.get("min"),
                "spark.batch.event_time_max": progress.event_time.get("max"),
                "spark.batch.event_time_avg": progress.event_time.get("avg"),
                "spark.batch.sink": progress.sink.description if progress.sink else None,
                **{f"spark.batch.duration.{snake_case(phase)}_ms": ms for phase, ms in progress.duration_ms.items()},
                **_sources(progress.sources),
                **_backlogs(run, progress),
                **_rates(progress),
                **state_attributes(progress.state_operators, progress.batch_id),
                **_observed(progress.observed_metrics),
            }
        ),
    )


def _merged(earlier: Draft, later: Draft) -> Draft:
    """Merge two commits: add up rows, durations and state changes; take all other values from the later commit."""
    attributes = {**earlier.attributes, **later.attributes}
    for key in earlier.attributes.keys() & later.attributes.keys():
        if _adds_up(key):
            attributes[key] = int(earlier.attributes[key]) + int(later.attributes[key])
    first = earlier.attributes.get("spark.batch.first_id", earlier.attributes["spark.batch.id"])
    attributes["spark.batch.first_id"] = first
    attributes["spark.batch.no_data"] = bool(
        earlier.attributes["spark.batch.no_data"] and later.attributes["spark.batch.no_data"]
    )
    proven = [draft.attributes.get(_COMMITTED) for draft in (earlier, later)]
    attributes.pop(_COMMITTED, None)
    if None not in proven:
        attributes[_COMMITTED] = all(proven)
    # Averages cannot be merged without the number of rows of each batch.
    attributes.pop("spark.batch.event_time_avg", None)
    for key, choose in (("spark.batch.event_time_min", min), ("spark.batch.event_time_max", max)):
        times = [str(draft.attributes[key]) for draft in (earlier, later) if key in draft.attributes]
        if times:
            attributes[key] = choose(times)
    if _SOURCES in earlier.attributes and _SOURCES in later.attributes:
        attributes[_SOURCES] = _merged_sources(str(earlier.attributes[_SOURCES]), str(later.attributes[_SOURCES]))
    title = attributes.get("spark.streaming.query.name") or str(attributes["spark.streaming.query.id"])[:8]
    query = with_client(f"query '{title}'", attributes)
    took = attributes.get("spark.batch.duration.trigger_execution_ms")
    body = f"{query} {_verb(attributes.get(_COMMITTED))} batches {first} to {attributes['spark.batch.id']}"
    body += (
        "" if took is None else f" in {took} ms"
    ) + f": {counted(int(attributes['spark.batch.rows_input']), 'row')}"
    body += f", watermark {attributes['spark.watermark.time']}" if "spark.watermark.time" in attributes else ""
    return Draft(later.name, later.class_scope, later.key, body, later.severity, later.observed_ts_millis, attributes)


def _adds_up(key: str) -> bool:
    return (
        key in ("spark.batch.count", "spark.batch.rows_input", "spark.batch.rows_output")
        or key in ("spark.state.rows_updated", "spark.state.rows_removed", "spark.state.rows_dropped_by_watermark")
        or key in ("spark.state.checkpointed_bytes", "spark.state.commit_ms", "spark.state.snapshots_repaired")
        or key in ("spark.state.snapshots_forced", "spark.state.changelogs_replayed")
        or key.startswith(("spark.state.timers_", "spark.batch.duration."))
    )


def _known(rows: int) -> int | None:
    """Return None for -1, Spark's value for a sink that does not count rows."""
    return rows if rows >= 0 else None


def _sentence(run: Run, progress: StreamingProgress, rows: int, took: int | None, proven: bool | None) -> str:
    duration = "" if took is None else f" in {took} ms"
    what = counted(rows, "row") if rows else "no data"
    watermark = progress.event_time.get("watermark")
    return f"{run.subject} {_verb(proven)} batch {progress.batch_id}{duration}: {what}" + (
        f", watermark {watermark}" if watermark else ""
    )


def _verb(proven: AttributeValue | None) -> str:
    return "processed" if proven is False else "committed"


def _sources(sources: list[SourceProgress]) -> dict[str, AttributeValue | None]:
    """Return the sources as one JSON string, and their total lag.

    One string keeps the number of attributes small, because many backends index each attribute name.
    """
    if not sources:
        return {}
    lags = [lag(source.end_offset, source.latest_offset) for source in sources]
    described = [
        present(
            {
                "description": source.description,
                "rows": source.num_input_rows,
                "offset_from": offset_text(source.start_offset),
                "offset_to": offset_text(source.end_offset),
                "offset_latest": offset_text(source.latest_offset),
                "lag": behind,
            }
        )
        for source, behind in zip(sources, lags, strict=True)
    ]
    known = [behind for behind in lags if behind is not None]
    return {_SOURCES: _json(described), "spark.batch.lag": sum(known) if known else None}


def _backlogs(run: Run, progress: StreamingProgress) -> dict[str, AttributeValue | None]:
    found: dict[str, AttributeValue | None] = {}
    for index, backlog in enumerate(run.backlogs.after(progress)):
        found |= backlog.attributes(index)
    return found


def _rates(progress: StreamingProgress) -> dict[str, AttributeValue | None]:
    """Return the rates of each source for the trigger, rounded to one decimal.

    Spark 4.3 rounds them in the progress that listeners receive, but not in the event log.
    """
    found: dict[str, AttributeValue | None] = {}
    for index, source in enumerate(progress.sources):
        rates = {"input": source.input_rows_per_second, "processed": source.processed_rows_per_second}
        for kind, rate in rates.items():
            is_known = isinstance(rate, int | float) and math.isfinite(rate)
            found[f"spark.source.{index}.{kind}_rows_per_second"] = _rounded(float(rate)) if is_known else None
    return found


def _rounded(rate: float) -> float:
    """Round to one decimal like Spark, ties away from zero."""
    return float(Decimal(repr(rate)).quantize(_TENTH, ROUND_HALF_UP))


def _merged_sources(earlier: str, later: str) -> str:
    first, last = msgspec.json.decode(earlier), msgspec.json.decode(later)
    for before, after in zip(first, last, strict=False):
        after["rows"] += before["rows"]
        if "offset_from" in before:
            after["offset_from"] = before["offset_from"]
    return _json(last)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _observed(metrics: dict[str, Any]) -> dict[str, AttributeValue | None]:
    """Return the metrics of ``df.observe("name", ...)`` as attributes, non-scalar values as JSON strings."""
    attributes: dict[str, AttributeValue | None] = {}
    for name, row in metrics.items():
        fields = row.items() if isinstance(row, dict) else [("value", row)]
        for field, value in fields:
            attributes[f"spark.observed.{name}.{field}"] = _plain(value)
    return attributes


def _plain(value: Any) -> AttributeValue | None:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return _json(value)


def committed_at(record: QueryProgress) -> int:
    """Return the commit time of a batch: the trigger's start plus its duration."""
    progress = record.progress
    return iso_millis(progress.timestamp, record.at) + progress.duration_ms.get("triggerExecution", 0)
