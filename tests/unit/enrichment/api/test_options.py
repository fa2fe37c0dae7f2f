"""Tests of the arguments of the public functions, and of the messages about renamed and unknown arguments."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest

from spark_events import InvalidPlanError, enrich, enrich_batch

NAMES = [
    "df", "fn", "output", "input_cols", "resource", "key", "batch_size", "limits", "retry", "on_failure", "cache",
    "replay",
]  # fmt: skip


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
        ("max_in_flight", "() no longer takes `max_in_flight`; use limits=Limits(max_in_flight=…)"),
        ("coalesce_by", "() no longer takes `coalesce_by`; use cache=Cache(by=…, ttl=0)"),
        ("sort_within_key", "() no longer takes `sort_within_key`; use key=Key(…, order_by=…)"),
        ("storage", "() no longer takes `storage`; use limits=Limits(buffer=Buffer(storage=…))"),
        ("batch_id", "() no longer takes `batch_id`; use replay=Replay(batch_id=…)"),
        ("input_col", "() has no argument 'input_col'; did you mean input_cols?"),
        ("max_in_fligth", "() has no argument 'max_in_fligth'; did you mean limits=Limits(max_in_flight=…)?"),
        ("zzz", "() has no argument 'zzz'; allowed: df, fn, output"),
    ],
)
def test_unknown_arguments_are_rejected_with_the_correct_name(function: Any, name: str, message: str) -> None:
    """An unknown argument is rejected before all other checks. The message contains the correct argument."""
    with pytest.raises(InvalidPlanError) as caught:
        function(None, lookup, output="x long", **{name: 1})
    assert str(caught.value).startswith(function.__name__ + message)
