"""Compare the calls in flight and rates that the engine selects with the best fixed setting.

The destination is a real HTTP service in its own process. Each client is a process with one engine, like a Spark
worker. The service computes the goodput: answered calls from its first call to its last answer. For each case, a
sweep determines the best fixed setting. Then this setting and the default run alternately. ``ADAPTIVE_CASES`` selects
cases by a part of the name, and ``ADAPTIVE_ROUNDS`` sets the number of repetitions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from benchmarks._adaptive_client import client_of
from spark_events.enrichment.driver.channel_server import opened_channel
from spark_events.enrichment.engine.job_state import JobState
from spark_events.enrichment.settings import Auto

_ROUNDS = int(os.environ.get("ADAPTIVE_ROUNDS", "3"))
_WANTED = os.environ.get("ADAPTIVE_CASES", "")
_SWEEP = (5, 10, 20, 40, 80, 160)
_FORMER_DEFAULT = 100
#: Time limit of a setting in the sweep. With far too many calls in flight, a run would take minutes.
_SWEEP_SECONDS = 15.0


@dataclasses.dataclass(frozen=True)
class _Case:
    """Case: rows, behavior of the service, number of clients, and ``rate``, the service's rate limit (0: none).

    If ``shares``, the clients share the window of a job. ``best`` is the best fixed number of calls in flight
    if it follows from the service; 0: a sweep finds it. With ``budget``, the clients know the tokens per minute. With
    ``master``, a Spark job with ``clients`` tasks makes the calls.
    """

    rows: int
    service: dict[str, Any]
    clients: int = 1
    rate: float = 0.0
    shares: bool = False
    best: int = 0
    budget: bool = False
    master: str = ""


#: Concurrent calls made by other clients: pairs of the time in seconds and the number from then on.
_NEIGHBOURS = [[0, 0], [2, 10], [3, 0], [4.5, 5], [5, 10], [6.5, 0], [8, 5], [10, 0], [11, 10], [11.5, 0], [13, 5]]
_SLOW_START = [[0, 0.3], [2, 0.2], [4, 0.1], [6, 0.03]]
_CASES = {
    "collapses beyond 20": _Case(5000, {"capacity": 20}),
    "capacity 40 to 10 after 3 s": _Case(5000, {"capacity": [[0, 40], [3, 10]]}),
    "capacity 10 to 40 after 3 s": _Case(5000, {"capacity": [[0, 10], [3, 40]]}),
    "answers 503 beyond 20": _Case(5000, {"capacity": 20, "rejects": True}),
    "latency x3 from 3 to 6 s": _Case(5000, {"capacity": 20, "latency": [[0, 0.03], [3, 0.09], [6, 0.03]]}),
    "slow start": _Case(5000, {"capacity": 40, "latency": _SLOW_START}),
    "noisy neighbours": _Case(5000, {"capacity": 20, "neighbours": _NEIGHBOURS}),
    "two tasks without the driver": _Case(5000, {"capacity": 20}, clients=2),
    "two tasks": _Case(5000, {"capacity": 20}, clients=2, shares=True),
    "four tasks": _Case(5000, {"capacity": 20}, clients=4, shares=True),
    "two executors": _Case(5000, {"capacity": 20}, clients=2, best=20, master="local-cluster[2,1,1024]"),
    "four executors": _Case(5000, {"capacity": 20}, clients=4, best=20, master="local-cluster[4,1,1024]"),
    "heavy tail": _Case(4000, {"capacity": 20, "tail": [0.01, 30]}),
    "latency 1 ms": _Case(10000, {"capacity": 20, "latency": 0.001}),
    "no limit": _Case(10000, {}),
    "429 above 200/s": _Case(2000, {"rate": 200}, rate=200),
    "429 above 200/s, Retry-After: 1": _Case(2000, {"rate": 200, "retry_after": 1}, rate=200),
    "429 above 200/s, Retry-After: 0": _Case(2000, {"rate": 200, "retry_after": 0}, rate=200),
    "burst 20, 200/s": _Case(4000, {"rate": 200, "burst": 20}, rate=200),
    "burst 20, 200/s, Retry-After: 1": _Case(4000, {"rate": 200, "burst": 20, "retry_after": 1}, rate=200),
    "burst 5, 50/s, Retry-After: 1": _Case(1500, {"rate": 50, "burst": 5, "retry_after": 1}, rate=50),
    "quota of 500 calls in 20 s (as of a day), Retry-After": _Case(
        1200, {"quota": 500, "period": 20, "retry_after": "reset"}, rate=1200 / 41
    ),
    "60,000 tokens per minute, Retry-After: 5": _Case(
        450, {"quota": 60_000, "period": 60, "tokens": True, "retry_after": 5, "latency": 1}, rate=450 / 61
    ),
    "60,000 tokens per minute, with a budget": _Case(
        450, {"quota": 60_000, "period": 60, "tokens": True, "retry_after": 5, "latency": 1}, rate=450 / 61, budget=True
    ),
    **{
        f"answers 503 beyond {number}, Retry-After: 1": _Case(
            300 * number, {"capacity": number, "rejects": True, "retry_after": 1}, best=number
        )
        for number in (1, 3, 10, 20)
    },
    **{f"collapses beyond {number}": _Case(300 * number, {"capacity": number}, best=number) for number in (1, 3, 10)},
    **{
        f"calls of {seconds} s, capacity 30": _Case(1000, {"capacity": 30, "latency": seconds}, best=30)
        for seconds in (1, 3, 10)
    },
}


class Service:
    """Handle on the service: runs its clients, sets its behavior and reads its log."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def run(self, case: _Case, setting: str, most: float = 600) -> tuple[float, float, int]:
        """Run the clients for at most ``most`` seconds; return goodput, calls per row and unanswered rows."""
        if case.master:
            job = [sys.executable, "-m", "benchmarks._adaptive_job", self.url, str(case.rows), setting, case.master]
            return self.measure(case.service, [job], most)
        kind = "budget" if case.budget else ""
        rows = str(case.rows // case.clients)
        command = [sys.executable, "-m", "benchmarks.adaptive", self.url, rows, setting, kind]
        with opened_channel("127.0.0.1", "127.0.0.1", state=JobState(Auto())) as channel:
            assert channel is not None
            address = [str(channel.address.port), channel.address.secret.hex()]
            commands = [[*command, *address, str(number)] for number in range(case.clients)]
            return self.measure(case.service, commands if case.shares else [command] * case.clients, most)

    def measure(self, behavior: dict[str, Any], commands: list[list[str]], most: float) -> tuple[float, float, int]:
        """Run clients that print their number of rows without an answer. Return the same figures as :meth:`run`."""
        self.behave(behavior)
        clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        failed, deadline = 0, time.monotonic() + most
        for client in clients:
            try:
                failed += int(client.communicate(timeout=max(0.1, deadline - time.monotonic()))[0].split()[-1])
            except subprocess.TimeoutExpired:
                client.kill()
                client.communicate()
        log = self.log()
        return log["answered"] / max(log["seconds"], 1e-9), log["calls"] / max(1, log["answered"]), failed

    def behave(self, behavior: dict[str, Any]) -> None:
        """Set the behavior of the service, and clear its log."""
        body = json.dumps(behavior).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/case", body, method="POST")).close()

    def log(self) -> dict[str, Any]:
        """Return the totals of the service's log."""
        with urllib.request.urlopen(f"{self.url}/log") as answer:
            totals: dict[str, Any] = json.load(answer)
        return totals


@contextlib.contextmanager
def service() -> Iterator[Service]:
    """Start the service, and yield its client."""
    command = [sys.executable, "-m", "benchmarks._adaptive_service"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Service(int(process.stdout.readline()))
        process.kill()


def run() -> None:
    """For each case, print the goodput of the default divided by the goodput of the best fixed setting."""
    with service() as destination:
        for name, case in _CASES.items():
            if _WANTED in name:
                _compare(destination, name, case)


def _compare(service: Service, name: str, case: _Case) -> None:
    if case.rate:
        fixed, reference = str(_FORMER_DEFAULT), "the allowed rate"
    elif not case.service:
        fixed, reference = str(_FORMER_DEFAULT), f"{_FORMER_DEFAULT} in flight"
    elif case.best:
        fixed, reference = str(case.best // case.clients), f"{case.best} in flight"
    else:
        swept = {number: service.run(case, str(max(1, number // case.clients)), _SWEEP_SECONDS)[0] for number in _SWEEP}
        best = max(swept, key=swept.__getitem__)
        fixed, reference = str(max(1, best // case.clients)), f"{best} in flight"
    ours, others = [], []
    for _ in range(_ROUNDS):
        others.append((case.rate, 1.0, 0) if case.rate else service.run(case, fixed))
        ours.append(service.run(case, f"auto-{case.clients}"))
    goodput, other = (statistics.median(one[0] for one in runs) for runs in (ours, others))
    print(
        f"{name}: {goodput / other:.2f} of {reference} ({goodput:.0f} of {other:.0f} rows/s), "
        f"{statistics.median(one[1] for one in ours):.3f} calls a row, {sum(one[2] for one in ours)} rows lost",
        flush=True,
    )


def tokens(row: int) -> float:
    """Return the tokens that a call for a row uses."""
    return 100 + (row * 37) % 200


def _client(
    url: str, rows: int, setting: str, kind: str = "", port: str = "", secret: str = "", number: str = "0"
) -> None:
    """Call the service for rows with an engine, and print the number of rows without an answer.

    Args:
        url: address of the service.
        rows: number of rows.
        setting: number of calls in flight; "auto-2": adapted, one of two tasks.
        kind: "budget": limit the tokens per minute.
        port, secret: the driver's port, to share the window of the job; "": this process has its own window.
        number: number of this process.
    """
    from spark_events.enrichment.engine.calls import Chunk
    from spark_events.enrichment.engine.engine import Definition, Engine
    from spark_events.enrichment.engine.failure import RowFailure
    from spark_events.enrichment.engine.job_share import JobShare
    from spark_events.enrichment.engine.job_state import TaskState
    from spark_events.enrichment.engine.ledger import JobLimits, Ledger, leased
    from spark_events.enrichment.engine.process import current_process
    from spark_events.enrichment.plan import Plan
    from spark_events.enrichment.settings import Budget
    from spark_events.enrichment.worker.channel_client import ChannelAddress, TaskAttempt

    opened, get = client_of(url)

    async def lookup(row: int, ctx: Any) -> Any:
        return await get(ctx.resource, row)

    auto, _, tasks = setting.partition("-")
    given: Any = auto if tasks else int(setting)
    options: dict[str, Any] = {"timeout": 300, "total_timeout": 600, "tasks": int(tasks or 1)}
    limits, share, process = JobLimits(None, 60_000), None, current_process()
    if kind == "budget":
        options["budget"] = budget = Budget(60_000, cost=tokens)
        share = JobShare(limits, budget)
        process.background.submit(share.run(functools.partial(leased, Ledger(limits), 0)))
    plan = Plan(lookup, resource=opened, max_in_flight=given, on_failure="null", **options)
    shared = TaskState(plan.task_window) if port and tasks else None
    definition = Definition("calls", "answers", "resource", str(time.monotonic_ns()))
    engine = Engine(plan, definition, share=share, shared=shared)
    parts = [range(start, min(start + 1000, rows)) for start in range(0, rows, 1000)]
    chunks = (Chunk(part, lambda index, part=part: str(part[index]), 100 * len(part)) for part in parts)  # type: ignore[misc]
    with contextlib.ExitStack() as stack:
        if shared is not None:
            address = ChannelAddress("127.0.0.1", int(port), bytes.fromhex(secret))
            attempt = TaskAttempt(int(number), task=int(number))
            stack.enter_context(address.listening(process.background, attempt, engine.cancel, state=shared))
        print(sum(isinstance(answer, RowFailure) for _, answers in engine.run(chunks) for answer in answers))


if __name__ == "__main__":
    _client(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
