"""Tests of one partition in this process: the engine reads Arrow batches and returns them with answers."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_events.enrichment.engine.engine import Definition
from spark_events.enrichment.engine.ledger import JobLimits
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Auto, Budget, Cache, Retry
from spark_events.enrichment.worker.channel_client import ChannelAddress, TaskAttempt
from spark_events.enrichment.worker.partition import Partition
from spark_events.enrichment.worker.replay import ReplayStore
from spark_events.enrichment.worker.report import COLUMN, PartitionReport
from spark_events.enrichment.worker.task import Task

_OUTPUT = pa.schema([pa.field("twice", pa.int64())]).serialize().to_pybytes()
_number = itertools.count()


async def _twice(row: Any) -> Mapping[str, int]:
    return {"twice": 2 * row.id}


def _enriched(
    plan: Plan, batch: pa.RecordBatch, input_cols: tuple[str, ...] = ("id",)
) -> tuple[pa.Table, Mapping[str, Any]]:
    """Return the rows with their answers, and the counters."""
    task = Task(b"", b"", _OUTPUT, input_cols, tuple(batch.schema.names), scope="", settles=True)
    partition = Partition(
        task, plan, Definition("calls", "answers", "resource", f"partition {next(_number)}"), TaskAttempt(), ""
    )
    made = pa.Table.from_batches(list(partition.run(iter([batch]))))
    report = made.column(COLUMN)[-1].as_py()["report"]
    return made, PartitionReport.from_bytes(report).statistics


def _wide(rows: int, size: int) -> pa.RecordBatch:
    columns = [pa.array(range(rows), pa.int64()), pa.array(["x" * size] * rows)]
    return pa.RecordBatch.from_arrays(columns, names=["id", "body"])


@pytest.mark.no_cover
@pytest.mark.parametrize("rows", [10, 999, 5_000, 50_000])
def test_the_number_of_held_rows_is_limited_by_the_plan(rows: int) -> None:
    """For any size of Spark's batches, the plan limits the number of held rows without changing their order."""
    made, counted = _enriched(Plan(_twice, max_in_flight=5, buffer_rows=rows), _wide(20_000, 1))
    assert made.column("twice").to_pylist() == [2 * number for number in range(20_000)]
    assert 0 < counted["buffer_rows"] <= rows


def test_wide_rows_are_limited_by_their_size() -> None:
    """Rows are also limited by size: a few hundred wide rows fill the buffer."""
    made, counted = _enriched(Plan(_twice, max_in_flight=5, buffer_bytes=1_000_000), _wide(2_000, 5_000))
    assert made.column("twice").to_pylist() == [2 * number for number in range(2_000)]
    assert 5_000 < counted["buffer_bytes"] <= 1_000_000 * 9 / 8


@pytest.mark.parametrize("names", [(), ("i.d", "body")], ids=str)
def test_non_nullable_columns_stay_non_nullable(names: tuple[str, ...]) -> None:
    """Non-nullable columns stay non-nullable, because Spark validates Arrow's schema."""
    kinds = [pa.field("id", pa.int64(), nullable=False), pa.field("body", pa.string())]
    batch = pa.RecordBatch.from_arrays(_wide(10, 1).columns, schema=pa.schema(kinds))
    output = pa.schema([pa.field("twice", pa.int64(), nullable=False)]).serialize().to_pybytes()
    own = names or ("id", "body")
    task = Task(b"", b"", output, own[:1], own, scope="", settles=True, names=names)

    async def twice(row: Any) -> Mapping[str, int]:
        return {"twice": 2 * row[0]}

    definition = Definition("calls", "answers", "resource", f"partition {next(_number)}")
    plan = Plan(twice, max_in_flight=1, buffer_rows=4)
    for made in Partition(task, plan, definition, TaskAttempt(), "").run(iter([batch])):
        assert [field.name for field in made.schema] == [*own, "twice", COLUMN]
        # The failed row has no answer.
        assert [field.nullable for field in made.schema] == [False, True, True, True]


def _bodies(plan: Plan, batches: list[pa.RecordBatch], replay: ReplayStore | None = None) -> list[pa.RecordBatch]:
    """Return the batches with answers; a batch has at most 1,000 bytes of answers."""
    output = pa.schema([pa.field("text", pa.string())]).serialize().to_pybytes()
    task = Task(b"", b"", output, ("id",), ("id",), scope="", settles=True, replay=replay)
    definition = Definition("calls", "answers", "resource", f"partition {next(_number)}")
    partition = Partition(task, plan, definition, TaskAttempt(), "", most_bytes=1_000)
    return list(partition.run(iter(batches)))


@pytest.mark.parametrize("nested", [False, True])
def test_large_answers_count_towards_the_buffer(nested: bool) -> None:
    """Large answers use up the buffer, so only a few small rows with large answers are held."""
    most = held = 0

    async def fn(row: Any) -> Mapping[str, Any]:
        nonlocal most, held
        held += 1
        most = max(most, held)
        await asyncio.sleep(0)
        text = "x" * 10_000 + str(row.id)
        return {"text": [{"a": [text]}] if nested else text}

    kind = pa.list_(pa.struct([("a", pa.list_(pa.string()))])) if nested else pa.string()
    output = pa.schema([pa.field("text", kind)]).serialize().to_pybytes()
    task = Task(b"", b"", output, ("id",), ("id",), scope="", settles=True)
    plan = Plan(fn, max_in_flight=5, buffer_bytes=1_000_000)
    partition = Partition(
        task, plan, Definition("calls", "answers", "resource", f"partition {next(_number)}"), TaskAttempt(), ""
    )
    rows = 0
    for batch in partition.run(iter([_wide(3_000, 1)])):
        rows += batch.num_rows
        held -= batch.num_rows
    assert rows == 3_000
    # The maximum number of rows may include one batch that is held for the report.
    assert most <= 100 * 10 / 8


def test_large_answers_are_sent_in_several_batches(tmp_path: Path) -> None:
    """Large answers are sent in several batches, in order and with failures. One call is made per row.

    A replay makes no call.
    """
    called: list[int] = []

    async def fn(row: Any) -> Mapping[str, Any]:
        called.append(row.id)
        if row.id == 170:
            raise ValueError
        return {"text": "x" * 400 + str(row.id)}

    plan = Plan(fn, max_in_flight=50, on_failure="null", retry=None)
    output = pa.schema([pa.field("text", pa.string())]).serialize().to_pybytes()
    store = ReplayStore(f"file://{tmp_path}", "q", 1, "d", "1", output, "[]")
    for calls in (300, 301):
        made = _bodies(plan, [_wide(300, 1)], store)
        assert max(batch.num_rows for batch in made) <= 4
        table = pa.Table.from_batches(made)
        expected = [None if row == 170 else "x" * 400 + str(row) for row in range(300)]
        assert table.column("id").to_pylist() == list(range(300))
        assert table.column("text").to_pylist() == expected
        assert [one["failure"] is None for one in table.column(COLUMN).to_pylist() if one] == [False, True]
        report = PartitionReport.from_bytes(table.column(COLUMN)[-1].as_py()["report"])
        assert (report.rows, report.failed, report.samples[0].row) == (300, 1, 170)
        assert len(called) == calls


def test_a_task_that_ends_between_batches_stores_all_answers(tmp_path: Path) -> None:
    """If a task ends between two batches, all answers are stored, because calls with large answers are expensive."""

    async def fn(row: Any) -> Mapping[str, Any]:
        return {"text": "x" * 400}

    output = pa.schema([pa.field("text", pa.string())]).serialize().to_pybytes()
    store = ReplayStore(f"file://{tmp_path}", "q", 1, "d", "1", output, "[]")
    task = Task(b"", b"", output, ("id",), ("id",), scope="", settles=True, replay=store)
    definition = Definition("calls", "answers", "resource", f"partition {next(_number)}")
    partition = Partition(task, Plan(fn, max_in_flight=50, tasks=4), definition, TaskAttempt(), "", most_bytes=1_000)
    out = partition.run(iter([_wide(50, 1)]))
    assert next(out).num_rows < 50
    out.close()  # type: ignore[attr-defined]
    files = [pa.ipc.open_stream(file.read_bytes()).read_all() for file in tmp_path.rglob("*.arrow")]
    assert sum(file.num_rows for file in files) == 50


def test_unordered_rows_keep_their_columns(tmp_path: Path) -> None:
    """Unordered rows keep their own columns, failures contain input positions, and a replay makes no call."""
    called: list[int] = []

    async def fn(row: Any) -> Mapping[str, Any]:
        called.append(row.id)
        await asyncio.sleep(0.05 if row.id % 50 == 0 else 0)
        if row.id == 170:
            raise ValueError
        return {"text": "x" * 100 + str(row.id)}

    plan = Plan(fn, max_in_flight=20, on_failure="null", retry=None, buffer_rows=40, ordered=False)
    output = pa.schema([pa.field("text", pa.string())]).serialize().to_pybytes()
    store = ReplayStore(f"file://{tmp_path}", "q", 1, "d", "1", output, "[]")
    for calls in (300, 301):
        made = pa.Table.from_batches(_bodies(plan, [_wide(200, 1), _wide(300, 1).slice(200)], store))
        ids = made.column("id").to_pylist()
        assert sorted(ids) == list(range(300))
        assert calls == 301 or ids != list(range(300))
        assert made.column("text").to_pylist() == [None if row == 170 else "x" * 100 + str(row) for row in ids]
        hidden = made.column(COLUMN).to_pylist()
        assert [row for row, one in zip(ids, hidden, strict=True) if one and one["failure"]] == [170]
        report = PartitionReport.from_bytes(made.column(COLUMN)[-1].as_py()["report"])
        assert (report.rows, report.failed, report.samples[0].row) == (300, 1, 170)
        assert len(called) == calls


def test_text_that_is_not_utf_8_in_an_exception_fails_only_its_row() -> None:
    """If an exception's message, its type's name or its code's path is not valid UTF-8, only the row fails."""

    async def fn(row: Any) -> Mapping[str, int]:
        if row.id == 1:
            raise type("Odd", (Exception,), {"__module__": "\udcfc"})("odd \ud800")
        return {"twice": 2 * row.id}

    fn.__code__ = fn.__code__.replace(co_filename="/job/\udcfc.py")
    made, _ = _enriched(Plan(fn, on_failure="column"), _wide(3, 1))
    assert made.column("twice").to_pylist() == [0, None, 4]
    failure = made.column(COLUMN)[1].as_py()["failure"]
    assert (failure["type"], failure["message"]) == ("?.Odd", "odd ?")
    assert failure["where"].startswith("/job/?.py:")


def test_errors_of_the_replay_store_are_reported(tmp_path: Path) -> None:
    """Errors raised by the replay store are reported and affect no answer, because the store only avoids calls."""
    (tmp_path / "store").touch()
    replay = ReplayStore((tmp_path / "store").as_uri(), "q", 1, "twice", "1", _OUTPUT, "[]")
    task = Task(b"", b"", _OUTPUT, ("id",), ("id",), scope="q/1", settles=True, replay=replay)
    partition = Partition(task, Plan(_twice), Definition("calls", "answers", "resource", "refused"), TaskAttempt(), "")
    made = pa.Table.from_batches(list(partition.run(iter([_wide(3, 1)]))))
    assert made.column("twice").to_pylist() == [0, 2, 4]
    report = PartitionReport.from_bytes(made.column(COLUMN)[-1].as_py()["report"])
    assert "cannot be written, so answers are not stored" in report.warnings[-1]


def _bought(store: ReplayStore, columns: Mapping[str, list[Any]], **options: Any) -> tuple[list[Any], list[Any]]:
    """Return the answers for orders, and the users for which the function was called."""
    called: list[Any] = []

    async def fn(row: Any) -> Mapping[str, Any]:
        called.append(row.user)
        return {"text": f"country of {row.user}"}

    output = pa.schema([pa.field("text", pa.string())]).serialize().to_pybytes()
    task = Task(b"", b"", output, ("user",), ("order",), scope="q/1", settles=True, replay=store)
    definition = Definition("calls", "answers", "resource", f"partition {next(_number)}")
    batch = pa.RecordBatch.from_pydict(dict(columns))
    made = pa.Table.from_batches(
        list(Partition(task, Plan(fn, **options), definition, TaskAttempt(), "").run(iter([batch])))
    )
    return made.column("text").to_pylist(), called


def test_the_replay_store_identifies_answers_by_request(tmp_path: Path) -> None:
    """The replay store identifies answers by request, so two requests about one order have different answers."""
    output = pa.schema([pa.field("text", pa.string())]).serialize().to_pybytes()
    store = ReplayStore(f"file://{tmp_path}", "q", 1, "d", "1", output, "[]")
    lines: dict[str, list[Any]] = {"order": [1, 2, 2], "user": ["a", "b", None], "at": ["x", "y", "z"]}
    answers = ["country of a", "country of b", "country of None"]
    assert _bought(store, lines) == (answers, ["a", "b", None])
    assert _bought(store, {**lines, "at": ["new", "new", "new"]}) == (answers, [])
    sellers = {**lines, "user": ["c", "b", "d"]}
    assert _bought(store, sellers) == (["country of c", "country of b", "country of d"], ["c", "d"])
    assert _bought(store, lines) == (answers, [])


def test_the_replay_store_identifies_answers_by_shared_columns(tmp_path: Path) -> None:
    """If the `coalesce_by` columns of a row change between two runs, the row receives the answer for its new group."""
    output = pa.schema([pa.field("text", pa.string())]).serialize().to_pybytes()
    store = ReplayStore(f"file://{tmp_path}", "q", 1, "d", "1", output, "[]")
    lines: dict[str, list[Any]] = {"order": [1, 2], "user": ["a", "b"], "house": [7, 7]}
    assert _bought(store, lines, coalesce_by="house") == (["country of a"] * 2, ["a"])
    moved = {**lines, "house": [7, 8]}
    assert _bought(store, moved, coalesce_by="house") == (["country of a", "country of b"], ["b"])


def _with_a_moment(moments: list[int], zone: str = "America/New_York") -> pa.RecordBatch:
    until = pa.array(moments, pa.int64()).cast(pa.timestamp("us", zone))
    return pa.RecordBatch.from_arrays([pa.array(range(len(moments)), pa.int64()), until], names=["id", "until"])


#: The end of the year 9999 in New York, which is beyond Python's calendar in UTC.
_BEYOND = 253_402_318_799_000_000


@pytest.mark.parametrize(
    "options",
    [{}, {"key": "until"}, {"batch_size": 2}, {"coalesce_by": "id"}, {"cache": Cache(max_entries=10, ttl=60)}],
    ids=str,
)
def test_a_row_that_python_cannot_represent_fails_without_a_call(options: dict[str, Any]) -> None:
    called: list[int] = []

    async def one(row: Any, ctx: Any) -> Mapping[str, int]:
        called.append(row.id)
        return {"twice": 2 * row.id}

    async def several(rows: list[Any], ctx: Any) -> list[Mapping[str, int]]:
        return [await one(row, ctx) for row in rows]

    plan = Plan(several if "batch_size" in options else one, on_failure="null", **options)
    made, counted = _enriched(plan, _with_a_moment([0, _BEYOND, 1, _BEYOND, 2]), ("id", "until"))
    assert made.column("twice").to_pylist() == [0, None, 4, None, 8]
    assert sorted(called) == [0, 2, 4]
    assert (counted["rows"], counted["known"], counted["coalesced"]) == (5, 0, 0)
    assert (counted["failures"], counted["kinds"]) == ({"OverflowError": 2}, {"error": 2})
    failure = made.column(COLUMN)[1].as_py()["failure"]
    assert (failure["kind"], failure["attempts"], failure["retryable"]) == ("error", 0, False)
    assert "column 'until' (timestamp)" in failure["message"]


@pytest.mark.parametrize("options", [{}, {"key": "until"}, {"coalesce_by": "until"}], ids=str)
def test_columns_outside_the_request_may_have_any_value(options: dict[str, Any]) -> None:
    """A column outside the request may have any value, even if it orders calls or identifies requests or rows."""
    keys: list[str] = []

    async def fn(row: Any, ctx: Any) -> Mapping[str, int]:
        keys.append(ctx.idempotency_key)
        return {"twice": 7}

    made, counted = _enriched(Plan(fn, **options), _with_a_moment([0, _BEYOND, _BEYOND + 1, _BEYOND]))
    assert made.column("twice").to_pylist() == [7] * 4
    assert len(set(keys)) == len(keys) == (3 if "coalesce_by" in options else 4)
    assert counted["failures"] == {}


@pytest.mark.parametrize(("on_failure", "answers"), [("fail", [0, None, None, 6]), ("null", [0, None, 4, 6])])
def test_rows_after_an_unrepresentable_row_of_their_key_are_skipped(on_failure: Any, answers: list[int | None]) -> None:
    """After a row that Python cannot represent, later rows with the same key are skipped, so the order is kept."""
    batch = _with_a_moment([0, _BEYOND, 0, 0]).append_column("k", pa.array([1, 1, 1, 2]))
    made, _ = _enriched(Plan(_twice, key=("k",), on_failure=on_failure), batch, ("id", "until"))
    assert made.column("twice").to_pylist() == answers


@pytest.mark.parametrize(
    ("on_failure", "answers", "kinds"),
    [("fail", [None, None, 4, None], ["error", "skipped", None, "skipped"]), ("null", [None, 2, 4, 6], ["error"])],
    ids=["fail", "null"],
)
def test_rows_after_an_invalid_answer_of_their_key_are_skipped(
    on_failure: Any, answers: list[int | None], kinds: list[str | None]
) -> None:
    """A row with an invalid answer is not retried, and later rows with the same key are skipped."""
    called: list[int] = []

    async def fn(row: Any) -> Mapping[str, Any]:
        called.append(row.id)
        return {"twice": "a text" if row.id == 0 else 2 * row.id}

    batch = _wide(4, 1).append_column("k", pa.array([1, 1, 2, 1]))
    plan = Plan(fn, key=("k",), on_failure=on_failure, retry=Retry(on=(Exception,), initial=0, jitter=0))
    made, _ = _enriched(plan, batch)
    assert made.column("twice").to_pylist() == answers
    assert sorted(called) == [row for row, answer in enumerate(answers) if row == 0 or answer is not None]
    failures = [one and one["failure"] for one in made.column(COLUMN).to_pylist()]
    assert [one and one["kind"] for one in failures][: len(kinds)] == kinds
    assert (failures[0]["type"], failures[0]["attempts"]) == ("OutputError", 1)
    report = PartitionReport.from_bytes(made.column(COLUMN)[-1].as_py()["report"])
    assert report.types["OutputError"] == 1


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"coalesce_by": "id"}], ids=str)
def test_the_cache_keeps_no_invalid_answer(options: dict[str, Any]) -> None:
    """The cache stores no invalid answer. A cached invalid answer would fail rows without a call until it expires."""
    called: list[int] = []
    wrong = True

    async def one(row: Any) -> Mapping[str, Any]:
        called.append(row.id)
        return {"twice": "a text" if wrong and row.id == 1 else 2 * row.id}

    async def several(rows: list[Any]) -> list[Mapping[str, Any]]:
        return [await one(row) for row in rows]

    fn = several if "batch_size" in options else one
    plan = Plan(fn, on_failure="null", cache=Cache(max_entries=10, ttl=3600), **options)
    definition = Definition("calls", f"answers {next(_number)}", "resource", f"partition {next(_number)}")
    task = Task(b"", b"", _OUTPUT, ("id",), ("id",), scope="", settles=True)
    for answers in ([0, None, 4], [0, 2, 4], [0, 2, 4]):
        made = pa.Table.from_batches(
            list(Partition(task, plan, definition, TaskAttempt(), "").run(iter([_wide(3, 1)])))
        )
        assert made.column("twice").to_pylist() == answers
        wrong = False
    assert called == [0, 1, 2, 1]


@pytest.mark.parametrize(
    ("job", "limit", "share"),
    [
        (JobLimits(calls_per_second=100_000, in_flight=12), 50, 3),
        (JobLimits(), Auto(max=24, initial=24), 6),
    ],
    ids=["limits of the job", "window"],
)
def test_a_task_that_cannot_reach_the_driver_uses_an_even_share(job: JobLimits, limit: int | Auto, share: int) -> None:
    """Without the driver's leases, a task stays within its share. The warning is the same in each batch."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = ChannelAddress("127.0.0.1", closed.getsockname()[1], b"s" * 16)
    in_flight = most = 0

    async def fn(row: Any) -> Mapping[str, int]:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.01)
        in_flight -= 1
        return {"twice": 2 * row.id}

    task = Task(b"", b"", _OUTPUT, ("id",), ("id",), scope="", settles=True, job=job, channel=address)
    definition = Definition("calls", "answers", "resource", f"partition {next(_number)}")
    partition = Partition(task, Plan(fn, max_in_flight=limit, tasks=4), definition, TaskAttempt(), "")
    made = pa.Table.from_batches(list(partition.run(iter([_wide(500, 1)]))))
    assert made.column("twice").to_pylist() == [2 * number for number in range(500)]
    assert most == share
    counted = PartitionReport.from_bytes(made.column(COLUMN)[-1].as_py()["report"]).statistics
    (text,) = counted["hints"]
    assert text.startswith("a task cannot connect to the driver at 127.0.0.1 (Connection refused); such tasks share ")


@pytest.mark.parametrize(("cost", "hints"), [(25, []), (26, ["the share of its task (25 of Budget.per_minute=100)"])])
def test_a_call_above_the_share_of_its_task_causes_a_hint(cost: float, hints: list[str]) -> None:
    """With an even split, a call may need more than the share of its task, so the tasks may exceed the budget."""
    task = Task(b"", b"", _OUTPUT, ("id",), ("id",), scope="", settles=True, job=JobLimits(None, 100))
    # A new function, because the ledger of a function remembers the calls of earlier tasks.
    definition = Definition(f"calls {next(_number)}", "answers", "resource", f"partition {next(_number)}")
    plan = Plan(_twice, budget=Budget(100, cost=lambda row: cost), tasks=4)
    (batch,) = Partition(task, plan, definition, TaskAttempt(), "").run(iter([_wide(1, 1)]))
    found = PartitionReport.from_bytes(batch.column(COLUMN)[0].as_py()["report"]).statistics["hints"]
    assert len(found) == len(hints)
    assert all(part in text for part, text in zip(hints, found, strict=True))


def test_usage_is_counted_with_batch_size() -> None:
    """The usage of a call is the sum over its rows. A failed row counts with its own estimate."""

    async def fn(rows: list[Any]) -> list[Any]:
        return [KeyError("row") if row.id == 3 else {"twice": 2 * row.id} for row in rows]

    budget = Budget(10**6, cost=lambda row: 1000 + row.id, usage=lambda answer: answer["twice"])
    task = Task(b"", b"", _OUTPUT, ("id",), ("id",), scope="", settles=True, job=JobLimits(None, 1e6))
    definition = Definition("calls", "answers", "resource", f"partition {next(_number)}")
    plan = Plan(fn, batch_size=4, budget=budget, on_failure="null", retry=None)
    made = pa.Table.from_batches(list(Partition(task, plan, definition, TaskAttempt(), "").run(iter([_wide(10, 1)]))))
    counted = PartitionReport.from_bytes(made.column(COLUMN)[-1].as_py()["report"]).statistics
    assert counted["usage"] == 2 * (sum(range(10)) - 3) + 1003
