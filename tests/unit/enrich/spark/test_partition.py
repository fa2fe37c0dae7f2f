"""One partition through the engine, in this process: Arrow batches in, the same with answers out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from spark_events.enrich.engine.engine import Definition
from spark_events.enrich.plan import Plan
from spark_events.enrich.spark.partition import Partition
from spark_events.enrich.spark.report import COLUMN, Report
from spark_events.enrich.spark.task import Task

_OUTPUT = pa.schema([pa.field("twice", pa.int64())]).serialize().to_pybytes()
_number = itertools.count()


async def _twice(row: Any) -> Mapping[str, int]:
    return {"twice": 2 * row.id}


def _enriched(plan: Plan, batch: pa.RecordBatch) -> tuple[pa.Table, Mapping[str, Any]]:
    """The rows with their answers, and what was counted."""
    task = Task(b"", b"", _OUTPUT, ("id",), ("id",), scope="", settles=True)
    partition = Partition(task, plan, Definition("calls", "answers", "resource", f"partition {next(_number)}"), 0, "")
    made = pa.Table.from_batches(list(partition.run(iter([batch]))))
    report = made.column(COLUMN)[-1].as_py()["report"]
    return made, Report.from_bytes(report).statistics


def _wide(rows: int, size: int) -> pa.RecordBatch:
    columns = [pa.array(range(rows), pa.int64()), pa.array(["x" * size] * rows)]
    return pa.RecordBatch.from_arrays(columns, names=["id", "body"])


@pytest.mark.parametrize("rows", [10, 999, 5_000, 50_000])
def test_no_more_rows_are_held_than_the_plan_allows(rows: int) -> None:
    """Spark's batches are cut, however large they are; every row has its answer, in its place."""
    made, counted = _enriched(Plan(_twice, max_in_flight=5, buffer_rows=rows), _wide(20_000, 1))
    assert made.column("twice").to_pylist() == [2 * number for number in range(20_000)]
    assert 0 < counted["buffer_rows"] <= rows


def test_wide_rows_are_held_by_their_size() -> None:
    """Rows of which a few hundred fill the buffer."""
    made, counted = _enriched(Plan(_twice, max_in_flight=5, buffer_bytes=1_000_000), _wide(2_000, 5_000))
    assert made.column("twice").to_pylist() == [2 * number for number in range(2_000)]
    assert 5_000 < counted["buffer_bytes"] <= 1_000_000 * 9 / 8


def test_what_utf8_cannot_hold_in_an_exception_fails_its_row_and_not_the_task() -> None:
    """A lone surrogate in what it says, in its type's name, or in the path of the code that raised."""

    async def fn(row: Any) -> Mapping[str, int]:
        if row.id == 1:
            raise type("Odd", (Exception,), {"__module__": "\udcfc"})("told \ud800")
        return {"twice": 2 * row.id}

    fn.__code__ = fn.__code__.replace(co_filename="/job/\udcfc.py")
    made, _ = _enriched(Plan(fn, on_failure="column"), _wide(3, 1))
    assert made.column("twice").to_pylist() == [0, None, 4]
    failure = made.column(COLUMN)[1].as_py()["failure"]
    assert (failure["type"], failure["message"]) == ("?.Odd", "told ?")
    assert failure["where"].startswith("/job/?.py:")
