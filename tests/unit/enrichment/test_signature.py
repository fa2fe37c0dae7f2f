"""Tests of the search for names in a function and its helpers."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from spark_events.enrichment.signature import names_reached


async def post(ctx: Any) -> Any:
    return ctx.idempotency_key


async def directly(row: Any, ctx: Any) -> Any:
    return ctx.idempotency_key


async def by_helper(row: Any, ctx: Any) -> Any:
    await asyncio.sleep(0)
    return await post(ctx)


async def forever(row: Any, ctx: Any) -> Any:
    return await forever(row, ctx)


class Charges:
    async def __call__(self, row: Any, ctx: Any) -> Any:
        return await self._post(ctx)

    async def charge(self, row: Any, ctx: Any) -> Any:
        return await self._post(ctx)

    async def read(self, row: Any, ctx: Any) -> Any:
        return ctx.resource

    async def _post(self, ctx: Any) -> Any:
        return ctx.idempotency_key


def made() -> Any:
    async def inner(ctx: Any) -> Any:
        return ctx.idempotency_key

    async def outer(row: Any, ctx: Any) -> Any:
        return await inner(ctx)

    return outer


@pytest.mark.parametrize(
    ("fn", "found"),
    [
        (directly, True), (by_helper, True), (functools.partial(by_helper), True), (Charges(), True),
        (Charges().charge, True), (made(), True), (Charges().read, False), (forever, False), (print, False),
    ],
)  # fmt: skip
def test_names_in_helpers_are_found(fn: Any, found: bool) -> None:
    """A function may read its key in a helper: a function of its module, a variable around it, or a method."""
    assert ("idempotency_key" in names_reached(fn)) is found
