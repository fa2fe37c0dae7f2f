"""Tests of the validation of a plan: invalid arguments are rejected at once with one clear sentence."""

from __future__ import annotations

import contextlib
import functools
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Cache, CircuitBreaker, Retry
from spark_events.errors import InvalidPlanError


async def one(row: Any) -> None: ...
async def two(row: Any, ctx: Any) -> None: ...
async def named(row: Any, ctx: Any = None) -> None: ...
async def tuned(row: Any, limit: int = 3) -> None: ...
async def none() -> None: ...
async def three(a: Any, b: Any, c: Any) -> None: ...
async def keyword(row: Any, *, token: str) -> None: ...
async def many(*rows: Any) -> None: ...
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
        (Callable().method, False), (functools.partial(two, ctx=1), False), (functools.partial(tuned, limit=1), False),
        (functools.partial(three, 1), True),
    ],
)  # fmt: skip
def test_valid_functions_are_accepted(fn: Any, context: bool) -> None:
    """With ctx if they request it, by a second argument without a default or by its name."""
    assert Plan(fn).wants_context is context


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (plain, "plain (.*test_plan.py.*) is not async; wanted: async def fn"),
        (yields, "yields"),
        (none, r"none .* takes \(\)"),
        (three, "three .* takes"),
        (keyword, "keyword .* takes"),
        (7, "fn is int, not a function"),
        (Callable, "is not async"),
        (None, "fn is NoneType"),
    ],
)
def test_invalid_functions_are_rejected(fn: Any, message: str) -> None:
    """The message has the function's name and location."""
    with pytest.raises(InvalidPlanError, match=message):
        Plan(fn)


@pytest.mark.parametrize("resource", [None, client, Callable, functools.partial(client)])
def test_valid_resources_are_accepted(resource: Any) -> None:
    """Anything that can be called without arguments."""
    assert Plan(one, resource=resource).resource is resource


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        (client(), "open already or no function"),
        (bare, "decorate it with contextlib.asynccontextmanager"),
        (coroutine, "is async def"),
        (lambda url: client(), r"takes \(url\)"),
        ("http://x", "resource is str"),
    ],
)
def test_invalid_resources_are_rejected(resource: Any, message: str) -> None:
    """Each common mistake has its own message."""
    with pytest.raises(InvalidPlanError, match=message):
        Plan(one, resource=resource)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_in_flight": 0}, "max_in_flight is 0; allowed: a whole number from 1 to 100000"),
        ({"max_in_flight": 2.5}, "max_in_flight is 2.5"),
        ({"max_in_flight": True}, "max_in_flight is True"),
        ({"timeout": 0}, "timeout is 0; allowed: seconds, above 0, or None"),
        ({"timeout": "10s"}, "timeout is '10s'"),
        ({"total_timeout": float("inf")}, "total_timeout is inf"),
        ({"rate_limit": -1}, "rate_limit is -1; allowed: a number of attempts per second above 0, or None"),
        ({"retry": 3}, "retry is 3; allowed: a Retry, or None"),
        ({"cache": True}, "cache is True; allowed: a Cache, or None"),
        ({"circuit_breaker": 1}, "circuit_breaker is 1"),
        ({"key": []}, r"key is \[\]; allowed: one or more column names"),
        ({"key": ["a", "a"]}, "each column once"),
        ({"coalesce_by": [1]}, "coalesce_by"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"on_failure": "ignore"}, "on_failure is 'ignore'; allowed: 'fail', 'null', 'column', 'dead_letter'"),
        ({"max_failure_ratio": 2}, "max_failure_ratio is 2; allowed: a ratio from 0 to 1"),
        ({"buffer_rows": 0}, "buffer_rows is 0"),
        ({"key": "a", "batch_size": 2}, "key and batch_size cannot be combined"),
    ],
)
def test_invalid_values_are_rejected(arguments: dict[str, Any], message: str) -> None:
    """The message has the argument, the value and the allowed values."""
    with pytest.raises(InvalidPlanError, match=message):
        Plan(one, **arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Retry(attempts=0), "Retry.attempts is 0"),
        (lambda: Retry(initial=-1), "Retry.initial is -1; allowed: seconds, 0 or more"),
        (lambda: Retry(initial=5, max=1), "Retry.max is 1; allowed: at least Retry.initial, which is 5"),
        (
            lambda: Retry(on=BaseException),  # type: ignore[arg-type]
            "Retry.on is <class 'BaseException'>; allowed: subclasses of Exception",
        ),
        (lambda: Retry(on="timeout"), "Retry.on"),  # type: ignore[arg-type]
        (lambda: Retry(on=[]), "Retry.on"),
        (lambda: Retry(on_result=3), "Retry.on_result is 3"),  # type: ignore[arg-type]
        (
            lambda: Retry(honor_retry_after=1),  # type: ignore[arg-type]
            "Retry.honor_retry_after is 1; allowed: True or False",
        ),
        (lambda: Cache(max_entries=0), "Cache.max_entries is 0"),
        (lambda: Cache(ttl=0), "Cache.ttl is 0"),
        (lambda: CircuitBreaker(failures=0), "CircuitBreaker.failures is 0"),
        (lambda: CircuitBreaker(give_up_after=-1), "CircuitBreaker.give_up_after is -1"),
    ],
)
def test_invalid_parts_of_a_plan_are_rejected(make: Any, message: str) -> None:
    """The same for Retry, Cache and the other parts."""
    with pytest.raises(InvalidPlanError, match=message):
        make()


def test_cancelled_error_cannot_be_retried() -> None:
    """A call that is retried when it is cancelled could not be stopped."""
    import asyncio

    with pytest.raises(InvalidPlanError, match="CancelledError"):
        Retry(on=asyncio.CancelledError)  # type: ignore[arg-type]


def test_a_plan_can_be_pickled() -> None:
    """The copy is equal, with its columns as tuples."""
    retry = Retry(on=[ValueError])
    plan = Plan(one, key="user", coalesce_by=["a", "b"], retry=retry, cache=Cache())  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert plan.retry is not None
    assert (plan.key, plan.coalesce_by, plan.retry.on) == (("user",), ("a", "b"), (ValueError,))


def test_the_engine_needs_no_compiled_modules() -> None:
    """Executors may have neither msgspec nor this package; the shipped code is pure Python."""
    program = (
        "import sys, spark_events.enrichment.engine.engine as _\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'msgspec', 'pyarrow', 'pyspark', 'numpy', 'pandas'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
