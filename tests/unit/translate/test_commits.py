"""Tests of committed batches: each causes one event with Spark's figures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import application_end, application_start, decoded, query_progress, query_started, query_terminated

from spark_events import Event, Severity
from spark_events.translate.draft import counted
from spark_events.translate.translation_config import BatchCommitConfig, TranslateConfig
from spark_events.translate.translator import Translator

STATE = {"numRowsTotal": 7, "numRowsUpdated": 3, "numRowsRemoved": 1, "memoryUsedBytes": 100}


def commits(*records: dict[str, Any], config: BatchCommitConfig | None = None) -> list[Event]:
    translator = Translator(TranslateConfig(batch_commit=config or BatchCommitConfig()))
    for record in (application_start(), query_started()):
        translator.translate(decoded(record))
    events = [event for record in records for event in translator.translate(decoded(record))]
    return [event for event in events if event.name == "BatchCommitEvent"]


def commit(**progress: Any) -> Event:
    (event,) = commits(query_progress(41, **progress))
    return event


def test_commit_has_the_numbers_of_the_progress() -> None:
    """A commit event contains the rows, the durations and the query from Spark's progress."""
    event = commit()
    assert (event.severity, event.class_scope) == (Severity.INFO, "spark.streaming.query")
    assert event.body == "shop: query 'clicks' committed batch 41 in 100 ms: 5 rows"
    expected = {
        "spark.batch.id": 41,
        "spark.streaming.query.run_id": "r1",
        "spark.batch.rows_input": 5,
        "spark.batch.count": 1,
        "spark.batch.no_data": False,
        "spark.batch.duration.add_batch_ms": 30,
        "spark.batch.duration.trigger_execution_ms": 100,
        "spark.batch.sink": "noop",
    }
    assert expected.items() <= event.attributes.items()


def test_the_rates_of_a_source_are_those_of_spark() -> None:
    """Live and replayed rates are equal.

    Spark's event log contains a text for a rate that is not finite, and the live progress lacks the rate. The live
    progress of Spark 4.3 has one decimal, rounded half up; the event log has all decimals.
    """
    first = {"inputRowsPerSecond": 5, "processedRowsPerSecond": 1.25}
    second = {"inputRowsPerSecond": "NaN", "processedRowsPerSecond": "Infinity"}
    found = commit(sources=[first, second, {}]).attributes
    rates = {name.removeprefix("spark.source."): value for name, value in found.items() if "per_second" in name}
    assert rates == {"0.input_rows_per_second": 5.0, "0.processed_rows_per_second": 1.3}


def test_one_row_is_one_row() -> None:
    """For one batch and for several batches, the body contains ``1 row``, not ``1 rows``."""
    assert commit(numInputRows=1).body == "shop: query 'clicks' committed batch 41 in 100 ms: 1 row"
    assert counted(0, "row") == "0 rows"
    assert counted(1_204, "row", ("was", "were")) == "1,204 rows were"
    assert counted(1, "row", ("was", "were")) == "1 row was"


def test_the_time_of_a_commit_is_the_end_of_its_trigger() -> None:
    """The timestamp of a commit event is the end of the trigger. Spark's timestamp is the start of the trigger."""
    assert commit().observed_ts_millis == 1_795_263_271_000 + 100


def test_a_trigger_without_a_batch_is_not_a_commit() -> None:
    """An idle trigger is not a commit: its progress repeats the last batch id and has no addBatch phase."""
    idle = query_progress(41, numInputRows=0, durationMs={"latestOffset": 2, "triggerExecution": 2})
    assert commits(idle) == []
    assert len(commits(query_progress(40), idle, query_progress(41))) == 2


def test_a_batch_without_data_is_a_commit() -> None:
    """A batch without data, which Spark runs to advance the watermark or to expire state, is a commit."""
    event = commit(numInputRows=0)
    assert event.attributes["spark.batch.no_data"] is True
    assert event.attributes["spark.batch.rows_input"] == 0
    assert event.body.endswith("no data")


def test_batch_is_reported_once() -> None:
    """A repeated or late progress causes no second event for its batch."""
    reported = commits(query_progress(0), query_progress(0), query_progress(1), query_progress(0), query_progress(1))
    assert [event.attributes["spark.batch.id"] for event in reported] == [0, 1]


def test_a_new_run_may_commit_a_batch_again() -> None:
    reported = commits(query_progress(0), query_started("r2"), query_progress(0, "r2"))
    assert [event.attributes["spark.streaming.query.run_id"] for event in reported] == ["r1", "r2"]
    assert reported[0].event_id != reported[1].event_id


@pytest.mark.parametrize(
    ("offset", "shown"),
    [
        ({"topic": {"0": 23, "1": 7}}, '{"topic":{"0":23,"1":7}}'),
        ({"logOffset": 0}, '{"logOffset":0}'),
        ("plain text", "plain text"),
        ('{"quoted": 1}', '{"quoted": 1}'),
        ("", ""),
        (1234567890123, "1234567890123"),
        ([1, 2], "[1,2]"),
        (None, None),
    ],
    ids=["kafka", "files", "string", "json-string", "empty", "number", "list", "null"],
)
def test_offset_is_the_text_of_the_checkpoint(offset: object, shown: str | None) -> None:
    """The attribute of an offset is the JSON string in the checkpoint. A null offset is omitted."""
    event = commit(sources=[{"description": "S", "startOffset": offset, "endOffset": offset, "numInputRows": 5}])
    (source,) = json.loads(str(event.attributes["spark.batch.sources"]))
    offsets = {} if shown is None else {"offset_from": shown, "offset_to": shown}
    assert source == {"description": "S", "rows": 5, **offsets}


def test_a_huge_offset_is_truncated_with_a_mark() -> None:
    """An offset of more than about 2,000 characters is truncated, with a mark at the truncation."""
    (source,) = json.loads(str(commit(sources=[{"endOffset": "x" * 5_000}]).attributes["spark.batch.sources"]))
    shown = source["offset_to"]
    assert len(shown) < 2_200
    assert shown.endswith("[2952 cut]")


def test_each_source_has_its_entry() -> None:
    """All sources are in one JSON string, in the query's order, so a backend indexes only one attribute."""
    sources = [{"description": "left", "numInputRows": 2}, {"description": "right", "numInputRows": 3}]
    left, right = json.loads(str(commit(sources=sources).attributes["spark.batch.sources"]))
    assert (left, right) == ({"description": "left", "rows": 2}, {"description": "right", "rows": 3})


def test_the_lag_of_a_batch_is_the_sum_over_its_sources() -> None:
    """The lag of a batch is the sum over its sources. A source without offsets per partition has no lag."""
    kafka = {"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 5}}}
    other = {"endOffset": {"u": {"0": 1}}, "latestOffset": {"u": {"0": 2}}}
    assert commit(sources=[kafka, {"endOffset": {"logOffset": 1}}, other]).attributes["spark.batch.lag"] == 5
    assert "spark.batch.lag" not in commit(sources=[{"endOffset": {"logOffset": 1}}]).attributes


def test_rows_are_summed_if_spark_has_no_sum() -> None:
    """If a progress has only the rows of each source, the event contains the sum of these rows."""
    sources = [{"numInputRows": 2}, {"numInputRows": 3}]
    assert commit(sources=sources, numInputRows=None).attributes["spark.batch.rows_input"] == 5


@pytest.mark.parametrize(("rows", "shown"), [(-1, None), (0, 0), (12, 12)])
def test_rows_that_a_sink_does_not_count_are_omitted(rows: int, shown: int | None) -> None:
    """If a sink reports -1 rows, which means unknown, the attribute is omitted."""
    attributes = commit(sink={"description": "noop", "numOutputRows": rows}).attributes
    assert attributes.get("spark.batch.rows_output") == shown


def test_progress_without_a_sink_or_sources_is_not_an_error() -> None:
    """Fields that are missing in a progress are missing in the event."""
    record = query_progress(41)
    for field in ("sink", "sources", "stateOperators", "eventTime", "name"):
        del record["progress"][field]
    (event,) = commits(record)
    assert "spark.batch.sink" not in event.attributes
    assert "spark.state.rows_total" not in event.attributes
    assert "spark.watermark.time" not in event.attributes


def test_state_is_summed_over_the_operators() -> None:
    """The rows, memory and late rows of all stateful operators are summed."""
    attributes = commit(stateOperators=[STATE, {**STATE, "numRowsDroppedByWatermark": 4}]).attributes
    expected = {
        "spark.state.operators": 2,
        "spark.state.rows_total": 14,
        "spark.state.rows_updated": 6,
        "spark.state.rows_removed": 2,
        "spark.state.rows_dropped_by_watermark": 4,
        "spark.state.memory_bytes": 200,
    }
    assert expected.items() <= attributes.items()


@pytest.mark.parametrize(
    ("stores", "size"),
    [
        ([{"rocksdbBytesCopied": 1286, "rocksdbSstFileSize": 3975}, {"rocksdbBytesCopied": 14}], 1300),
        ([{"rocksdbBytesCopied": 1286}, {"stateOnCurrentVersionSizeBytes": 2104}], 1286),
        ([{"rocksdbBytesCopied": 0, "rocksdbTotalBytesWritten": 490}], None),  # Changelog checkpointing is enabled.
        ([{"stateOnCurrentVersionSizeBytes": 2104}, None], None),
    ],
)
def test_the_checkpointed_size_is_reported_if_it_is_measured(stores: list[Any], size: int | None) -> None:
    """If the state store measures the size that a batch copies to the checkpoint, the event contains this size."""
    event = commit(stateOperators=[{**STATE, "customMetrics": store} for store in stores])
    assert event.attributes.get("spark.state.checkpointed_bytes") == size


def test_the_oldest_snapshot_of_the_state_is_reported() -> None:
    """The version of the oldest snapshot counts, of all stores that have uploaded one."""
    uploaded = {"SnapshotLastUploaded.partition_0_default": 4, "SnapshotLastUploaded.partition_1_default": -1}
    stores = [{**uploaded, "rocksdbSstFileSize": 3_975}, {"SnapshotLastUploaded.partition_0_left": 2}]
    stores[0] |= {"rocksdbForceSnapshotCount": 1, "rocksdbNumReplayChangelogFiles": 6}
    found = commit(stateOperators=[{**STATE, "customMetrics": store} for store in stores]).attributes
    expected = {
        "spark.state.snapshot_version": 2,
        "spark.state.snapshot_lag": 40,
        "spark.state.snapshots_forced": 1,
        "spark.state.changelogs_replayed": 6,
        "spark.state.disk_bytes": 3_975,
    }
    assert expected.items() <= found.items()
    assert not [name for name in commit(stateOperators=[STATE]).attributes if name.startswith("spark.state.snapshot")]


def test_watermark_is_the_text_of_the_progress() -> None:
    """The event contains the watermark and the event times as strings, unchanged from Spark's progress."""
    event = commit(eventTime={"watermark": "2026-01-01T00:00:50.000Z", "max": "2026-01-01T00:01:00.000Z"})
    assert event.attributes["spark.watermark.time"] == "2026-01-01T00:00:50.000Z"
    assert event.attributes["spark.batch.event_time_max"] == "2026-01-01T00:01:00.000Z"
    assert event.body.endswith(", watermark 2026-01-01T00:00:50.000Z")


def test_observed_metrics_become_attributes_of_plain_values() -> None:
    """Observed metrics become attributes.

    Numbers stay numbers, nested values become JSON, NaN becomes text, and nulls are omitted.
    """
    row = {"n": 3, "mean": 1.5, "on": True, "who": "ada", "none": None, "nan": "NaN", "list": [1, 2], "row": {"a": 1}}
    attributes = commit(observedMetrics={"m": row}).attributes
    observed = {key: value for key, value in attributes.items() if key.startswith("spark.observed.")}
    assert observed == {
        "spark.observed.m.n": 3,
        "spark.observed.m.mean": 1.5,
        "spark.observed.m.on": True,
        "spark.observed.m.who": "ada",
        "spark.observed.m.nan": "NaN",
        "spark.observed.m.list": "[1,2]",
        "spark.observed.m.row": '{"a":1}',
    }


def test_an_observed_metric_may_be_a_plain_value() -> None:
    """An observed metric may be any JSON value, not only an object."""
    assert commit(observedMetrics={"m": 7}).attributes["spark.observed.m.value"] == 7


def test_commits_can_be_switched_off() -> None:
    """With events.batch-commit.enabled=false, commits cause no event."""
    assert commits(query_progress(0), query_progress(1), config=BatchCommitConfig(enabled=False)) == []


def test_a_slow_batch_is_a_warning() -> None:
    """A batch is slow if its duration exceeds events.batch-commit.max-duration, but not if it equals the limit."""
    slow, just = commits(
        query_progress(0, durationMs={"addBatch": 1, "triggerExecution": 101}),
        query_progress(1, durationMs={"addBatch": 1, "triggerExecution": 100}),
        config=BatchCommitConfig(max_duration=0.1),
    )
    assert (slow.severity, just.severity) == (Severity.WARN, Severity.INFO)
    assert "over the limit of 100 ms" in slow.body


def at(second: int, batch: int, **progress: Any) -> dict[str, Any]:
    return query_progress(batch, timestamp=f"2026-11-21T12:14:{second:02d}.000Z", **progress)


def test_commits_of_an_interval_become_one_event_with_their_sums() -> None:
    """The commits of an interval cause one event with their number, their sums and the range of their offsets."""
    source = {"description": "S", "numInputRows": 5}
    records = [
        at(30, 0, sources=[{**source, "startOffset": 0, "endOffset": 10}]),
        at(31, 1, sources=[{**source, "startOffset": 10, "endOffset": 20}]),
        at(32, 2, sources=[{**source, "startOffset": 20, "endOffset": 30}]),
        at(45, 3, sources=[{**source, "startOffset": 30, "endOffset": 40}]),
        query_terminated(),
    ]
    first, middle, last = commits(*records, config=BatchCommitConfig(min_interval=10.0))
    assert [e.attributes["spark.batch.count"] for e in (first, middle, last)] == [1, 2, 1]
    expected = {
        "spark.batch.first_id": 1,
        "spark.batch.id": 2,
        "spark.batch.rows_input": 10,
        "spark.batch.sources": '[{"description":"S","rows":10,"offset_from":"10","offset_to":"30"}]',
        "spark.batch.duration.add_batch_ms": 60,
    }
    assert expected.items() <= middle.attributes.items()
    assert "batches 1 to 2" in middle.body


def test_merged_commits_are_reported_before_a_failure() -> None:
    translator = Translator(TranslateConfig(batch_commit=BatchCommitConfig(min_interval=60.0)))
    reported = []
    for record in (query_started(), at(30, 0), at(31, 1), query_terminated(exception="a.B: x")):
        reported += [event.name for event in translator.translate(decoded({"seq": 7, **record}))]
    assert reported[1:] == ["BatchCommitEvent", "BatchCommitEvent", "JobStatusChangeEvent", "JobFailureEvent"]


def test_without_an_interval_a_clock_set_back_delays_no_commit() -> None:
    assert len(commits(at(31, 0), at(30, 1))) == 2


def test_a_merged_commit_does_not_wait_for_a_clock_that_was_set_back() -> None:
    """If the clock is set back, a merged commit is reported at the first idle report of its query with the new time."""
    translator = Translator(TranslateConfig(batch_commit=BatchCommitConfig(min_interval=10.0)))

    def reported(seq: int, record: dict[str, Any]) -> list[object]:
        events = translator.translate(decoded({"seq": seq, **record}))
        return [event.attributes["spark.batch.id"] for event in events if event.name == "BatchCommitEvent"]

    def idle(timestamp: str) -> dict[str, Any]:
        return {"kind": "query_idle", "id": "q1", "run_id": "r1", "timestamp": timestamp, "at": 0}

    assert [reported(seq, record) for seq, record in enumerate((query_started(), at(30, 0), at(31, 1)), 1)] == [
        [],
        [0],
        [],
    ]
    assert reported(4, idle("2026-11-21T12:14:32.000Z")) == []
    assert reported(5, idle("2026-11-20T12:14:33.000Z")) == [1]
    assert translator.next_due is None


def test_a_merged_commit_is_reported_at_its_deadline() -> None:
    translator = Translator(TranslateConfig(batch_commit=BatchCommitConfig(min_interval=10.0)))
    for seq, record in enumerate((query_started(), at(30, 0), at(31, 1)), start=1):
        translator.translate(decoded({"seq": seq, **record}))
    deadline = translator.next_due
    assert deadline is not None
    assert translator.tick(deadline - 1) == []
    (event,) = translator.tick(deadline)
    assert event.attributes["spark.batch.id"] == 1
    assert translator.next_due is None


NOOP, FILES = {"description": "org.apache.spark.NoopTable$@1"}, {"description": "FileSink[file:/out]"}


@pytest.mark.parametrize(
    ("asynchronous", "progress", "committed"),
    [
        (False, {"sink": NOOP}, True),
        (True, {"sink": NOOP}, False),
        (None, {"sink": NOOP}, None),
        # Spark rejects asynchronous progress tracking for these sinks and for queries with state.
        (True, {"sink": FILES}, True),
        (None, {"sink": FILES}, True),
        (True, {"sink": NOOP, "stateOperators": [STATE]}, True),
    ],
)
def test_a_batch_is_committed_only_with_proof(
    asynchronous: bool | None, progress: dict[str, Any], committed: bool | None
) -> None:
    (event,) = commits({**query_progress(41, **progress), "asynchronous": asynchronous})
    assert event.attributes.get("spark.batch.committed") is committed
    assert ("committed batch 41" in event.body) == (committed is not False)


@pytest.mark.parametrize(
    ("first", "second", "committed"),
    [(False, False, True), (False, True, False), (True, False, False), (False, None, None), (True, True, False)],
)
def test_a_merged_event_is_proof_only_if_all_its_batches_are(
    first: bool | None, second: bool | None, committed: bool | None
) -> None:
    records = [
        {**query_progress(batch, sink=NOOP), "asynchronous": value}
        for batch, value in enumerate([False, first, second])
    ]
    merged = commits(*records, query_terminated(), config=BatchCommitConfig(min_interval=60))[-1]
    assert merged.attributes["spark.batch.count"] == 2
    assert merged.attributes.get("spark.batch.committed") is committed


def test_a_run_that_follows_unproven_commits_may_begin_with_an_earlier_batch() -> None:
    """After a restart, Spark processes the batches without a commit again; a failure there names the right batch."""
    translator = Translator(TranslateConfig())
    unproven = {**query_progress(8, sink=NOOP), "asynchronous": True}
    for record in (application_start(), query_started(), unproven, query_terminated()):
        translator.translate(decoded(record))
    again = [query_started("r2"), query_terminated("r2", exception="java.io.IOException: x")]
    events = [event for record in again for event in translator.translate(decoded(record))]
    (failed,) = [event for event in events if event.name == "JobFailureEvent"]
    assert "spark.batch.id" not in failed.attributes
    assert "spark.streaming.query.committed_offsets" not in failed.attributes


def entries(*records: dict[str, Any], config: BatchCommitConfig | None = None) -> list[Event]:
    """Return the events of the entries that Spark writes in ``commits/`` after its reports."""
    translator = Translator(TranslateConfig(batch_commit=config or BatchCommitConfig()))
    sent = (application_start(), query_started(), *records)
    events = [event for record in sent for event in translator.translate(decoded(record))]
    return [event for event in events if event.name == "CommitWrittenEvent"]


def later(batch: int, through: int | None, **more: Any) -> dict[str, Any]:
    """Return the progress of a batch with asynchronous tracking, at which ``commits/`` ends with ``through``."""
    return {**query_progress(batch, sink=NOOP, **more), "asynchronous": True, "committed_through": through}


def test_an_entry_commits_all_batches_since_the_last_entry() -> None:
    """Batches without an entry cause no event: Spark processes them again after a restart."""
    idle = {"kind": "query_idle", "id": "q1", "run_id": "r1", "timestamp": "2026-11-21T12:14:40.000Z", "at": 0}
    found = entries(
        *(later(batch, through) for batch, through in enumerate([None, 0, 0, 0, 2])),
        {**idle, "committed_through": 4},
        later(5, 4),
        later(6, 4),
        {**query_terminated(), "committed_through": 5},
    )
    named = ("spark.batch.first_id", "spark.batch.id")
    assert [tuple(event.attributes[name] for name in named) for event in found] == [(0, 0), (1, 2), (3, 4), (5, 5)]
    assert found[1].body == "shop: the commit of batches 1 to 2 of query 'clicks' is written: 10 rows"
    assert len({event.event_id for event in found}) == 4
    assert all(event.attributes["spark.batch.committed"] is True for event in found)


@pytest.mark.parametrize("through", [None, 7])
def test_no_entry_is_reported_without_a_batch_that_waits_for_it(through: int | None) -> None:
    """At the start of a run, the last entry is that of the run before; a synchronous query has no such entries."""
    synchronous = {**query_progress(8, sink=NOOP), "asynchronous": False, "committed_through": through}
    assert entries(later(8, through), {**query_terminated(), "committed_through": through}) == []
    assert entries(synchronous, {**query_terminated(), "committed_through": through}) == []
    assert entries(later(8, 8), config=BatchCommitConfig(enabled=False)) == []


def test_entries_keep_the_minimum_interval() -> None:
    """The entries of an interval are one event, also those that are written when the run ends."""
    records = [later(batch, batch - 1 if batch else None) for batch in range(5)]
    config = BatchCommitConfig(min_interval=3_600)
    found = entries(*records, {**query_terminated(), "committed_through": 4}, config=config)
    assert [(e.attributes["spark.batch.first_id"], e.attributes["spark.batch.id"]) for e in found] == [(0, 0), (1, 4)]


def test_the_end_of_the_application_reports_the_entries_of_the_interval() -> None:
    """``spark.stop()`` ends the application without the ends of its queries."""
    records = [later(batch, batch - 1 if batch else None) for batch in range(5)]
    found = entries(*records, application_end(), config=BatchCommitConfig(min_interval=3_600))
    assert [(e.attributes["spark.batch.first_id"], e.attributes["spark.batch.id"]) for e in found] == [(0, 0), (1, 3)]


def test_a_failure_names_the_offsets_that_are_committed() -> None:
    """The failure of a query with asynchronous tracking names the last entry, also after a restart."""
    source = {"description": "s", "startOffset": None, "numInputRows": 5}
    records = [later(batch, 0 if batch else None, sources=[{**source, "endOffset": batch}]) for batch in range(3)]
    translator = Translator(TranslateConfig())
    again = [query_started("r2"), query_terminated("r2", exception="java.io.IOException: x")]
    first = query_terminated(exception="java.io.IOException: x")
    events = [
        event
        for record in (application_start(), query_started(), *records, first, *again)
        for event in translator.translate(decoded(record))
    ]
    failures = [event.attributes for event in events if event.name == "JobFailureEvent"]
    assert [found["spark.streaming.query.committed_offsets"] for found in failures] == ['["0"]'] * 2


def test_state_is_described_by_operator_and_its_repairs_are_warnings() -> None:
    metrics = {"rocksdbNumSnapshotsAutoRepaired": 1, "numRegisteredTimers": 4, "numExpiredTimers": 3}
    timers = {**STATE, "operatorName": "transformWithStateExec", "commitTimeMs": 20, "customMetrics": metrics}
    event = commit(stateOperators=[{**STATE, "operatorName": "dedupe", "commitTimeMs": 5}, timers])
    assert event.severity is Severity.WARN
    assert event.body.endswith("5 rows; Spark repaired 1 damaged snapshot of its state")
    expected = {
        "spark.state.commit_ms": 25,
        "spark.state.snapshots_repaired": 1,
        "spark.state.timers_registered": 4,
        "spark.state.timers_expired": 3,
    }
    assert expected.items() <= event.attributes.items()
    assert "spark.state.timers_deleted" not in event.attributes
    operators = json.loads(str(event.attributes["spark.state.by_operator"]))
    assert [(one["name"], one["rows"], one["commit_ms"]) for one in operators] == [
        ("dedupe", 7, 5),
        ("transformWithStateExec", 7, 20),
    ]
