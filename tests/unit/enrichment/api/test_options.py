"""Tests of the arguments of the public functions, and of the messages about unknown arguments."""

from __future__ import annotations

import inspect
import pydoc
from types import SimpleNamespace
from typing import Any

import pytest

from spark_events import InvalidPlanError, Rate, enrich, enrich_batch

NAMES = [
    "df", "fn", "output", "input_cols", "resource", "key", "batch_size", "limits", "retry", "on_failure", "cache",
    "replay",
]  # fmt: skip


class Frame:
    """Test double of a DataFrame."""

    isStreaming = False
    sparkSession = SimpleNamespace(conf={})


FRAME: Any = Frame()


async def lookup(row: Any) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("function", [enrich, enrich_batch])
def test_help_names_every_argument(function: Any) -> None:
    """The help lists the twelve arguments with descriptions. All arguments after the function are keyword-only."""
    parameters = inspect.signature(function).parameters
    assert list(parameters) == NAMES
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in NAMES[2:])
    text = pydoc.plain(pydoc.render_doc(function))
    assert "limits: 'Limits' = Limits(max_in_flight=" in text
    for name in NAMES:
        assert f"    {name}: " in text


@pytest.mark.parametrize("function", [enrich, enrich_batch])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("input_col", "() has no argument 'input_col'; did you mean input_cols?"),
        ("max_in_flight", "() has no argument 'max_in_flight'; write limits=Limits(max_in_flight=…)"),
        ("timeout", "() has no argument 'timeout'; write limits=Limits(timeout=…)"),
        ("concurrency", "() has no argument 'concurrency'; write limits=Limits(max_in_flight=…)"),
        ("retries", "() has no argument 'retries'; write retry=Retry(attempts=…)"),
        ("on_invalid", "() has no argument 'on_invalid'; write retry=Retry(on_invalid=…)"),
        ("max_ratio", "() has no argument 'max_ratio'; write on_failure=OnFailure(max_ratio=…)"),
        ("ttl", "() has no argument 'ttl'; write cache=Cache(ttl=…)"),
        ("name", "() has no argument 'name'; write replay=Replay(name=…)"),
        ("batch_id", "() has no argument 'batch_id'; write replay=Replay(batch_id=…)"),
        ("workers", "() has no argument 'workers'; write limits=Limits(max_in_flight=…)"),
        ("ordered", "() has no argument 'ordered'; write limits=Limits(buffer=Buffer(ordered=…))"),
        ("per_minute", "() has no argument 'per_minute'; write limits=Limits(budget=Budget(per_minute=…))"),
        ("dead_letter", "() has no argument 'dead_letter'; write on_failure='dead_letter'"),
        ("schema", "() has no argument 'schema'; did you mean output?"),
        ("on_error", "() has no argument 'on_error'; did you mean on_failure?"),
        ("attempt", "() has no argument 'attempt'; write retry=Retry(attempts=…)"),
        ("max_conccurency", "() has no argument 'max_conccurency'; write limits=Limits(max_in_flight=…)"),
        ("zzz", "() has no argument 'zzz'; allowed: df, fn, output"),
    ],
)
def test_unknown_arguments_are_rejected_with_the_correct_name(function: Any, name: str, message: str) -> None:
    """An unknown argument is rejected before all other checks. The message contains the allowed names."""
    with pytest.raises(InvalidPlanError) as caught:
        function(None, lookup, output="x long", **{name: 1})
    assert str(caught.value).startswith(function.__name__ + message)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"limits": 50}, "limits is 50; allowed: a Limits, such as Limits(max_in_flight=50)"),
        (
            {"limits": Rate(5)},
            "limits is Rate(requests_per_second=5); allowed: a Limits, such as Limits(rate_limit=Rate(…))",
        ),
        ({"limits": True}, "limits is True; allowed: a Limits"),
        ({"retry": False}, "retry is False; allowed: a Retry, or None"),
        ({"retry": 3}, "retry is 3; allowed: a Retry, such as Retry(attempts=3), or None"),
        ({"cache": 60}, "cache is 60; allowed: a Cache, such as Cache(ttl=60), or None"),
        ({"cache": "id"}, "cache is 'id'; allowed: a Cache, such as Cache(by='id'), or None"),
        ({"replay": "s3://x/y"}, "replay is 's3://x/y'; allowed: a Replay, such as Replay(store='s3://x/y')"),
        ({"replay": "orders"}, "replay is 'orders'; allowed: a Replay, such as Replay(query='orders')"),
    ],
)
def test_plain_values_instead_of_options(argument: dict[str, Any], message: str) -> None:
    """The message says how to write a plain value."""
    with pytest.raises(InvalidPlanError) as caught:
        enrich(FRAME, lookup, output="x long", **argument)
    assert str(caught.value) == message


@pytest.mark.parametrize("function", [enrich, enrich_batch])
@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ((FRAME, lookup, "x long"), {}, "too many positional arguments"),
        ((FRAME, lookup), {}, "missing a required argument: 'output'"),
        ((FRAME,), {"output": "x long"}, "missing a required argument: 'fn'"),
        ((FRAME, lookup), {"fn": lookup, "output": "x long"}, "multiple values for argument 'fn'"),
    ],
)
def test_missing_and_positional_arguments(
    function: Any, given: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidPlanError) as caught:
        function(*given, **named)
    name = function.__name__
    assert str(caught.value) == f"{name}(): {message}; write {name}(df, fn, output=…)"


@pytest.mark.parametrize("function", [enrich, enrich_batch])
@pytest.mark.parametrize(("df", "kind"), [(None, "NoneType"), ([1], "list"), (FRAME.sparkSession, "types")])
def test_only_dataframes_of_spark_are_accepted(function: Any, df: Any, kind: str) -> None:
    with pytest.raises(InvalidPlanError, match=rf"df is {kind}\S*; allowed: a DataFrame of Spark, such as"):
        function(df, lookup, output="x long")
