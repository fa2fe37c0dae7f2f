"""Call a service for each row with Daft or Ray Data, once for each line of standard input.

This program runs in the environment of `make frameworks`, without this project's packages:
``python _frameworks.py daft|ray URL ROWS IN_FLIGHT``, with 0 in flight for the tool's default.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

import aiohttp


class _Calls:
    """HTTP session, opened at the first call, because a session belongs to the event loop that the framework starts."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None

    async def answer(self, row: int) -> int:
        """Return the service's answer for a row; -1 if the service refuses the call."""
        if self._session is None:
            self._session = aiohttp.ClientSession(self._url, connector=aiohttp.TCPConnector(limit=0))
        async with self._session.get(f"/{row}") as response:
            await response.read()
            return row if response.status == 200 else -1


def _with_daft(url: str, rows: int, in_flight: int) -> Callable[[], int]:
    import daft

    # Daft 0.7.26 accepts `max_concurrency`, but ignores this limit for asynchronous methods: all calls start at once.
    @daft.cls  # type: ignore[untyped-decorator, unused-ignore]
    class Service:
        def __init__(self) -> None:
            self.calls = _Calls(url)
            self.free = asyncio.Semaphore(in_flight or rows)

        @daft.method(return_dtype=daft.DataType.int64())  # type: ignore[untyped-decorator, unused-ignore]
        async def get(self, row: int) -> int:
            async with self.free:
                return await self.calls.answer(row)

    def once() -> int:
        frame = daft.from_pydict({"row": list(range(rows))})
        return len(frame.select(Service().get(frame["row"]).alias("answer")).to_pydict()["answer"])

    return once


def _with_ray(url: str, rows: int, in_flight: int) -> Callable[[], int]:
    if in_flight:  # Ray reads this setting when it is imported.
        os.environ["RAY_DATA_DEFAULT_ASYNC_ROW_UDF_MAX_CONCURRENCY"] = str(in_flight)
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True

    class Service:
        def __init__(self) -> None:
            self.calls = _Calls(url)

        async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return {"answer": await self.calls.answer(int(row["id"]))}

    def once() -> int:
        one_block = ray.data.range(rows, override_num_blocks=1)
        return len(one_block.map(Service, compute=ray.data.ActorPoolStrategy(size=1)).take_all())

    return once


if __name__ == "__main__":
    _, tool, address, count, most = sys.argv
    call_all = (_with_daft if tool == "daft" else _with_ray)(address, int(count), int(most))
    for _ in sys.stdin:
        assert call_all() == int(count)
        print("done", flush=True)
