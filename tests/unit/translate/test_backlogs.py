"""Tests of backlogs: what a source has and the query has not read yet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fakes import query_progress

from spark_events.records.query_progress import StreamingProgress
from spark_events.translate.backlogs import Backlog, Backlogs

KAFKA = {"endOffset": {"t": {"0": 10, "1": 5}}, "latestOffset": {"t": {"0": 14, "1": 5}}}
NOTHING = Backlog(None, None, None, None)


def progress(batch: int, *sources: dict[str, Any], took: int = 1_000) -> StreamingProgress:
    record = query_progress(batch, sources=list(sources), durationMs={"addBatch": 1, "triggerExecution": took})
    return msgspec.json.decode(msgspec.json.encode(record["progress"]), type=StreamingProgress)


@pytest.mark.parametrize(
    ("source", "backlog"),
    [
        ({}, NOTHING),
        (KAFKA, Backlog(4, None, None, None)),
        ({"endOffset": 3, "latestOffset": 10}, Backlog(7, None, None, None)),
        ({**KAFKA, "latestOffset": KAFKA["endOffset"]}, Backlog(0, None, None, 0.0)),
        # Exact offsets take precedence over an average.
        ({**KAFKA, "metrics": {"avgOffsetsBehindLatest": "9.0"}}, Backlog(4, None, None, None)),
        ({**KAFKA, "latestOffset": None, "metrics": {"avgOffsetsBehindLatest": "2.5"}}, Backlog(5, None, None, None)),
        ({"metrics": {"estimatedTotalBytesBehindLatest": "80.0"}}, Backlog(None, 80, None, None)),
        ({"metrics": {"numFilesOutstanding": "3", "numBytesOutstanding": "9"}}, Backlog(None, 9, 3, None)),
        ({"metrics": {"maxMsBehindLatest": "61500"}}, Backlog(None, None, None, 61.5)),
        ({"metrics": {"numFilesOutstanding": "NaN", "numBytesOutstanding": "many"}}, NOTHING),
        ({"metrics": {"numFilesOutstanding": "-1", "numBytesOutstanding": None}}, NOTHING),
        ({"metrics": None}, NOTHING),
    ],
)
def test_a_backlog_is_what_the_source_reports(source: dict[str, Any], backlog: Backlog) -> None:
    """Without processed rows, the time of a backlog is unknown, except that of an empty one."""
    assert Backlogs().after(progress(1, source)) == [backlog]


def test_seconds_are_rows_behind_by_rows_per_second_of_the_last_batches() -> None:
    backlogs = Backlogs()

    def seconds(batch: int, rows: int, took: int, behind: int = 600) -> float | None:
        source = {"endOffset": 0, "latestOffset": behind, "numInputRows": rows}
        return backlogs.after(progress(batch, source, took=took))[0].seconds

    assert seconds(1, 100, 1_000) == 6.0
    assert seconds(2, 500, 1_000) == 2.0
    # A repeated batch, and batches without rows, do not change the speed.
    assert seconds(2, 500, 1_000) == seconds(3, 0, 60_000) == 2.0
    for batch in range(4, 9):
        slow = seconds(batch, 100, 10_000)
    assert slow == 60.0


def test_each_source_has_its_own_speed() -> None:
    one, two = ({"endOffset": 0, "latestOffset": 300, "numInputRows": rows} for rows in (100, 300))
    assert [backlog.seconds for backlog in Backlogs().after(progress(1, one, two))] == [3.0, 1.0]
