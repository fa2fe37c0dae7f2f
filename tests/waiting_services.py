"""Simulated services that say when to come back, and the best fixed setting for each."""

from __future__ import annotations

import dataclasses
from typing import Any

from simulated_service import Outcome, Service, outcome

from spark_events import Budget

__all__ = ["CASES", "Case", "tokens"]

QUOTA = 60_000.0


def tokens(row: int) -> float:
    """Return the tokens that a row uses."""
    return 100 + (row * 37) % 200


@dataclasses.dataclass(frozen=True)
class Case:
    """Service, rows, best fixed setting or its goodput, least goodput relative to it, and most calls per row.

    The goal is 0.9, and 0.85 for capacities below 5. Lower values are what the engine reaches today.
    """

    service: Service
    rows: int
    best: dict[str, Any] | float
    least: float = 0.9
    plan: dict[str, Any] = dataclasses.field(default_factory=dict)
    most_calls: float = 1.1

    def run(self, seed: int) -> tuple[float, Outcome]:
        """Return the goodput relative to the best fixed setting, and the outcome."""
        best = self.best
        if isinstance(best, dict):
            best = outcome(dataclasses.replace(self.service, seed=seed), self.rows, **{**self.plan, **best}).goodput
        found = outcome(dataclasses.replace(self.service, seed=seed), self.rows, seconds=1e6, **self.plan)
        return found.goodput / best, found


def capacity(number: int, **service: Any) -> Service:
    return Service(capacity=((0, number),), **service)


def seconds(latency: float) -> Any:
    return ((0, latency),)


LONG: dict[str, Any] = {"timeout": None, "total_timeout": None}
CASES = {
    "bucket, burst 20, Retry-After": Case(
        Service(rate=((0, 200),), burst=20, retry_after=1), 4000, {"rate_limit": 195}, 0.85
    ),
    "bucket, burst 20": Case(Service(rate=((0, 200),), burst=20), 4000, {"rate_limit": 195}, 0.8),
    "bucket, burst 5, Retry-After": Case(Service(rate=((0, 50),), burst=5, retry_after=1), 2000, {"rate_limit": 49}),
    "bucket, Retry-After": Case(Service(rate=((0, 200),), retry_after=1), 4000, {"rate_limit": 195}),
    "windows of a second, Retry-After": Case(
        Service(rate=((0, 50),), period=1, retry_after="reset"), 2000, {"rate_limit": 50}
    ),
    "windows of a minute, Retry-After": Case(
        Service(rate=((0, 10),), period=60, retry_after="reset"), 3000, {"rate_limit": 10}, plan=LONG
    ),
    "quota of a day, Retry-After": Case(
        Service(rate=((0, 0.1),), period=7200, retry_after="reset"), 900, 900 / 7200, plan=LONG
    ),
    "tokens": Case(
        Service(latency=seconds(1), quota=QUOTA, tokens=tokens, retry_after=5),
        1000,
        1000 / 182,
        0.8,
        plan={"budget": Budget(QUOTA, cost=tokens, usage=tokens), "total_timeout": 600},
    ),
    "tokens without a budget": Case(
        Service(latency=seconds(1), quota=QUOTA, tokens=tokens, retry_after=5),
        1000,
        1000 / 182,
        0.72,
        plan={"total_timeout": 600},
    ),
}
for number, rows in ((1, 600), (3, 2000), (10, 8000), (20, 16000)):
    least = 0.85 if number < 5 else 0.9
    fixed = {"max_in_flight": number}
    CASES[f"sheds above {number}, Retry-After"] = Case(
        capacity(number, beyond="reject", retry_after=1), rows, fixed, least
    )
    CASES[f"sheds above {number}"] = Case(capacity(number, beyond="reject"), rows, fixed, least)
    CASES[f"collapses above {number}"] = Case(capacity(number), rows, fixed, least)
    CASES[f"queues above {number}"] = Case(capacity(number, beyond="queue"), rows, fixed, least)
for latency in (1, 3, 10):
    service = capacity(30, latency=seconds(latency), spread=0.3)
    CASES[f"calls of {latency} s"] = Case(
        service, 3000, {"max_in_flight": 30}, 0.87, plan={"timeout": 300, "total_timeout": 600}
    )
    CASES[f"calls of {latency} s, Retry-After"] = Case(
        dataclasses.replace(service, beyond="reject", retry_after=1),
        3000,
        {"max_in_flight": 30},
        0.87,
        plan={"timeout": 300, "total_timeout": 600},
        most_calls=1.15,
    )
