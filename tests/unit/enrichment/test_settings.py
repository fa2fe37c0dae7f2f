"""Tests of the option classes: invalid and contradictory values are rejected with one sentence."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import pickle
import re
from typing import Any

import pytest

from spark_events import (
    Auto,
    Budget,
    Buffer,
    Cache,
    CircuitBreaker,
    InvalidPlanError,
    Key,
    Limits,
    OnFailure,
    Rate,
    Replay,
    Retry,
)

CLASSES = [Auto, Budget, Buffer, Cache, CircuitBreaker, Key, Limits, OnFailure, Rate, Replay, Retry]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            Limits,
            {"max_in_flight": 0},
            "Limits.max_in_flight is 0; allowed: a whole number from 1 to 100000, 'auto'",
        ),
        (Limits, {"max_in_flight": "all"}, "Limits.max_in_flight is 'all'"),
        (Auto, {"min": 0}, "Auto.min is 0; allowed: a whole number from 1 to 1000"),
        (Auto, {"max": 10, "initial": 30}, "Auto.initial is 30; .*: a whole number from 1 to 10"),
        # The same value as the default.
        (Auto, {"max": 10, "initial": 20}, "Auto.initial is 20; .*: a whole number from 1 to 10"),
        (Limits, {"timeout": 30, "total_timeout": 10}, "Limits.timeout is 30; allowed: at most total_timeout"),
        (Auto, {"min": 50, "initial": 30}, "Auto.initial is 30; .*: a whole number from 50 to 1000"),
        (Auto, {"max": 10**6}, "Auto.max is 1000000; allowed: a whole number from 1 to 100000"),
        (Limits, {"max_in_flight": 2.5}, "Limits.max_in_flight is 2.5"),
        (Limits, {"max_in_flight": True}, "Limits.max_in_flight is True"),
        (Limits, {"timeout": 0}, "Limits.timeout is 0; allowed: seconds, above 0, or None"),
        (Limits, {"timeout": "10s"}, "Limits.timeout is '10s'"),
        (Limits, {"total_timeout": float("inf")}, "Limits.total_timeout is inf"),
        (
            Limits,
            {"timeout": 20, "total_timeout": 10},
            "Limits.timeout is 20; allowed: at most total_timeout, which is",
        ),
        (Limits, {"rate_limit": -1}, "rate_limit is -1; allowed: a Rate, or a number of attempts per second above 0"),
        (Limits, {"max_in_flight_job": 0}, "Limits.max_in_flight_job is 0; allowed: a whole number of at least 1"),
        (Limits, {"budget": 1000}, "Limits.budget is 1000; allowed: a Budget, or None"),
        (Rate, {"requests_per_second": 0}, "Rate.requests_per_second is 0; allowed: a number of attempts per second"),
        (Budget, {"per_minute": 0, "cost": len}, "Budget.per_minute is 0; allowed: a number above 0"),
        (
            Budget,
            {"per_minute": 9, "cost": 5},
            "Budget.cost is 5; allowed: a function of the row that returns a number",
        ),
        (Budget, {"per_minute": 9, "cost": len, "usage": "tokens"}, "Budget.usage is 'tokens'; allowed: a function of"),
        (
            Budget,
            {"per_minute": 9, "cost": len, "price_per_1000": -1},
            "Budget.price_per_1000 is -1; allowed: a number",
        ),
        (Limits, {"concurrent_tasks": 0, "rate_limit": 1}, "Limits.concurrent_tasks is 0"),
        (Limits, {"concurrent_tasks": 3}, "Limits.concurrent_tasks is 3; allowed: None without rate_limit"),
        (Limits, {"circuit_breaker": 1}, "Limits.circuit_breaker is 1; allowed: a CircuitBreaker, or None"),
        (Limits, {"buffer": None}, "Limits.buffer is None; allowed: a Buffer$"),
        (Limits, {"driver_channel": 1}, "Limits.driver_channel is 1; allowed: True or False"),
        (Buffer, {"rows": 0}, "Buffer.rows is 0"),
        (Buffer, {"bytes": 0.5}, "Buffer.bytes is 0.5"),
        (Buffer, {"storage": "disk"}, "Buffer.storage is 'disk'; allowed: 'local', 'replicated', 'reliable'"),
        (Buffer, {"ordered": "no"}, "Buffer.ordered is 'no'; allowed: True or False"),
        (Retry, {"attempts": 0}, "Retry.attempts is 0"),
        (Retry, {"on_invalid": 1}, "Retry.on_invalid is 1; allowed: True or False"),
        (Retry, {"initial": -1}, "Retry.initial is -1; allowed: seconds, 0 or more"),
        (Retry, {"initial": 5, "max": 1}, "Retry.max is 1; allowed: at least Retry.initial, which is 5"),
        (Retry, {"on": BaseException}, "Retry.on is <class 'BaseException'>; allowed: subclasses of Exception"),
        # CancelledError must not be retried: otherwise, a call could not be cancelled.
        (Retry, {"on": asyncio.CancelledError}, "CancelledError"),
        (Retry, {"on": "timeout"}, "Retry.on"),
        (Retry, {"on": []}, "Retry.on"),
        (Retry, {"on_result": 3}, "Retry.on_result is 3"),
        (Retry, {"attempts": 1, "on": OSError}, "Retry.on is .*OSError.*: None with Retry.attempts=1"),
        (Retry, {"attempts": 1, "on_result": bool}, "Retry.on_result is .*bool.*: None with Retry.attempts=1"),
        (Retry, {"attempts": 1, "on_invalid": True}, "Retry.on_invalid is True; .*: False with Retry.attempts=1"),
        (Retry, {"honor_retry_after": 1}, "Retry.honor_retry_after is 1; allowed: True or False"),
        (Cache, {"max_entries": 0}, "Cache.max_entries is 0"),
        (Cache, {"ttl": 0, "by": "a", "max_entries": 5}, "Cache.max_entries is 5; .* Cache.ttl=0"),
        (Cache, {"ttl": -1}, "Cache.ttl is -1"),
        (Cache, {"ttl": 0}, "Cache.ttl is 0; allowed: seconds above 0 without Cache.by"),
        (Cache, {"by": [1]}, r"Cache.by is \[1\]; allowed: one or more column names"),
        (CircuitBreaker, {"failures": 0}, "CircuitBreaker.failures is 0"),
        (CircuitBreaker, {"give_up_after": -1}, "CircuitBreaker.give_up_after is -1"),
        (Key, {"columns": None}, "Key.columns is None"),
        (Key, {"columns": ["a", "a"]}, "each column once"),
        (OnFailure, {"action": "ignore"}, "action is 'ignore'; allowed: 'fail', 'null', 'column', 'dead_letter'"),
        (OnFailure, {"action": "column", "column": ""}, "OnFailure.column is ''; allowed: a non-empty column name"),
        (OnFailure, {"action": "null", "column": "why"}, "OnFailure.column is 'why'; allowed: only with 'column' or"),
        (OnFailure, {"action": "null", "max_ratio": 2}, "OnFailure.max_ratio is 2; allowed: a ratio from 0 to 1"),
        (OnFailure, {"action": "fail", "max_ratio": 0.1}, "OnFailure.max_ratio is 0.1; allowed: None with 'fail'"),
        (Replay, {"store": ""}, "Replay.store is ''; allowed: the path or URI of a directory"),
        (Replay, {"store": 3}, "Replay.store is 3; allowed: the path or URI of a directory"),
        (Replay, {"version": 2}, "Replay.version is 2; allowed: a non-empty string"),
        (Replay, {"version": "2"}, "Replay.version is '2'; .*: '1' without Replay.store"),
        (Replay, {"query": ""}, "Replay.query is ''"),
        (Replay, {"name": ""}, "Replay.name is ''; allowed: a name that stays the same"),
        (Replay, {"batch_id": "1"}, "Replay.batch_id is '1'"),
        (Replay, {"idempotency_cols": []}, r"Replay.idempotency_cols is \[\]"),
    ],
)
def test_invalid_values_are_rejected(kind: Any, options: dict[str, Any], message: str) -> None:
    """The message about an invalid value contains the option, the value and the allowed values."""
    with pytest.raises(InvalidPlanError, match=message):
        kind(**options)


def test_the_default_timeout_follows_a_shorter_total_timeout() -> None:
    """The default timeout is at most the total timeout. Only a timeout set by the user may exceed the total timeout."""
    assert Limits(total_timeout=10).timeout == 10
    assert Limits(timeout=None, total_timeout=10).timeout is None


def test_the_default_number_of_calls_in_flight_fits_its_bounds() -> None:
    """If the user sets bounds, the default initial number is moved into these bounds."""
    assert (Auto(max=10).initial, Auto(min=50).initial, Auto(min=5, max=80).initial) == (2, 50, 5)


@pytest.mark.parametrize(
    "given",
    [
        Limits(),
        Limits(max_in_flight=Auto(max=50)),
        Retry(on=[ValueError]),
        Replay(idempotency_cols="id"),
        OnFailure("null", max_ratio=0),
        Cache(by="a", ttl=0),
    ],
)
def test_options_are_immutable_and_can_be_pickled(given: Any) -> None:
    """Options are immutable and can be pickled, because the driver sends them to the executors."""
    assert pickle.loads(pickle.dumps(given)) == given
    field = dataclasses.fields(given)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(given, field, 1)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_field_is_documented(kind: Any) -> None:
    """The documentation describes every field of each option class, in the order of the fields."""
    documented = re.findall(
        r"^    (\w+): ", (inspect.getdoc(kind) or "").partition("Args:")[2].partition("Raises:")[0], re.M
    )
    assert documented == [field.name for field in dataclasses.fields(kind)]
