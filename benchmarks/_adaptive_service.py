"""HTTP service of limited capacity for ``benchmarks.adaptive``; its log contains the true figures.

``POST /case`` sets the behavior and clears the log, ``GET /log`` returns the log's totals, and every other request is a
call. Times in a case are seconds since its first call.
"""

from __future__ import annotations

import asyncio
import collections
import random
import sys
import time
from typing import Any

from aiohttp import web

from benchmarks.adaptive import tokens


class _Service:
    def __init__(self) -> None:
        self.case: dict[str, Any] = {}
        self.reset({})

    def reset(self, case: dict[str, Any]) -> None:
        self.case = case
        self.random = random.Random(1)
        self.running: set[asyncio.Task[Any]] = set()
        self.in_flight = self.most = 0
        self.first = self.last = 0.0
        self.statuses: collections.Counter[int] = collections.Counter()
        self.rows: set[str] = set()
        self.recent: collections.deque[float] = collections.deque()
        #: Tokens of the bucket and time of its last refill; amount used in the current period, and its number.
        self.bucket, self.filled = float(case.get("burst", 0)), 0.0
        self.used, self.current = 0.0, 0

    def at(self, name: str, now: float, default: float) -> float:
        steps = self.case.get(name, default)
        if not isinstance(steps, list):
            return float(steps)
        return float([value for start, value in steps if start <= now][-1])

    def crowd(self, now: float) -> float:
        """Return the ratio of the calls in flight to the capacity."""
        return (self.in_flight + self.at("neighbours", now, 0)) / self.at("capacity", now, 1e9)

    def is_over_rate(self, now: float) -> bool:
        rate = self.at("rate", now, 0)
        if burst := self.case.get("burst"):
            self.bucket, self.filled = min(burst, self.bucket + (now - self.filled) * rate), now
            if self.bucket < 1:
                return True
            self.bucket -= 1
            return False
        while self.recent and self.recent[0] <= now - 1:
            self.recent.popleft()
        if not rate:
            return False
        if len(self.recent) >= rate:
            return True
        self.recent.append(now)
        return False

    def is_over_quota(self, now: float, name: str) -> bool:
        """Return whether the call exceeds the quota of the current period."""
        if "quota" not in self.case:
            return False
        if (current := int(now / self.case["period"])) != self.current:
            self.used, self.current = 0.0, current
        amount = tokens(int(name)) if self.case.get("tokens") else 1.0
        if self.used + amount > self.case["quota"]:
            return True
        self.used += amount
        return False

    async def call(self, request: web.Request) -> web.Response:
        began = time.monotonic()
        self.first = self.first or began
        now = began - self.first
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        task = asyncio.current_task()
        assert task is not None
        self.running.add(task)
        status, headers = 200, {}
        try:
            crowd = self.crowd(now)
            rejects = self.case.get("rejects")
            name = request.match_info["name"]
            if self.is_over_rate(now) or self.is_over_quota(now, name) or (rejects and crowd > 1):
                status = 503 if rejects else 429
                asked = self.case.get("retry_after")
                if asked == "reset":
                    asked = (self.current + 1) * self.case["period"] - now
                if asked is not None:
                    headers["Retry-After"] = str(asked)
            else:
                seconds = self.at("latency", now, 0.03) * (1 if crowd <= 1 or rejects else crowd**2)
                share, factor = self.case.get("tail", (0, 1))
                if self.random.random() < share:
                    seconds *= factor
                await asyncio.sleep(seconds)
        finally:
            self.in_flight -= 1
            self.running.discard(task)
        self.statuses[status] += 1
        if status == 200:
            self.last = time.monotonic()
            self.rows.add(request.match_info["name"])
        return web.json_response({"country": "DE"}, status=status, headers=headers)

    async def set(self, request: web.Request) -> web.Response:
        # Wait for the calls that a killed client made.
        for task in self.running:
            task.cancel()
        if self.running:
            await asyncio.wait(self.running)
        self.reset(await request.json())
        return web.Response()

    async def log(self, _: web.Request) -> web.Response:
        calls, answered = sum(self.statuses.values()), self.statuses[200]
        seconds = max(0.0, self.last - self.first)
        totals = {"calls": calls, "answered": answered, "rows": len(self.rows), "seconds": seconds, "most": self.most}
        return web.json_response({**totals, "elapsed": time.monotonic() - self.first if self.first else 0.0})


async def _serve() -> None:
    service = _Service()
    application = web.Application()
    application.add_routes(
        [web.post("/case", service.set), web.get("/log", service.log), web.get("/{name}", service.call)]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    # When the parent exits, it closes the pipe, and the service exits.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
