"""Tests of the release of settled batches, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from spark_events.enrichment.driver.micro_batch import MicroBatch, micro_batch
from spark_events.enrichment.driver.release import Held
from spark_events.errors import InvalidPlanError

#: Spark Connect DataFrame. Its queries have no listener in this process.
DF = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
FIRST, AGAIN = MicroBatch("q", 1, "run 1"), MicroBatch("q", 1, "run 2")


class Calls:
    """Recorder that returns functions and records the order of their calls."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def __call__(self, what: str) -> Callable[[], None]:
        return lambda: self.all.append(what)


@pytest.fixture
def calls() -> Calls:
    return Calls()


def test_the_next_batch_releases_the_previous_one(calls: Calls) -> None:
    """The next batch releases all data of the previous batch, but keeps the previous batch's commit actions."""
    held = Held()
    held.begin(DF, FIRST)
    held.add(FIRST, calls("first"), calls("committed"))
    held.begin(DF, FIRST)
    held.add(FIRST, calls("second"))
    assert calls.all == []
    held.begin(DF, MicroBatch("q", 2, "run 1"))
    assert calls.all == ["first", "second"]


@pytest.mark.parametrize(("last", "expected"), [(1, ["held", "committed"]), (0, ["held"]), (None, ["held"])])
def test_the_end_of_a_query_clears_committed_batches_once(calls: Calls, last: int | None, expected: list[str]) -> None:
    """When a query stops, the actions of each committed batch run once. Uncommitted batches are only released."""
    held = Held()
    held.begin(DF, FIRST)
    held.add(FIRST, calls("held"), calls("committed"))
    held.end(FIRST, last)
    held.end(FIRST, last)
    assert calls.all == expected


def test_a_late_end_of_an_earlier_run_is_ignored(calls: Calls) -> None:
    """The late end of an earlier run is ignored, because a failed query may restart before its failure is detected."""
    held = Held()
    held.begin(DF, FIRST)
    held.begin(DF, AGAIN)
    held.end(FIRST, 0)
    held.add(AGAIN, calls("held"), calls("committed"))
    held.end(FIRST, 0)
    assert calls.all == []
    held.end(AGAIN, 1)
    assert calls.all == ["held", "committed"]


def test_a_batch_that_settles_after_its_query_ended_is_released(calls: Calls) -> None:
    """A batch whose calls were still in flight when its query stopped is released once it settles."""
    held = Held()
    held.begin(DF, FIRST)
    held.end(FIRST, 0)
    held.add(FIRST, calls("held"), calls("committed"))
    assert calls.all == ["held"]


@pytest.mark.parametrize("query", ["", "nightly"])
def test_batch_jobs_are_released_by_spark(calls: Calls, query: str) -> None:
    """Spark's garbage collection releases batch jobs, even if they set a query and a batch."""
    held = Held()
    for number in (1, 2):
        batch = MicroBatch(query, number if query else None, streams=False)
        held.begin(DF, batch)
        held.add(batch, calls("held"))
        held.end(batch, None)
    assert calls.all == []


@pytest.mark.parametrize("streams", [True, False])
def test_with_connect_the_server_s_process_runs_streams(monkeypatch: pytest.MonkeyPatch, streams: bool) -> None:
    """With Connect, the arguments query and batch_id mean a micro-batch only in the server's process for streams."""
    monkeypatch.delenv("SPARK_CONNECT_LOCAL_URL", raising=False)
    if streams:
        monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://localhost")
    assert micro_batch(DF, 1, "q") == MicroBatch("q", 1, streams=streams)


@pytest.mark.parametrize(("batch_id", "query"), [(None, None), (3, None), (None, "q")])
def test_a_stream_over_connect_needs_batch_and_query(
    monkeypatch: pytest.MonkeyPatch, batch_id: int | None, query: str | None
) -> None:
    """A stream over Connect needs a batch id and a query for its idempotency keys. A batch job needs neither."""
    monkeypatch.delenv("SPARK_CONNECT_LOCAL_URL", raising=False)
    assert micro_batch(DF, batch_id, query) == MicroBatch(query or "", batch_id, streams=False)
    monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://localhost")
    with pytest.raises(InvalidPlanError, match=r"pass replay=Replay\(query='name', batch_id=batch_id\)"):
        micro_batch(DF, batch_id, query)


def test_a_failed_search_for_a_stream_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """If Spark's undocumented list of queries cannot be read, the batch counts as a job, and one warning is logged."""
    context = SimpleNamespace(getLocalProperty=lambda key: None)
    session: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    for _ in range(3):
        assert micro_batch(session, None, None) == MicroBatch("", None, streams=False)
    assert caplog.text.count("cannot determine whether a streaming query created a DataFrame") == 1
