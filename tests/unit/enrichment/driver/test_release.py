"""What settled batches hold, and when it is given back; without Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_events.enrichment.driver.micro_batch import MicroBatch, micro_batch
from spark_events.enrichment.driver.release import Held
from spark_events.errors import InvalidPlanError

#: Of a kind whose query nobody watches.
DF = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
FIRST, AGAIN = MicroBatch("q", 1, "run 1"), MicroBatch("q", 1, "run 2")


class Told:
    """Says what was released, and what was cleared."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def __call__(self, what: str) -> Callable[[], None]:
        return lambda: self.all.append(what)


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_batch_gives_way_to_the_next_one(told: Told) -> None:
    """All that it held; what was to be done at its commit is the next one's affair."""
    held = Held()
    held.begin(DF, FIRST)
    held.add(FIRST, told("first"), told("committed"))
    held.begin(DF, FIRST)
    held.add(FIRST, told("second"))
    assert told.all == []
    held.begin(DF, MicroBatch("q", 2, "run 1"))
    assert told.all == ["first", "second"]


@pytest.mark.parametrize(("last", "expected"), [(1, ["held", "committed"]), (0, ["held"]), (None, ["held"])])
def test_the_end_of_a_query_clears_what_is_committed(told: Told, last: int | None, expected: list[str]) -> None:
    """And nothing else; once."""
    held = Held()
    held.begin(DF, FIRST)
    held.add(FIRST, told("held"), told("committed"))
    held.end(FIRST, last)
    held.end(FIRST, last)
    assert told.all == expected


def test_the_end_of_a_run_is_not_the_end_of_the_next(told: Told) -> None:
    """A query that fails is started anew, and only then somebody notices that it had failed."""
    held = Held()
    held.begin(DF, FIRST)
    held.begin(DF, AGAIN)
    held.end(FIRST, 0)
    held.add(AGAIN, told("held"), told("committed"))
    held.end(FIRST, 0)
    assert told.all == []
    held.end(AGAIN, 1)
    assert told.all == ["held", "committed"]


def test_a_batch_whose_query_was_stopped_meanwhile_holds_nothing(told: Told) -> None:
    """Its calls were still being made when the query ended."""
    held = Held()
    held.begin(DF, FIRST)
    held.end(FIRST, 0)
    held.add(FIRST, told("held"), told("committed"))
    assert told.all == ["held"]


@pytest.mark.parametrize("query", ["", "nightly"])
def test_outside_of_streams_spark_itself_releases(told: Told, query: str) -> None:
    """When nobody refers to it any more, though a job may say which query and batch it stands for."""
    held = Held()
    for number in (1, 2):
        batch = MicroBatch(query, number if query else None, streams=False)
        held.begin(DF, batch)
        held.add(batch, told("held"))
        held.end(batch, None)
    assert told.all == []


@pytest.mark.parametrize("streams", [True, False])
def test_with_connect_the_server_s_own_process_runs_streams(monkeypatch: pytest.MonkeyPatch, streams: bool) -> None:
    """Elsewhere, query and batch_id are those of a batch job."""
    monkeypatch.delenv("SPARK_CONNECT_LOCAL_URL", raising=False)
    if streams:
        monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://localhost")
    assert micro_batch(DF, 1, "q") == MicroBatch("q", 1, streams=streams)


@pytest.mark.parametrize(("batch_id", "query"), [(None, None), (3, None), (None, "q")])
def test_a_stream_over_connect_is_told_its_batch_and_its_query(
    monkeypatch: pytest.MonkeyPatch, batch_id: int | None, query: str | None
) -> None:
    """With a batch alone, the third batch of every query would have the same idempotency keys. A batch job need not."""
    monkeypatch.delenv("SPARK_CONNECT_LOCAL_URL", raising=False)
    assert micro_batch(DF, batch_id, query) == MicroBatch(query or "", batch_id, streams=False)
    monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://localhost")
    with pytest.raises(InvalidPlanError, match=r"give batch_id=batch_id.* and query='name'"):
        micro_batch(DF, batch_id, query)
