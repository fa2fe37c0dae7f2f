"""Call a service for each row with Daft or Ray Data; print the number of rows without an answer.

This program runs in the environment of `make frameworks`, without this project's packages:
``python _frameworks.py daft|ray URL ROWS IN_FLIGHT``, with 0 in flight for the tool's default.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import aiohttp


class _Calls:
    """One HTTP session for each event loop, opened at the first call."""

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


def _with_daft(url: str, rows: int, in_flight: int) -> list[int]:
    import daft

    @daft.cls(max_concurrency=in_flight or None)
    class Service:
        def __init__(self) -> None:
            self.calls = _Calls(url)

        @daft.method(return_dtype=daft.DataType.int64())  # type: ignore[untyped-decorator, unused-ignore]
        async def get(self, row: int) -> int:
            return await self.calls.answer(row)

    frame = daft.from_pydict({"row": list(range(rows))})
    answers = frame.select(Service().get(frame["row"]).alias("answer")).to_pydict()["answer"]
    return [int(answer) for answer in answers]


def _with_ray(url: str, rows: int, in_flight: int) -> list[int]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    ray.data.DataContext.get_current().execution_options.preserve_order = True

    class Service:
        def __init__(self) -> None:
            self.calls = _Calls(url)
            self.free = asyncio.Semaphore(in_flight or rows)

        async def one(self, row: int) -> int:
            async with self.free:
                return await self.calls.answer(row)

        async def __call__(self, batch: dict[str, Any]) -> Any:
            yield {"answer": await asyncio.gather(*(self.one(int(row)) for row in batch["id"]))}

    answers = ray.data.range(rows).map_batches(Service, batch_size=250, concurrency=1).take_all()
    return [int(answer["answer"]) for answer in answers]


if __name__ == "__main__":
    _, tool, address, count, most = sys.argv
    found = (_with_daft if tool == "daft" else _with_ray)(address, int(count), int(most))
    assert len(found) == int(count)
    print(sum(answer != row for row, answer in enumerate(found)))
