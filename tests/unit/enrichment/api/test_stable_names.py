"""Tests of the shared cache's keys, which are equal in every driver process."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fakes import ROOT
from pyspark.sql.types import LongType, StructField, StructType
from redis_server import redis_server

from spark_events.enrichment.api.closures import definition_of
from spark_events.enrichment.api.schema import Output
from spark_events.enrichment.api.stable_names import described
from spark_events.enrichment.plan import Plan

#: Driver whose function, class and constants are in the main script, so that cloudpickle pickles them by value.
SCRIPT = """
import contextlib
import dataclasses
import itertools
import sys

import pyarrow as pa
import redis.asyncio  # before the time limit for opening the store begins
from pyspark.sql import types

from spark_events import Cache, RedisCache
from spark_events.enrichment.api.closures import definition_of
from spark_events.enrichment.api.schema import Output
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.worker.driver_channel import TaskAttempt
from spark_events.enrichment.worker.partition import Partition
from spark_events.enrichment.worker.task import Task

url, version, column, host = sys.argv[1:]
KNOWN = {"one", "two", "three"}
calls = 0

@dataclasses.dataclass
class Answer:
    twice: int

def opener(host):
    @contextlib.asynccontextmanager
    async def opened():
        yield host
    return opened

async def lookup(row, ctx):
    global calls
    calls += 1
    assert str(row.id) not in KNOWN
    return {column: 2 * row.id}

model = Answer if column == "twice" else None
cache = Cache(store=RedisCache(url), version=version, timeout=30)
plan = Plan(lookup, cache=cache, resource=opener(host), model=model)
rows = types.StructType([types.StructField("id", types.LongType())])
answers = types.StructType([types.StructField(column, types.LongType())])
output = Output(answers, pa.schema([(column, pa.int64())]))
definition = definition_of(plan, output, rows, ["id"])
task = Task(b"", b"", output.serialised(), ("id",), ("id",), scope="", settles=True)
batch = pa.RecordBatch.from_pydict({"id": pa.array(range(100), pa.int64())})
partition = Partition(task, plan, definition, TaskAttempt(), "")
table = pa.Table.from_batches(list(partition.run(iter([batch]))))
assert table.column(column).to_pylist()[:100] == [2 * n for n in range(100)]
print(calls, definition.answers, definition.stored)
"""


def test_driver_processes_share_answers(tmp_path: Path) -> None:
    """Another process with the same script makes no calls.

    A change of version, output, resource or script repeats all calls.
    """
    script, other = tmp_path / "job.py", tmp_path / "other.py"
    for path in (script, other):
        path.write_text(SCRIPT, encoding="utf-8")
    with redis_server(tmp_path) as url:

        def run(path: Path, version: str = "1", column: str = "twice", host: str = "production") -> list[str]:
            command = [sys.executable, str(path), url, version, column, host]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()

        first, second = run(script), run(script)
        assert (first[0], second[0]) == ("100", "0")
        assert first[2] == second[2]
        # The pickles differ, so this test would fail if the key contained them.
        assert first[1] != second[1]
        for changed in (
            run(script, version="2"), run(script, column="double"), run(script, host="test"), run(other),
        ):  # fmt: skip
            assert changed[0] == "100"


class Client:
    """Callable object whose repr contains its memory address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.me = self

    async def __call__(self, row: Any) -> None:
        """Answer nothing."""


async def plain(row: Any, hosts: tuple[str, ...] = ("a", "b")) -> None:
    """Answer nothing."""


def holding(value: Any) -> Callable[..., Any]:
    """Return a function that captures a value."""

    async def fn(row: Any) -> Any:
        return value

    return fn


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (plain, holding(1)),
        (holding(1), holding(2)),
        (holding(1), holding(True)),
        (holding({"a": 1}), holding({"a": 2})),
        (holding([1, 2]), holding([2, 1])),
        (holding(holding(1)), holding(holding(2))),
        (holding({"a": 1}.get), holding({"a": 2}.get)),
        (Client("a"), Client("b")),
        (Client("a").__call__, Client("b").__call__),
        (functools.partial(plain, hosts=("a",)), functools.partial(plain, hosts=("b",))),
        (plain, functools.partial(plain, hosts=("b",))),
    ],
)
def test_other_values_have_other_descriptions(one: Any, other: Any) -> None:
    """Functions that capture different values have different descriptions."""
    assert described(one) == described(one)
    assert described(one) != described(other)


def test_equal_values_have_equal_descriptions() -> None:
    """The order of sets and dictionaries has no effect, and iterators are not consumed."""
    assert described(holding({"a", "b", "c"})) == described(holding({"c", "b", "a"}))
    assert described(holding({"a": 1, "b": 2})) == described(holding({"b": 2, "a": 1}))
    assert described(Client("a")) == described(Client("a"))
    numbers = itertools.count()
    described(holding(numbers))
    letters = iter("abc")
    described(holding(letters))
    assert (next(numbers), next(letters)) == (0, "a")


def unassigned() -> Callable[..., Any]:
    """Return a function that references a variable without a value."""
    fn = holding(1)
    assert fn.__closure__ is not None
    for cell in fn.__closure__:
        del cell.cell_contents
    return fn


def in_a_notebook() -> Callable[..., Any]:
    """Return a function of a main module without a file."""
    fn = holding(1)
    fn.__module__ = "__main__"
    return fn


@pytest.mark.parametrize("make", [unassigned, in_a_notebook])
def test_a_function_without_stable_names_has_the_keys_of_its_process(
    make: Callable[[], Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a function cannot be described, its keys contain its pickle, so that no other function shares its answers."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    schema = StructType([StructField("id", LongType())])
    output = Output(schema, pa.schema([("id", pa.int64())]))

    def keys_of(fn: Callable[..., Any]) -> tuple[str, str]:
        definition = definition_of(Plan(fn), output, schema, ["id"])
        return definition.stored, definition.answers

    stored, answers = keys_of(make())
    assert stored == answers
    stored, answers = keys_of(plain)
    assert stored != answers
