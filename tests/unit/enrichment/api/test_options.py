"""Tests of the arguments of the public functions, and of the messages about unknown arguments."""

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
        ("input_col", "() has no argument 'input_col'; did you mean input_cols?"),
        ("max_in_flight", "() has no argument 'max_in_flight'; allowed: df, fn, output"),
        ("zzz", "() has no argument 'zzz'; allowed: df, fn, output"),
    ],
)
def test_unknown_arguments_are_rejected_with_the_correct_name(function: Any, name: str, message: str) -> None:
    """An unknown argument is rejected before all other checks. The message contains the allowed names."""
    with pytest.raises(InvalidPlanError) as caught:
        function(None, lookup, output="x long", **{name: 1})
    assert str(caught.value).startswith(function.__name__ + message)
