"""Tests of the shared cache with a real redis-server, and with stores that fail."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import decimal
import itertools
import os
import pickle
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
import virtual_time
from redis_server import redis_server

from spark_events import Cache, InvalidPlanError, RedisCache
from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.calls import Chunk, RowBatch
from spark_events.enrichment.engine.engine import Definition
from spark_events.enrichment.engine.resources import Resources
from spark_events.enrichment.engine.shared_cache import Pause, SharedCache
from spark_events.enrichment.engine.statistics import EngineCounts
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.worker.answers import AnswerWriter
from spark_events.enrichment.worker.cached_answers import AnswerCodec
from spark_events.enrichment.worker.driver_channel import TaskAttempt
from spark_events.enrichment.worker.partition import Partition
from spark_events.enrichment.worker.report import COLUMN, PartitionReport
from spark_events.enrichment.worker.task import Task

SCHEMA = pa.schema([pa.field("twice", pa.int64(), nullable=False)])
_number = itertools.count()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with redis_server(tmp_path) as address:
        yield address


class Service:
    """User function that counts its calls."""

    def __init__(self) -> None:
        self.called: list[int] = []

    async def __call__(self, row: Any) -> Mapping[str, int]:
        self.called.append(row.id)
        await asyncio.sleep(0)
        return {"twice": 2 * row.id}


def enriched(
    service: Any, cache: Cache, ids: Sequence[int], answers: str, schema: pa.Schema = SCHEMA, **plan: Any
) -> tuple[list[int], Mapping[str, Any]]:
    """Return the answers for some ids, and the counters."""
    task = Task(b"", b"", schema.serialize().to_pybytes(), ("id",), ("id",), scope="", settles=True)
    definition = Definition("calls", answers, "resource", f"shared {next(_number)}", stored=answers)
    made = Plan(service, cache=cache, **plan)
    batch = pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})
    table = pa.Table.from_batches(list(Partition(task, made, definition, TaskAttempt(), "").run(iter([batch]))))
    report = table.column(COLUMN)[-1].as_py()["report"]
    return table.column("twice").to_pylist(), PartitionReport.from_bytes(report).statistics


def test_a_second_worker_makes_no_call(url: str) -> None:
    """Until the definition or version changes or the answers expire, later runs use the stored answers."""
    service, ids = Service(), list(range(3_000))
    shared = Cache(store=RedisCache(url))
    first, counted = enriched(service, shared, ids, "a")
    assert first == [2 * one for one in ids]
    assert (len(service.called), counted["cached"], counted["cache_errors"]) == (3_000, 0, 0)
    again, counted = enriched(service, shared, ids, "a")
    assert again == first
    assert (len(service.called), counted["cached"], counted["calls"]) == (3_000, 3_000, 0)
    enriched(service, shared, ids[:10], "another definition")
    enriched(service, Cache(store=RedisCache(url), version="2"), ids[:10], "a")
    enriched(service, Cache(store=RedisCache(url, prefix="other:")), ids[:10], "a")
    assert len(service.called) == 3_030
    client = redis.Redis.from_url(url)
    assert 0 < client.pttl(client.randomkey()) <= 300_000  # type: ignore[arg-type]
    client.close()


def test_equal_rows_in_flight_share_one_call(url: str) -> None:
    """Equal rows of one task cause one call, and failures are not stored."""
    service = Service()
    shared = Cache(store=RedisCache(url))
    answers, counted = enriched(service, shared, [1, 2] * 500, "a")
    assert answers == [2, 4] * 500
    assert sorted(service.called) == [1, 2]

    async def fails(row: Any) -> None:
        raise KeyError

    for _ in range(2):
        nothing, counted = enriched(fails, shared, [7], "b", on_failure="null")
        assert str(nothing) == "[None]"
        assert counted["calls"] == 1


@pytest.mark.parametrize("stored", [b"\xc1 no msgpack", b"\x91\xa1x", b"\x92\x01\x02", b"\x91\xc0", b"\x80\x04N."])
def test_unreadable_answers_are_called_again(url: str, stored: bytes) -> None:
    """Stored bytes that do not decode to this output, such as a pickle, are replaced by the answer of a new call."""
    service = Service()
    shared = Cache(store=RedisCache(url))
    enriched(service, shared, [1], "a")
    client = redis.Redis.from_url(url)
    (key,) = client.keys()
    client.set(key, stored)
    client.close()
    answers, counted = enriched(service, shared, [1], "a")
    assert (answers, counted["cache_errors"], counted["cached"]) == ([2], 1, 0)
    assert enriched(service, shared, [1], "a")[1]["cached"] == 1


def test_a_stopped_redis_delays_a_task_once(tmp_path: Path) -> None:
    """If Redis does not answer, only one timeout elapses. The function is called for each row, and no row fails."""
    with redis_server(tmp_path) as address:
        service = Service()
        client = redis.Redis.from_url(address)
        process: int = client.info()["process_id"]
        client.close()
        os.kill(process, signal.SIGSTOP)
        try:
            began = time.monotonic()
            shared = Cache(store=RedisCache(address), timeout=0.2)
            answers, counted = enriched(service, shared, list(range(20_000)), "a", buffer_rows=2_000)
            took = time.monotonic() - began
        finally:
            os.kill(process, signal.SIGCONT)
    assert answers == [2 * one for one in range(20_000)]
    assert len(service.called) == 20_000
    assert counted["cache_errors"] >= 1
    assert took < 15
    (hint,) = counted["hints"]
    assert "the cache's store failed (reading: TimeoutError: no answer within 0.2 s); calls go to the service" in hint


def test_without_a_server_all_rows_are_called() -> None:
    """Without a server, the function is called for all rows. The report contains the reason, without the password."""
    service = Service()
    store = RedisCache("redis://:secret@127.0.0.1:1/0")
    assert "secret" not in repr(store)
    answers, counted = enriched(service, Cache(store=store), list(range(100)), "a")
    assert answers == [2 * one for one in range(100)]
    assert counted["cache_errors"] >= 1
    (hint,) = counted["hints"]
    assert "redis.exceptions.ConnectionError" in hint
    assert "secret" not in hint


class Odd:
    """Store with one kind of fault."""

    def __init__(self, how: str) -> None:
        self.how = how

    async def get_many(self, keys: Sequence[str]) -> Any:
        if self.how == "short":
            return []
        if self.how == "exit":
            raise SystemExit
        if self.how == "hangs":
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.3)
                if self.how == "over":
                    return None
        return [None] * len(keys)

    async def set_many(self, answers: Mapping[str, bytes], ttl: float) -> None:
        if self.how == "writes":
            raise OSError("full")


@pytest.mark.parametrize("how", ["short", "exit", "hangs", "writes", "opens"])
@pytest.mark.parametrize("keyed", [False, True])
def test_no_store_fails_a_row(how: str, keyed: bool) -> None:
    """Whatever a store does, no row fails, the order of a key's rows does not change, and no run stalls."""
    store = Odd(how)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Odd]:
        if how == "opens":
            raise ConnectionError("closed")
        yield store

    service, ids = Service(), list(range(500))
    options = {"key": ("id",), "on_failure": "null"} if keyed else {}
    answers, counted = enriched(service, Cache(store=opened, timeout=0.05), ids, f"{how} {keyed}", **options)
    store.how = "over"
    assert answers == [2 * one for one in ids]
    assert len(service.called) == 500
    assert counted["cache_errors"] >= 1


def test_a_store_that_fails_is_opened_once_in_a_pause() -> None:
    """Writes do not open the store. During the pause after an error, the next task of the process does not use it."""
    opened = 0

    @contextlib.asynccontextmanager
    async def fails() -> AsyncIterator[Odd]:
        nonlocal opened
        opened += 1
        if opened:
            raise ConnectionError("closed")
        yield Odd("")

    shared, service = Cache(store=fails), Service()
    for errors in (1, 0):
        answers, counted = enriched(service, shared, [1, 2, 3], "paused")
        assert answers == [2, 4, 6]
        assert counted["cache_errors"] == errors
    assert opened == 1


def test_writes_do_not_open_the_store() -> None:
    """After a failed attempt to open the store and the pause, a lookup opens the store, but a write does not."""
    now, opened = 0.0, 0

    @contextlib.asynccontextmanager
    async def opens() -> AsyncIterator[Odd]:
        nonlocal opened
        opened += 1
        if opened:
            raise ConnectionError("closed")
        yield Odd("")

    async def access() -> None:
        nonlocal now
        batch = RowBatch(Chunk([1], str, 8, requests=[1]), 0.0, RowBuffer(9, 9, 9, lambda: None))
        looked_up = asyncio.Event()
        codec = AnswerCodec(SCHEMA, lambda _: None)
        cache = SharedCache(
            Cache(store=opens), "a", lambda: codec, Resources(), Pause(), EngineCounts(), lambda: now
        )  # fmt: skip
        cache.look_up(batch, [0], lambda *_: looked_up.set())
        await looked_up.wait()
        now = 60.0
        cache.put(1, {"twice": 2})
        await cache.close(flush=True)

    asyncio.run(access())
    assert opened == 1


@pytest.mark.parametrize(("timeout", "errors"), [(0.5, 1), (10.0, 0)])
def test_a_store_may_take_two_seconds_to_open_or_the_timeout(timeout: float, errors: int) -> None:
    """Opening a store that takes 3 s fails with the default timeout, and succeeds with a longer one."""
    counts = EngineCounts()

    @contextlib.asynccontextmanager
    async def opens() -> AsyncIterator[Odd]:
        await asyncio.sleep(3)
        yield Odd("")

    async def access() -> None:
        batch = RowBatch(Chunk([1], str, 8, requests=[1]), 0.0, RowBuffer(9, 9, 9, lambda: None))
        looked_up, resources = asyncio.Event(), Resources(idle_seconds=0.0)
        codec, store = AnswerCodec(SCHEMA, lambda _: None), Cache(store=opens, timeout=timeout)
        cache = SharedCache(store, "a", lambda: codec, resources, Pause(), counts)
        cache.look_up(batch, [0], lambda *_: looked_up.set())
        await looked_up.wait()
        await cache.close(flush=True)
        await resources.close_unused()

    virtual_time.run(access())
    assert counts.cache_errors == errors


class Text(str):
    """Subclass of a plain type, as some parsers of HTML return."""


class Moment(datetime.datetime):
    """Subclass of a plain type, like ``pandas.Timestamp``."""


def test_answers_of_every_type_survive() -> None:
    """Answers of every type yield the same columns after a msgpack round trip. Structs may be tuples or mappings.

    Regression: an answer with an object of a subclass was never found.
    """
    kinds = {
        "text": (pa.string(), "ü"), "data": (pa.binary(), b"\x00"), "flag": (pa.bool_(), True),
        "whole": (pa.int32(), 5),
        "real": (pa.float64(), 0.1), "exact": (pa.decimal128(38, 18), decimal.Decimal("1.5")),
        "day": (pa.date32(), datetime.date(2026, 1, 2)),
        "at": (pa.timestamp("us", "UTC"), datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.timezone.utc)),
        "local": (pa.timestamp("us"), datetime.datetime(2026, 1, 2, 3, 4, 5, 6)),
        "span": (pa.duration("us"), datetime.timedelta(days=-1, microseconds=7)),
        "nothing": (pa.string(), None),
        "title": (pa.string(), Text("ü")), "titles": (pa.list_(pa.string()), [Text("ab")]),
        "stamp": (pa.timestamp("us", "UTC"), Moment(2026, 1, 2, tzinfo=datetime.timezone.utc)),
        "parts": (pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])), [{"a": 1, "b": "x"}, (2, None), None]),
        "map": (pa.map_(pa.string(), pa.struct([("d", pa.date32())])), {"k": {"d": datetime.date(1, 1, 1)}, "l": None}),
    }  # fmt: skip
    schema = pa.schema([(name, kind) for name, (kind, _) in kinds.items()])
    answer = {name: value for name, (_, value) in kinds.items()}
    writer = AnswerWriter(schema)
    codec = AnswerCodec(schema, writer.misfit)
    decoded = codec.decode(codec.encode(answer))
    (before, failed), (after, failed_again) = writer.write([answer]), writer.write([decoded])
    assert not failed
    assert not failed_again
    assert before == after


def test_keys_are_the_same_in_every_process() -> None:
    """The key of a request depends only on the values of the request."""
    codec = AnswerCodec(SCHEMA, lambda _: None)
    assert codec.key((1, "a", None)) == "e2320090a743fa5f30c7b1fd8762eb2b"
    assert codec.key((1, "a", None)) != codec.key((1, "a", "None"))


def test_contradictions_are_refused() -> None:
    """Options that have no effect with a store, or without a store, are rejected."""
    store = RedisCache("redis://localhost")
    assert pickle.loads(pickle.dumps(store)) == store
    with pytest.raises(InvalidPlanError, match=r"Cache.ttl is 0; allowed: seconds above 0 with Cache.store"):
        Cache(by="id", ttl=0, store=store)
    with pytest.raises(InvalidPlanError, match=r"Cache.max_entries is 5; allowed: the default with Cache.store"):
        Cache(max_entries=5, store=store)
    with pytest.raises(InvalidPlanError, match=r"Cache.version is '2' without Cache.store, but only a store uses it"):
        Cache(version="2")
    with pytest.raises(InvalidPlanError, match=r"RedisCache.url is ''; allowed: an address such as"):
        RedisCache("")
