"""Tests of the function that Spark's worker calls. Without worker reuse, this function closes all resources."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import pickle
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from enrich_engine import Run, chunks_of, definition, new_process

from spark_events.enrichment.engine import process
from spark_events.enrichment.engine.engine import Definition, Engine
from spark_events.enrichment.engine.resources import Resources, ResourceTuning
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.worker import map_in_arrow as mapper
from spark_events.enrichment.worker.map_in_arrow import Mapper
from spark_events.enrichment.worker.task import Task
from spark_events.errors import EnrichmentError

OUTPUT = pa.schema([pa.field("answer", pa.int64())]).serialize().to_pybytes()
NUMBERS = itertools.count()


class Opener:
    """Opener that counts opened and closed resources. Closing waits for ``may_close``."""

    def __init__(self, *, closes: bool = True) -> None:
        self.opened = 0
        self.closed = 0
        self.may_close = asyncio.Event()
        if closes:
            self.may_close.set()

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        self.opened += 1
        try:
            yield
        finally:
            await self.may_close.wait()
            self.closed += 1


async def answer(row: Any, ctx: Any) -> Mapping[str, int]:
    if row.id < 0:
        raise ValueError("a negative number")
    return {"answer": row.id}


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Iterator[pa.RecordBatch]]]:
    """Return a function that runs a task in a new process state. Each number becomes a batch of one row."""

    def run(opener: Opener, numbers: list[int], made: Definition | None = None) -> Iterator[pa.RecordBatch]:
        name = f"plan {next(NUMBERS)}".encode()
        monkeypatch.setitem(mapper._plans, name, Plan(answer, resource=opener, buffer_rows=1))
        task = Task(name, pickle.dumps(made or definition()), OUTPUT, ("id",), ("id",), scope="", settles=False)
        batches = (pa.RecordBatch.from_pydict({"id": [number]}) for number in numbers)
        return Mapper(task)(batches)

    with new_process():
        yield run


Mapped = Callable[..., Iterator[pa.RecordBatch]]


def whole(batches: Iterator[pa.RecordBatch]) -> None:
    assert [batch.column("answer")[0].as_py() for batch in batches] == [1, 2, 3]


def failing(batches: Iterator[pa.RecordBatch]) -> None:
    with pytest.raises(EnrichmentError):
        list(batches)


def left(batches: Iterator[pa.RecordBatch]) -> None:
    """Close the iterator, as Spark does when it needs no more rows."""
    next(batches)
    batches.close()  # type: ignore[attr-defined]  # it is a generator


@pytest.mark.parametrize(
    ("reuse", "numbers", "read", "closed"),
    [
        ("1", [1, 2, 3], whole, 0),
        ("", [1, 2, 3], whole, 1),
        ("1", [1, -2, 3], failing, 1),
        ("", [1, -2, 3], failing, 1),
        ("1", [1, 2, 3], left, 1),
    ],
)
def test_a_resource_is_closed_with_the_worker_s_last_task(
    mapped: Mapped, monkeypatch: pytest.MonkeyPatch, reuse: str, numbers: list[int], read: Any, closed: int
) -> None:
    """Without worker reuse, or after a failure, the worker's last task closes the resource."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", reuse)
    opener = Opener()
    read(mapped(opener, numbers))
    assert (opener.opened, opener.closed) == (1, closed)


def test_a_resource_used_by_another_task_stays_open(mapped: Mapped, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource stays open while tasks in other threads use it. The last of these tasks closes the resource."""
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    opener, used, made = Opener(), Opener(), definition()

    async def fn(row: int, ctx: Any) -> int:
        return row

    other = Run(fn, made=made, resource=used, buffer_rows=1).engine.run(chunks_of([1, 2], 1))
    next(other)
    whole(mapped(opener, [1, 2, 3]))
    whole(mapped(used, [1, 2, 3], made))
    assert (opener.closed, used.closed) == (1, 0)
    list(other)
    whole(mapped(opener, [1, 2, 3]))
    assert (opener.closed, used.opened, used.closed) == (2, 1, 1)


@pytest.mark.timeout(30)
def test_a_hanging_close_does_not_block_the_task(mapped: Mapped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    process.current_process().resources = Resources(ResourceTuning(closing_seconds=0.05))
    opener = Opener(closes=False)
    whole(mapped(opener, [1, 2, 3]))
    assert (opener.opened, opener.closed) == (1, 0)
    process.current_process().background.loop.call_soon_threadsafe(opener.may_close.set)


def test_a_worker_without_enrichment_closes_nothing() -> None:
    with new_process():
        process.close_unused()
        assert process.exchange(None) is None


def test_objects_of_the_first_task_are_freed(mapped: Mapped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of the first task are freed, unless they existed when the garbage collector was frozen."""
    engines: weakref.WeakSet[Engine] = weakref.WeakSet()
    make = Engine.__init__

    def noted(engine: Engine, *given: Any, **more: Any) -> None:
        make(engine, *given, **more)
        engines.add(engine)

    monkeypatch.setattr(Engine, "__init__", noted)
    gc.unfreeze()
    whole(mapped(Opener(), [1, 2, 3]))
    assert gc.get_freeze_count() > 0
    gc.collect()
    assert not engines


@pytest.mark.no_cover
@pytest.mark.parametrize(("size", "kept"), [(1_000, 16), (20 << 20, 3), (70 << 20, 1)])
def test_large_functions_are_not_kept(monkeypatch: pytest.MonkeyPatch, size: int, kept: int) -> None:
    """A worker does not keep large functions after their task.

    Regression: a worker kept sixteen tables of past micro-batches, each twice.
    """
    plans: dict[bytes, Plan] = {}
    monkeypatch.setattr(mapper, "_plans", plans)
    for number in range(20):
        pickled = pickle.dumps(bytes([number]) * size)
        first = mapper._plan(pickled)
        assert mapper._plan(pickled) is first
    assert len(plans) == kept
