"""Tests of the engine with random schedules: order of rows and keys, one call per row, limits, early closing."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter, defaultdict
from typing import Any

from enrich_engine import Run, chunks_of
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.settings import Cache, Retry

_TICK = 0.001
_ATTEMPTS = 3


@dataclasses.dataclass(frozen=True)
class RowOutcome:
    """Outcomes of a row's attempts: ``failures`` transient failures, then an answer, a permanent failure or a hang."""

    delays: tuple[int, ...]
    failures: int
    end: str


outcomes = st.builds(
    RowOutcome,
    delays=st.lists(st.integers(0, 4), min_size=_ATTEMPTS, max_size=_ATTEMPTS).map(tuple),
    failures=st.integers(0, _ATTEMPTS),
    end=st.sampled_from(["answer"] * 8 + ["mistake", "cancel"]),
)
#: The timeout is far longer than an answer takes, even on a busy machine. A row that hangs takes three timeouts. One
#: schedule in five has a row that hangs.
_TIMEOUT = 0.5


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Batch with the outcome of each row, and the settings of its run."""

    rows: list[RowOutcome]
    keys: list[int]
    width: int
    chunk: int
    buffer: int


def with_hanging_row(rows: list[RowOutcome], index: int) -> list[RowOutcome]:
    """Return the rows, with the row at ``index`` replaced by a row that hangs."""
    return [dataclasses.replace(outcome, end="hang") if n == index else outcome for n, outcome in enumerate(rows)]


schedules = st.integers(0, 60).flatmap(
    lambda rows: st.builds(
        Schedule,
        rows=st.builds(
            with_hanging_row,
            st.lists(outcomes, min_size=rows, max_size=rows),
            st.sampled_from([*range(rows), *[rows] * 4 * max(1, rows)]),
        ),
        keys=st.lists(st.integers(0, 5), min_size=rows, max_size=rows),
        width=st.integers(1, 12),
        chunk=st.integers(1, 15),
        buffer=st.integers(1, 40),
    )
)


class World:
    """User function that records its calls."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.attempts: Counter[int] = Counter()
        self.begun: list[int] = []
        self.flying = self.most = 0
        self.by_key: defaultdict[int, int] = defaultdict(int)
        self.overlaps = 0

    async def call(self, row: int, ctx: Any) -> int:
        outcome, key = self.schedule.rows[row], self.schedule.keys[row]
        self.attempts[row] += 1
        assert ctx.attempt == self.attempts[row]
        assert ctx.idempotency_key == repr(row)
        self.begun.append(row)
        self.flying += 1
        self.most = max(self.most, self.flying)
        self.by_key[key] += 1
        self.overlaps += self.by_key[key] > 1
        try:
            await asyncio.sleep(outcome.delays[ctx.attempt - 1] * _TICK)
            if ctx.attempt <= outcome.failures:
                raise ConnectionError
            if outcome.end == "mistake":
                raise KeyError
            if outcome.end == "cancel":
                raise asyncio.CancelledError
            if outcome.end == "hang":
                await asyncio.sleep(3600)
            return row
        finally:
            self.flying -= 1
            self.by_key[key] -= 1


def expected(outcome: RowOutcome) -> tuple[str, int]:
    """Return the expected answer and number of attempts for each row."""
    if outcome.failures >= _ATTEMPTS:
        return "ConnectionError", _ATTEMPTS
    made = outcome.failures + 1
    names = {"answer": "answer", "mistake": "KeyError", "cancel": "CancelledError", "hang": "TimeoutError"}
    return names[outcome.end], _ATTEMPTS if outcome.end == "hang" else made


def run_of(world: World, **plan: Any) -> Run:
    schedule = world.schedule
    return Run(
        world.call,
        max_in_flight=schedule.width,
        buffer_rows=schedule.buffer,
        timeout=_TIMEOUT,
        total_timeout=None,
        retry=Retry(attempts=_ATTEMPTS, initial=0, jitter=0),
        circuit_breaker=None,
        **plan,
    )


def check(world: World, run: Run, answers: list[Any]) -> None:
    """Assert the invariants of a complete run."""
    schedule = world.schedule
    assert len(answers) == len(schedule.rows)
    for row, (outcome, answer) in enumerate(zip(schedule.rows, answers, strict=True)):
        what, made = expected(outcome)
        if what == "answer":
            assert answer == row
        else:
            assert isinstance(answer, RowFailure)
            assert answer.type.rpartition(".")[2] == what
            assert answer.attempts == made
        assert world.attempts[row] == made
    assert world.flying == 0
    assert world.most <= schedule.width
    numbers = run.numbers
    assert numbers["attempts"] == sum(world.attempts.values())
    assert numbers["calls"] == numbers["rows"] == len(schedule.rows)
    assert numbers["peak_in_flight"] == world.most
    assert sum(numbers["failures"].values()) == sum(isinstance(answer, RowFailure) for answer in answers)
    assert numbers["buffer_rows"] < schedule.buffer + schedule.chunk


@settings(max_examples=30, deadline=None)
@given(schedules)
def test_rows_are_answered_in_order_without_additional_calls(schedule: Schedule) -> None:
    """Rows are answered in order, after the expected number of calls, even if calls fail, hang or overtake others."""
    world = World(schedule)
    run = run_of(world)
    check(world, run, run.of(chunks_of(range(len(schedule.rows)), schedule.chunk)))


@settings(max_examples=30, deadline=None)
@given(schedules)
def test_the_calls_of_a_key_never_overlap_and_keep_their_order(schedule: Schedule) -> None:
    world = World(schedule)
    run = run_of(world, key="k", on_failure="null")
    rows = range(len(schedule.rows))
    check(world, run, run.of(chunks_of(rows, schedule.chunk, key=lambda row: schedule.keys[row])))
    assert world.overlaps == 0
    for key in set(schedule.keys):
        mine = [row for row in world.begun if schedule.keys[row] == key]
        assert mine == sorted(mine)


@settings(max_examples=30, deadline=None)
@given(schedules, st.booleans())
def test_unordered_rows_leave_once_and_in_order_of_their_key(schedule: Schedule, keyed: bool) -> None:
    """Without order, the engine yields each row exactly once, with its own outcome, and rows of one key in order."""
    world = World(schedule)
    run = run_of(world, ordered=False, **({"key": "k", "on_failure": "null"} if keyed else {}))
    key = (lambda row: schedule.keys[row]) if keyed else None
    left = run.as_answered(chunks_of(range(len(schedule.rows)), schedule.chunk, key=key))
    check(world, run, [answer for _, answer in sorted(left, key=lambda pair: pair[0])])
    assert sorted(row for row, _ in left) == list(range(len(schedule.rows)))
    for number in set(schedule.keys) if keyed else ():
        mine = [row for row, _ in left if schedule.keys[row] == number]
        assert mine == sorted(mine)


@settings(max_examples=30, deadline=None)
@given(schedules, st.booleans(), st.booleans(), st.integers(1, 7))
def test_equal_requests_share_one_call_and_its_outcome(schedule: Schedule, cached: bool, bulk: bool, size: int) -> None:
    calls: Counter[int] = Counter()

    async def one(row: int) -> int:
        request = schedule.keys[row]
        calls[request] += 1
        await asyncio.sleep(schedule.rows[row].delays[0] * _TICK)
        if request == 0:
            raise KeyError
        return request

    async def several(rows: list[int]) -> list[Any]:
        return await asyncio.gather(*(one(row) for row in rows), return_exceptions=True)

    rows = range(len(schedule.rows))
    run = Run(
        several if bulk else one,
        coalesce_by="k",
        cache=Cache() if cached else None,
        batch_size=size if bulk else None,
        max_in_flight=schedule.width,
    )
    answers = run.of(chunks_of(rows, schedule.chunk, request=lambda row: schedule.keys[row]))
    assert calls == Counter(set(schedule.keys))
    for row, answer in zip(rows, answers, strict=True):
        assert isinstance(answer, RowFailure) if schedule.keys[row] == 0 else answer == schedule.keys[row]
    numbers = run.numbers
    assert numbers["coalesced"] == len(rows) - len(set(schedule.keys))
    assert numbers["failures"].get("KeyError", 0) == schedule.keys.count(0)


async def _pause(row: int) -> None:
    await asyncio.sleep(5 * _TICK)


@settings(max_examples=30, deadline=None)
@given(schedules, st.integers(0, 5), st.booleans())
def test_a_stopped_run_leaves_no_call_in_flight(schedule: Schedule, after: int, keyed: bool) -> None:
    """When a run is closed early, close() cancels all calls in flight before it returns, and no call begins later."""
    world = World(schedule)
    run = run_of(world, **({"key": "k", "on_failure": "null"} if keyed else {}))
    key = (lambda row: schedule.keys[row]) if keyed else None
    answers = run.begin(chunks_of(range(len(schedule.rows)), schedule.chunk, key=key))
    for _ in range(after):
        next(answers, None)
    answers.close()
    begun = len(world.begun)
    assert world.flying == 0
    # Another run keeps the event loop active, so that the test would detect remaining calls from the first run.
    assert len(Run(_pause).of(range(3))) == 3
    assert len(world.begun) == begun
    assert max(world.attempts.values(), default=0) <= _ATTEMPTS
