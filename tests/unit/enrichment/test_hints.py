"""Tests of hints about typical causes of failures."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.hints import hint, hints
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Retry


async def unchecked(row: Any, ctx: Any) -> Any:
    async with ctx.resource.get(row.id) as answer:
        return await answer.json()


async def decodes(row: Any, ctx: Any) -> Any:
    return json.loads(await ctx.resource.ask(row.text))


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


def misused(message: str, kind: str = "TypeError") -> RowFailure:
    return RowFailure("error", kind, message)


NO_ATTRIBUTE = RowFailure("error", "AttributeError", "'NoneType' object has no attribute 'get'")
NO_COLUMN = RowFailure("error", "OutputError", "the function returned a mapping without 'country' and with 'detail'")
NESTED = RowFailure("error", "RuntimeError", "This event loop is already running")
NESTED_RUN = RowFailure("error", "RuntimeError", "asyncio.run() cannot be called from a running event loop")
NO_JSON = RowFailure("error", "json.decoder.JSONDecodeError", "Expecting value: line 1 column 1 (char 0)")
NO_JSON_OF_REQUESTS = RowFailure("error", "requests.exceptions.JSONDecodeError", NO_JSON.message)
NO_KEY = RowFailure("error", "KeyError", "'country'")
A_LIST = RowFailure("error", "OutputError", "the function returned list, not a mapping with x")
NOT_AWAITED = RowFailure("error", "OutputError", "the function returned coroutine, not a mapping with x")
NO_LIST = RowFailure("error", "TypeError", "fn must return a list with one result for each of its 3 rows, not dict")
FEWER = RowFailure("error", "TypeError", "fn must return a list with one result for each of its 3 rows, not 1 results")
NO_ANSWER = RowFailure("error", "OutputError", "the function returned NoneType, not a mapping with x")
WHOLE_ROW = "read the columns as row.name"
RESOURCE, STATUS, SEVERAL, ONE, AWAIT = (
    "give resource=…",
    "call raise_for_status()",
    "needs batch_size=…",
    "leave out batch_size",
    "await the coroutine, without run_until_complete",
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
        (Plan(unchecked), RowFailure("error", "RuntimeError", "x"), ""),
        (Plan(checked), NESTED, AWAIT),
        (Plan(checked), NESTED_RUN, AWAIT),
        (Plan(unchecked, resource=opened), NO_JSON, STATUS),
        (Plan(unchecked, resource=opened), NO_JSON_OF_REQUESTS, STATUS),
        (Plan(decodes, resource=opened), NO_JSON, "give Retry(on_invalid=True)"),
        (Plan(decodes, resource=opened, retry=Retry(on_invalid=True)), NO_JSON, ""),
        (Plan(unchecked, resource=opened, retry=Retry(on_invalid=True)), NO_JSON, ""),
        (Plan(unchecked, resource=opened), NOT_AWAITED, "write return await"),
        (Plan(checked), misused("'coroutine' object is not subscriptable"), "write await before the call"),
        (Plan(checked), misused("'coroutine' object has no attribute 'json'", "AttributeError"), "write await before"),
        (Plan(checked), misused("object Response can't be used in 'await' expression"), "asyncio.to_thread"),
        (Plan(checked), NO_ANSWER, "a return is missing"),
        (Plan(checked), misused('can only concatenate tuple (not "int") to tuple'), WHOLE_ROW),
        (Plan(checked), misused("unsupported operand type(s) for *: 'Row' and 'int'"), WHOLE_ROW),
        (Plan(checked), misused("int() argument must be a string or a real number, not 'Row'"), WHOLE_ROW),
        (Plan(checked), misused("'Row' object is not a mapping"), WHOLE_ROW),
        (Plan(checked), misused("'Row' object does not support item assignment"), ""),
        (Plan(checked, batch_size=3), misused("'list' object has no attribute 'id'", "AttributeError"), ONE),
        (Plan(checked, batch_size=3), FEWER, ""),
    ],
)
def test_typical_causes_are_named(plan: Plan, failure: RowFailure, text: str) -> None:
    """A hint names a typical cause of a failure only if this cause is possible in the user's code."""
    found = hint(plan, failure)
    assert text in found
    assert bool(text) is bool(found)


def test_equal_hints_are_given_once() -> None:
    """Equal hints appear once, as sentences at the end of a message."""
    text = hints(Plan(unchecked), [NO_ATTRIBUTE, NO_KEY, NO_ATTRIBUTE])
    assert text.count("Hint: ") == 2
    assert hints(Plan(checked), []) == ""
