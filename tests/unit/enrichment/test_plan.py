"""Tests of the validation of a plan: invalid arguments are rejected at once, with one sentence."""

from __future__ import annotations

import contextlib
import functools
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from pyspark.sql import Row

from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Auto, Cache, Retry
from spark_events.errors import InvalidPlanError


async def one(row: Any) -> None: ...
async def two(row: Any, ctx: Any) -> None: ...
async def named(row: Any, ctx: Any = None) -> None: ...
async def tuned(row: Any, limit: int = 3) -> None: ...
async def none() -> None: ...
async def three(a: Any, b: Any, c: Any) -> None: ...
async def keyword(row: Any, *, token: str) -> None: ...
async def many(*rows: Any) -> None: ...
async def keyword_context(row: Any, *, ctx: Any = None) -> None: ...
async def keyword_limit(row: Any, *, limit: int = 3) -> None: ...
def plain(row: Any) -> None: ...


async def yields(row: Any) -> AsyncIterator[int]:
    yield 1


class Callable:
    async def __call__(self, row: Any, ctx: Any) -> None: ...

    async def method(self, row: Any) -> None: ...


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[int]:
    yield 1


async def bare() -> AsyncIterator[int]:
    yield 1


async def coroutine() -> int:
    return 1


@pytest.mark.parametrize(
    ("fn", "context"),
    [
        (one, False), (two, True), (named, True), (tuned, False), (many, False), (Callable(), True),
        (keyword_limit, False), (functools.partial(keyword_context, ctx=1), False),
        (Callable().method, False), (functools.partial(two, ctx=1), False), (functools.partial(tuned, limit=1), False),
        (functools.partial(three, 1), True),
    ],
)  # fmt: skip
def test_valid_functions_are_accepted(fn: Any, context: bool) -> None:
    """A function receives `ctx` if it has a second argument without a default, or an argument with this name."""
    assert Plan(fn).wants_context is context


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (plain, "plain (.*test_plan.py.*) is not async; expected async def fn.*asyncio.to_thread"),
        (yields, "yields"),
        (none, r"none .* takes \(\)"),
        (three, "three .* takes"),
        (keyword, "keyword .* takes"),
        (keyword_context, r"keyword_context .* takes .*; expected async def fn\(row\) or async def fn\(row, ctx\)"),
        (7, "fn is int, not a function"),
        (Callable, "fn is the class Callable, not a function: pass an object of it .* such as Callable"),
        (Callable.method, "Callable.method .* is a method without its object"),
        (None, "fn is NoneType"),
    ],
)
def test_invalid_functions_are_rejected(fn: Any, message: str) -> None:
    """The message about an invalid function contains its name and location."""
    with pytest.raises(InvalidPlanError, match=message):
        Plan(fn)


@pytest.mark.parametrize("resource", [None, client, Callable, functools.partial(client)])
def test_valid_resources_are_accepted(resource: Any) -> None:
    """A resource may be any object that can be called without arguments."""
    assert Plan(one, resource=resource).resource is resource


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        (client(), "not a function, or is already open"),
        (bare, "decorate it with contextlib.asynccontextmanager"),
        (coroutine, "is async def"),
        (lambda url: client(), r"takes \(url\)"),
        ("http://x", "resource is str"),
    ],
)
def test_invalid_resources_are_rejected(resource: Any, message: str) -> None:
    """The message about an invalid resource names the specific mistake."""
    with pytest.raises(InvalidPlanError, match=message):
        Plan(one, resource=resource)


async def takes_rows(rows: list[Any]) -> Any: ...
async def returns_list(rows: Any) -> list[dict[str, Any]]:
    return []


async def takes_row(row: Row) -> Any: ...
async def returns_mapping(row: Any, ctx: Any) -> Mapping[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("fn", "batch_size", "message"),
    [
        (takes_rows, None, "is a function of several rows: give batch_size"),
        (returns_list, None, "is a function of several rows: give batch_size"),
        (takes_row, 10, "is a function of one row: leave out batch_size"),
        (returns_mapping, 10, "is a function of one row: leave out batch_size"),
    ],
)
def test_annotations_must_agree_with_batch_size(fn: Any, batch_size: int | None, message: str) -> None:
    """Annotations of the function must match `batch_size`, because otherwise every call would fail."""
    with pytest.raises(InvalidPlanError, match=message):
        Plan(fn, batch_size=batch_size)
    Plan(fn, batch_size=None if batch_size else 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": []}, r"key is \[\]; allowed: one or more column names"),
        ({"key": ["a", "a"]}, "each column once"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"key": "a", "batch_size": 2}, "key and batch_size cannot be combined"),
    ],
)
def test_invalid_values_are_rejected(arguments: dict[str, Any], message: str) -> None:
    """The message about an invalid value contains the argument, the value and the allowed values."""
    with pytest.raises(InvalidPlanError, match=message):
        Plan(one, **arguments)


def test_a_plan_can_be_pickled() -> None:
    retry = Retry(on=[ValueError])
    plan = Plan(one, key="user", coalesce_by=["a", "b"], retry=retry, cache=Cache())  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert plan.retry is not None
    assert (plan.key, plan.coalesce_by, plan.retry.on) == (("user",), ("a", "b"), (ValueError,))


def test_the_engine_needs_no_compiled_modules() -> None:
    """The engine imports no compiled modules, which executors may lack. The shipped code is pure Python."""
    program = (
        "import sys, spark_events.enrichment.engine.engine as _\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'msgspec', 'pyarrow', 'pyspark', 'numpy', 'pandas'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("given", "tasks", "share"),
    [
        ("auto", 1, Auto(1, 1000, 2)),
        ("auto", 100, Auto(1, 10, 2)),
        ("auto", 5000, Auto(1, 1, 1)),
        (Auto(initial=20), 2, Auto(1, 500, 10)),
        (Auto(initial=20), 3, Auto(1, 333, 8)),
        (Auto(initial=20), 50, Auto(1, 20, 8)),
        (Auto(initial=200), 4, Auto(1, 250, 50)),
        (Auto(initial=3), 2, Auto(1, 500, 3)),
        (Auto(min=15), 2, Auto(7, 500, 8)),
        (Auto(max=1), 2, Auto(1, 1, 1)),
        (30, 2, Auto(30, 30, 30)),
        (Auto(8, 8, 8), 4, Auto(8, 8, 8)),
    ],
)
def test_tasks_without_leases_divide_the_bounds(given: Any, tasks: int, share: Auto) -> None:
    """A task starts with at least 8 calls, or with all if there are fewer; a fixed number applies to each task."""
    assert Plan(one, max_in_flight=given, tasks=tasks).task_window == share
