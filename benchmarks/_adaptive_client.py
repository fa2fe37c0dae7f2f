"""Client of the service of ``benchmarks.adaptive``, for processes with and without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any


def client_of(
    url: str,
) -> tuple[Callable[[], AbstractAsyncContextManager[Any]], Callable[[Any, int], Awaitable[Any]]]:
    """Return a function that opens the client, and a function that gets the answer for the number of a row.

    Both are local, because Spark's workers cannot import this module: local functions are pickled by value.

    Args:
        url: address of the service.
    """

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        import aiohttp

        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as session:
            yield session

    async def get(session: Any, number: int) -> Any:
        async with session.get(f"/{number}") as response:
            response.raise_for_status()
            return await response.json()

    return opened, get
