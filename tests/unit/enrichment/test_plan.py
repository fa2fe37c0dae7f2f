"""What the user asks for is checked at once, with one clear sentence each."""

from __future__ import annotations

import contextlib
import functools
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from spark_events.enrichment.plan import Cache, CircuitBreaker, Plan, Retry
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
def test_functions_that_can_be_called_for_a_row(fn: Any, context: bool) -> None:
    """With ctx where they ask for it, by a second argument that has no default or is named so."""
    assert Plan(fn).wants_context is context


@pytest.mark.parametrize(
    ("fn", "says"),
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
def test_functions_that_cannot(fn: Any, says: str) -> None:
    """Said by name and place."""
    with pytest.raises(InvalidPlanError, match=says):
        Plan(fn)


@pytest.mark.parametrize("resource", [None, client, Callable, functools.partial(client)])
def test_resources_that_may_open(resource: Any) -> None:
    """Anything that can be called without arguments."""
    assert Plan(one, resource=resource).resource is resource


@pytest.mark.parametrize(
    ("resource", "says"),
    [
        (client(), "open already or no function"),
        (bare, "decorate it with contextlib.asynccontextmanager"),
        (coroutine, "is async def"),
        (lambda url: client(), r"takes \(url\)"),
        ("http://x", "resource is str"),
    ],
)
def test_resources_that_never_will(resource: Any, says: str) -> None:
    """The usual mistakes, told apart."""
    with pytest.raises(InvalidPlanError, match=says):
        Plan(one, resource=resource)


@pytest.mark.parametrize(
    ("arguments", "says"),
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
def test_values_that_cannot_be(arguments: dict[str, Any], says: str) -> None:
    """The message has the argument, what was given, and what is allowed."""
    with pytest.raises(InvalidPlanError, match=says):
        Plan(one, **arguments)


@pytest.mark.parametrize(
    ("make", "says"),
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
def test_parts_that_cannot_be(make: Any, says: str) -> None:
    """The same for what a plan is made of."""
    with pytest.raises(InvalidPlanError, match=says):
        make()


def test_cancellation_cannot_be_asked_to_be_retried() -> None:
    """CancelledError is no Exception: a call that tries again when it is cancelled cannot be stopped."""
    import asyncio

    with pytest.raises(InvalidPlanError, match="CancelledError"):
        Retry(on=asyncio.CancelledError)  # type: ignore[arg-type]


def test_a_plan_survives_its_way_to_the_executors() -> None:
    """Equal after a pickle, with its columns as tuples."""
    retry = Retry(on=[ValueError])
    plan = Plan(one, key="user", coalesce_by=["a", "b"], retry=retry, cache=Cache())  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert plan.retry is not None
    assert (plan.key, plan.coalesce_by, plan.retry.on) == (("user",), ("a", "b"), (ValueError,))


def test_the_engine_needs_nothing_that_is_compiled() -> None:
    """Executors may have neither msgspec nor this package: what is shipped is pure Python."""
    program = (
        "import sys, spark_events.enrichment.engine.engine as _\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'msgspec', 'pyarrow', 'pyspark', 'numpy', 'pandas'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
