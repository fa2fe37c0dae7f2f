"""Tests of hints about typical causes of failures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pyspark.sql import Row

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.hints import hint, hints
from spark_events.enrichment.plan import Plan


async def unchecked(row: Any, ctx: Any) -> Any:
    async with ctx.resource.get(row.id) as answer:
        return await answer.json()


async def checked(row: Any, ctx: Any) -> Any:
    async with ctx.resource.get(row.id) as answer:
        answer.raise_for_status()
        return await answer.json()


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Any]:
    yield


@contextlib.asynccontextmanager
async def raising() -> AsyncIterator[Any]:
    import aiohttp

    async with aiohttp.ClientSession(raise_for_status=True) as session:
        yield session


NO_ATTRIBUTE = RowFailure("error", "AttributeError", "'NoneType' object has no attribute 'get'")
NO_COLUMN = RowFailure("error", "OutputError", "the function returned a mapping without 'country' and with 'detail'")
NO_KEY = RowFailure("error", "KeyError", "'country'")
A_LIST = RowFailure("error", "OutputError", "the function returned list, not a mapping with x")
NO_LIST = RowFailure("error", "TypeError", "fn must return a list with one result for each of its 3 rows, not dict")
RESOURCE, STATUS, SEVERAL, ONE = (
    "give resource=…",
    "call raise_for_status()",
    "needs batch_size=…",
    "leave out batch_size",
)


@pytest.mark.parametrize(
    ("plan", "failure", "text"),
    [
        (Plan(unchecked), NO_ATTRIBUTE, RESOURCE),
        (Plan(unchecked, resource=opened), NO_ATTRIBUTE, ""),
        (Plan(unchecked, resource=opened), NO_COLUMN, STATUS),
        (Plan(unchecked, resource=opened), NO_KEY, STATUS),
        (Plan(checked, resource=opened), NO_COLUMN, ""),
        (Plan(unchecked, resource=raising), NO_COLUMN, ""),
        (Plan(checked, resource=opened), A_LIST, SEVERAL),
        (Plan(checked, resource=opened, batch_size=3), A_LIST, ""),
        (Plan(checked, resource=opened, batch_size=3), NO_LIST, ONE),
        (Plan(unchecked), RowFailure("error", "ValueError", "x"), ""),
    ],
)
def test_typical_causes_are_named(plan: Plan, failure: RowFailure, text: str) -> None:
    """A hint names a typical cause of a failure only if this cause is possible in the user's code."""
    found = hint(plan, failure)
    assert text in found
    assert bool(text) is bool(found)


VALUES = Row(id=1, text="a", none=None, share=0.5)


async def attribute(row: Any) -> Any:
    return {"x": row.text}


async def item(row: Any) -> Any:
    return {"x": row["text"]}


async def spread(row: Any) -> Any:
    return {**row}


async def attributes(rows: Any) -> Any:
    return [{"x": row.text} for row in rows]


async def items(rows: Any) -> Any:
    found = []
    for row in rows:
        found.append(row["text"])
    return found


async def of_an_answer(row: Any) -> Any:
    return {"x": int(row.id).text}  # type: ignore[attr-defined]


def failure_in(fn: Any, given: Any) -> RowFailure:
    """Return the failure that a function with this argument causes."""
    with pytest.raises(Exception) as raised:  # noqa: PT011
        asyncio.run(fn(given))
    return RowFailure("error", type(raised.value).__name__, str(raised.value))


@pytest.mark.parametrize("fn", [attribute, item, spread])
def test_a_function_of_one_row_that_receives_several(fn: Any) -> None:
    """With batch_size, the hint names a function that uses its list like a row, but not one that expects rows."""
    failure = failure_in(fn, [VALUES, VALUES])
    assert ONE in hint(Plan(fn, batch_size=2), failure)
    assert not hint(Plan(attributes, batch_size=2), failure)
    assert not hint(Plan(fn), failure)


@pytest.mark.parametrize("fn", [attributes, items])
@pytest.mark.parametrize("column", VALUES.asDict())
def test_a_function_of_several_rows_that_receives_one(fn: Any, column: str) -> None:
    """Without batch_size, the hint names a function that iterates over its row, for values of each type."""
    failure = failure_in(fn, Row(**{column: VALUES[column]}))
    assert SEVERAL in hint(Plan(fn), failure)
    assert not hint(Plan(fn, batch_size=2), failure)
    assert not hint(Plan(of_an_answer), failure_in(of_an_answer, VALUES))


def test_equal_hints_are_given_once() -> None:
    """Equal hints appear once, as sentences at the end of a message."""
    text = hints(Plan(unchecked), [NO_ATTRIBUTE, NO_KEY, NO_ATTRIBUTE])
    assert text.count("Hint: ") == 2
    assert hints(Plan(checked), []) == ""
