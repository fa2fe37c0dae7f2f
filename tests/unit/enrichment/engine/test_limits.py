"""Tests of the rate, of Retry-After, and of unavailable destinations."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import itertools
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from enrich_engine import Run, chunks_of, definition
from lateness import Witness
from virtual_engine import VirtualRun, virtual_now

from spark_events.enrichment.engine.calls import Chunk
from spark_events.enrichment.engine.engine import StoppedError
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.ledger import JobLimits
from spark_events.enrichment.engine.process import current_process
from spark_events.enrichment.settings import CircuitBreaker, Retry


class StatusError(Exception):
    """Exception with a status code, like the exceptions that httpx and requests raise."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"status {status}")
        self.response = type("Response", (), {"status_code": status, "headers": headers})()


def too_many(retry_after: str) -> StatusError:
    return StatusError(429, **{"Retry-After": retry_after})


def test_waiting_for_the_rate_limit_does_not_use_up_total_timeout() -> None:
    """The total timeout excludes the wait for the rate limit, because the user requested the rate."""

    async def fn(row: int) -> int:
        return row

    assert VirtualRun(fn, job=JobLimits(20), max_in_flight=20, total_timeout=0.2).of(range(12)) == list(range(12))


def test_rows_waiting_at_the_gate_of_a_blocked_loop_are_not_called() -> None:
    """If the probe blocks the loop, no call is made for rows that wait at the gate, even after the probe returns."""
    called: list[int] = []
    release = threading.Event()

    async def fn(row: int) -> int:
        called.append(row)
        if row == 0 and called.count(0) == 1:
            raise too_many("0.05")
        if row == 0:
            release.wait(60)
        return row

    plan: dict[str, Any] = {"timeout": 0.7, "total_timeout": None, "retry": Retry(initial=0, jitter=0)}
    answers = Run(fn, max_in_flight=5, **plan).engine.run(chunks_of(range(20), 10))
    _, first = next(answers)
    release.set()
    parts = [first, *(part for _, part in answers)]
    assert called == [0, 0]
    assert [getattr(answer, "type", "") for part in parts for answer in part] == ["BlockedLoopError"] * 20


def test_retry_after_delays_all_calls() -> None:
    """During a requested delay, no call is made. After the delay, all rows receive their answers."""
    rejected_at = 0.0
    begun: list[float] = []

    async def fn(row: int) -> int:
        nonlocal rejected_at
        begun.append(virtual_now())
        if row == 10 and not rejected_at:
            rejected_at = virtual_now()
            raise too_many("0.4")
        await asyncio.sleep(0.005)
        return row

    run = VirtualRun(fn, max_in_flight=4)
    assert run.of(range(100)) == list(range(100))
    assert not [moment for moment in begun if rejected_at < moment < rejected_at + 0.4]
    assert (run.numbers["throttled"], run.numbers["gate_closed"]) == (1, 1)


@pytest.mark.parametrize("retry_after", ["0", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_a_retry_after_of_zero_does_not_shorten_the_back_off(retry_after: str) -> None:
    """A Retry-After of zero does not shorten the back-off: the longer of both delays applies."""
    times: list[float] = []

    async def fn(row: int) -> int:
        times.append(virtual_now())
        raise too_many(retry_after)

    (failure,) = VirtualRun(fn, retry=Retry(initial=0.2, jitter=0), timeout=1, total_timeout=1).of([0])
    assert (failure.kind, failure.attempts) == ("throttled", 3)
    assert [times[1] - times[0], times[2] - times[1]] == pytest.approx([0.2, 0.4])


@pytest.mark.parametrize(
    ("rejected", "headers", "most"), [(5, {}, 20), (50, {}, 500), (1, {"Retry-After": "1"}, 30)], ids=str
)
def test_rows_that_are_always_rejected_do_not_fail_the_others(
    rejected: int, headers: dict[str, str], most: float
) -> None:
    """Rows that the service always rejects neither fail the other rows nor delay them for their whole total timeout.

    Regression: these rows overtook the others and lowered the rate of all. With one such row and Retry-After, up to 800
    other rows failed; with 50 such rows, the last other row was answered after 1,300 to 7,600 s.
    """
    random.seed(0)
    bad = set(random.sample(range(5000), rejected))
    last = 0.0

    async def fn(row: int) -> int:
        nonlocal last
        await asyncio.sleep(0.03)
        if row in bad:
            raise StatusError(429, **headers)
        last = virtual_now()
        return row

    answers = VirtualRun(fn).of(range(5000))
    assert {row for row, answer in enumerate(answers) if isinstance(answer, RowFailure)} == bad
    assert last < most


@pytest.mark.parametrize("status", [502, 503, 504, 529])
def test_the_delay_of_an_overloaded_backend_applies_to_its_row(status: int) -> None:
    """While other calls are answered, Retry-After of a 5xx delays only its row: a load balancer has other backends."""
    times: dict[int, list[float]] = {}

    async def fn(row: int, ctx: Any) -> int:
        times.setdefault(row, []).append(virtual_now())
        await asyncio.sleep(0.01)
        if row % 10 == 5 and ctx.attempt == 1:
            raise StatusError(status, **{"Retry-After": "5"})
        return row

    run = VirtualRun(fn, max_in_flight=20)
    assert run.of(range(200)) == list(range(200))
    assert min(times[row][1] - times[row][0] for row in range(5, 200, 10)) >= 5
    assert run.numbers["gate_closed"] == 0
    assert run.seconds < 6


@pytest.mark.parametrize("status", [502, 503, 504, 529])
def test_the_delay_of_a_service_that_answers_no_call_applies_to_all_rows(status: int) -> None:
    """If no call was answered in the last second, Retry-After of a 5xx delays all calls."""
    begun: list[float] = []

    async def fn(row: int) -> int:
        begun.append(virtual_now())
        if 5 <= virtual_now() < 10:
            await asyncio.sleep(1.5)
            raise StatusError(status, **{"Retry-After": "20"})
        await asyncio.sleep(0.3)
        return row

    run = VirtualRun(fn, max_in_flight=4)
    assert run.of(range(100)) == list(range(100))
    assert not [moment for moment in begun if 7 < moment < 26]
    assert run.numbers["gate_closed"] == 1


def test_calls_rejected_together_count_as_one_delay() -> None:
    """If the destination rejects several calls in flight, these rejections cause one delay."""
    together = asyncio.Event()
    inside = 0

    async def fn(row: int, ctx: Any) -> int:
        nonlocal inside
        if ctx.attempt > 1:
            return row
        inside += 1
        if inside == 4:
            together.set()
        await together.wait()
        raise too_many("1")

    run = Run(fn, max_in_flight=4)
    assert run.of(range(4)) == list(range(4))
    assert (run.numbers["throttled"], run.numbers["gate_closed"]) == (4, 1)


def test_a_timeout_between_attempts_does_not_count_as_an_attempt() -> None:
    """A timeout at the gate, or during a back-off, does not count as an attempt."""

    async def fn(row: int) -> int:
        raise too_many("0.2")

    run = Run(fn, max_in_flight=2, total_timeout=0.3, retry=Retry(attempts=100, initial=0, jitter=0))
    answers = run.of([0, 1, 2])
    assert all(isinstance(answer, RowFailure) for answer in answers)
    assert run.numbers["timeouts"] == 0
    assert run.numbers["throttled"] == run.numbers["attempts"]


def test_calls_resume_gradually_after_retry_after() -> None:
    """After a requested delay, calls resume gradually, so that a small service is not overloaded again."""
    window, taken, refused = 0.0, 0, 0

    async def fn(row: int) -> int:
        nonlocal window, taken, refused
        await asyncio.sleep(0.001)
        now = virtual_now()
        if now - window > 0.2:
            window, taken = now, 0
        if taken >= 20:
            refused += 1
            raise too_many(str(window + 0.2 - now))
        taken += 1
        return row

    run = VirtualRun(fn, max_in_flight=200, retry=Retry(attempts=4))
    answers = run.of(range(150))
    assert answers == list(range(150))
    # The first burst is rejected once; after that, hardly any call.
    assert refused < 150


def test_a_retry_after_beyond_total_timeout_fails_the_row_at_once(witness: Witness) -> None:
    """If a requested delay exceeds the total timeout, the row and all waiting rows fail at once."""

    async def fn(row: int) -> int:
        raise too_many("3600")

    began = time.monotonic()
    answers = Run(fn, max_in_flight=1, total_timeout=5).of(range(500))
    assert witness.took(began) < 3
    kinds = {answer.kind for answer in answers}
    assert kinds == {"throttled"}
    assert answers[0].attempts == 1
    assert answers[1].attempts == 0
    assert "total_timeout" in answers[1].message


def test_retry_after_may_be_a_date_and_may_be_ignored() -> None:
    """Retry-After may be a number or a date. With honor_retry_after=False, the normal back-off applies."""
    date = email.utils.formatdate(time.time() + 30, usegmt=True)

    async def fn(row: int, ctx: Any) -> int:
        if ctx.attempt == 1:
            raise too_many(date)
        return row

    ignored = Retry(initial=0, jitter=0, honor_retry_after=False)
    assert Run(fn, retry=ignored).of([1]) == [1]
    (failure,) = Run(fn, total_timeout=5).of([1])
    assert failure.kind == "throttled"


def test_a_destination_that_is_down_fails_the_batch_in_seconds(witness: Witness) -> None:
    """If the destination is down, the batch fails within seconds, and most rows fail without a call."""
    calls = 0

    async def fn(row: int) -> int:
        nonlocal calls
        calls += 1
        raise ConnectionRefusedError("refused")

    began = time.monotonic()
    run = Run(fn, max_in_flight=50, circuit_breaker=CircuitBreaker(failures=10, give_up_after=1))
    answers = run.of(range(20_000))
    assert witness.took(began) < 5
    assert calls < 200
    kinds = {answer.kind for answer in answers}
    assert "circuit-open" in kinds
    last = answers[-1]
    assert (last.kind, last.attempts, last.type) == ("circuit-open", 0, "CircuitOpenError")
    assert "ConnectionRefusedError: refused" in last.message


def test_a_destination_that_never_answers_fails_the_batch_soon_after_the_first_timeouts(witness: Witness) -> None:
    """If the destination never answers, the calls in flight are cancelled soon after the first timeouts."""

    async def fn(row: int) -> int:
        await asyncio.sleep(3600)
        return row

    began = time.monotonic()
    breaker = CircuitBreaker(failures=5, give_up_after=0.3)
    answers = Run(fn, max_in_flight=10, timeout=0.5, circuit_breaker=breaker).of(range(1000))
    assert witness.took(began) < 3
    assert {answer.kind for answer in answers} <= {"circuit-open", "timeout"}


def test_an_uncancellable_call_ended_by_the_breaker_is_not_a_timeout() -> None:
    """If the breaker ends an uncancellable call, the row fails because of the destination, not because of a timeout."""
    release: list[asyncio.Event] = []

    async def fn(row: int) -> None:
        if row:
            raise ConnectionRefusedError("refused")
        release.append(asyncio.Event())
        while not release[0].is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release[0].wait()

    run = Run(fn, timeout=60, max_in_flight=2, circuit_breaker=CircuitBreaker(failures=1, give_up_after=0.1))
    failure, *_ = run.of(range(3))
    current_process().background.loop.call_soon_threadsafe(release[0].set)
    assert (failure.kind, failure.type, failure.attempts) == ("circuit-open", "CircuitOpenError", 1)
    assert "ConnectionRefusedError: refused" in failure.message
    assert (run.numbers["abandoned"], run.numbers["timeouts"]) == (1, 0)
    assert failure.elapsed > 0


@pytest.mark.parametrize("status", [429, 503])
def test_rejections_for_overload_use_up_no_attempts(status: int) -> None:
    """A rejection because of overload does not count as an attempt: the row waits. Other errors count as attempts."""
    attempts = 0

    async def fn(row: int) -> int:
        nonlocal attempts
        attempts += 1
        if attempts in {3, 6}:
            raise ConnectionError
        if attempts < 9:
            raise StatusError(status)
        return row

    assert Run(fn, retry=Retry(attempts=3, initial=0.001, max=0.01, jitter=0)).of([1]) == [1]
    attempts = 0
    (failure,) = Run(fn, retry=Retry(attempts=2, initial=0.001, max=0.01, jitter=0)).of([1])
    assert (failure.type, failure.attempts) == ("ConnectionError", 6)


def test_without_a_policy_a_rejection_fails_the_row() -> None:
    """With ``retry=None``, a rejection because of overload fails the row after its only attempt."""

    async def fn(row: int) -> int:
        raise StatusError(503)

    (failure,) = Run(fn, retry=None).of([1])
    assert (failure.kind, failure.attempts) == ("throttled", 1)


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_rejection_does_not_use_up_the_only_attempt(status: int) -> None:
    """With ``attempts=1``, a row survives rejections because of overload, but fails at its first other error."""
    calls = 0

    async def fn(row: int) -> int:
        nonlocal calls
        calls += 1
        if calls < 4:
            raise StatusError(status)
        if row:
            raise ConnectionError
        return row

    policy = Retry(attempts=1, initial=0.001, max=0.01, jitter=0)
    assert Run(fn, retry=policy).of([0]) == [0]
    calls = 0
    (failure,) = Run(fn, retry=policy).of([1])
    assert (failure.type, failure.attempts) == ("ConnectionError", 4)


@pytest.mark.parametrize(("status", "is_down"), [(504, False), (529, False), (502, True)])
def test_an_overloaded_gateway_is_not_down(status: int, is_down: bool) -> None:
    """If the service answers a single call, a 504 (timeout of a slow service) or a 529 (overload) is no outage."""
    inside = 0

    async def fn(row: int) -> int:
        nonlocal inside
        inside += 1
        try:
            crowd = inside
            await asyncio.sleep(0.01)
            if crowd > 1:
                raise StatusError(status)
            return row
        finally:
            inside -= 1

    policy = Retry(attempts=100, initial=0.01, max=0.05)
    breaker = CircuitBreaker(failures=5, give_up_after=0)
    answers = Run(fn, max_in_flight=20, retry=policy, circuit_breaker=breaker).of(range(20))
    kinds = {answer.kind for answer in answers if isinstance(answer, RowFailure)}
    assert kinds == ({"circuit-open"} if is_down else set())


def test_a_destination_that_only_rejects_counts_as_down_after_total_timeout(witness: Witness) -> None:
    """A destination that rejects all calls for the total timeout is considered down, and later rows fail sooner."""
    began = time.monotonic()

    async def fn(row: int) -> int:
        raise StatusError(503)

    run = Run(fn, max_in_flight=5, timeout=0.5, total_timeout=0.5, retry=Retry(initial=0.05, jitter=0))
    answers = run.of(range(500))
    assert witness.took(began) < 5
    assert {answer.kind for answer in answers} == {"throttled", "circuit-open"}
    assert "it rejected all calls" in answers[-1].message


def test_a_slow_destination_does_not_open_the_breaker() -> None:
    """If a destination is slow only under load, the breaker stays closed, because a single probe is answered."""
    inside = 0

    async def fn(row: int) -> int:
        nonlocal inside
        inside += 1
        try:
            await asyncio.sleep(0.02 if inside == 1 else 60)
        finally:
            inside -= 1
        return row

    breaker = CircuitBreaker(failures=3, give_up_after=0.01)
    retry = Retry(attempts=100, initial=0, jitter=0)
    run = VirtualRun(fn, max_in_flight=5, timeout=1.5, total_timeout=120, circuit_breaker=breaker, retry=retry)
    answers = run.of(range(5))
    assert "circuit-open" not in run.numbers["kinds"]
    assert answers == list(range(5))


def test_a_destination_that_recovers_in_time_fails_no_row() -> None:
    """If the destination recovers in time, no row fails: the breaker closes after the first answered probe."""

    async def fn(row: int) -> int:
        if virtual_now() < 0.8:
            raise ConnectionRefusedError
        return row

    run = VirtualRun(fn, max_in_flight=50, circuit_breaker=CircuitBreaker(failures=10, give_up_after=5))
    assert run.of(range(500)) == list(range(500))
    assert run.numbers["attempts"] < 500 + 150


def test_rejected_rows_do_not_open_the_breaker() -> None:
    """Rejected rows, for example with status 404, do not open the breaker, because the destination is available."""

    async def fn(row: int) -> int:
        raise StatusError(404)

    answers = Run(fn, circuit_breaker=CircuitBreaker(failures=3, give_up_after=0)).of(range(50))
    assert {(answer.kind, answer.attempts) for answer in answers} == {("error", 1)}


def test_the_breaker_lasts_for_the_batch() -> None:
    """An open breaker applies to its batch's tasks in one process. The next batch calls the destination again."""
    calls = itertools.count()

    async def fn(row: int) -> int:
        next(calls)
        raise ConnectionRefusedError

    plan: dict[str, Any] = {"circuit_breaker": CircuitBreaker(failures=3, give_up_after=0.2), "max_in_flight": 5}
    batch = definition()
    Run(fn, made=batch, **plan).of(range(20))
    before = next(calls)
    answers = Run(fn, made=batch, **plan).of(range(20))
    assert next(calls) == before + 1
    assert {answer.kind for answer in answers} == {"circuit-open"}

    async def works(row: int) -> int:
        return row

    assert Run(works, made=definition(calls=batch.calls, resource=batch.resource), **plan).of(range(20)) == list(
        range(20)
    )


def test_without_a_breaker_every_row_uses_its_attempts() -> None:
    """With ``circuit_breaker=None``, every row uses all its attempts."""

    async def fn(row: int) -> int:
        raise ConnectionRefusedError

    run = Run(fn, circuit_breaker=None, retry=Retry(attempts=2, initial=0, jitter=0))
    answers = run.of(range(100))
    assert {answer.attempts for answer in answers if isinstance(answer, RowFailure)} == {2}
    assert run.numbers["attempts"] == 200


@pytest.mark.parametrize("unwinds", [True, False])
def test_a_call_cancelled_by_the_end_of_its_run_leaves_the_gate(unwinds: bool) -> None:
    """If a run is stopped and cancels a call, this call leaves the gate, so the next run can use the gate."""
    alone = threading.Event()
    over: list[asyncio.Event] = []

    async def fn(row: int, ctx: Any) -> int:
        if row == 0 and ctx.attempt == 1:
            raise too_many("0.3")
        if row == 0:
            # This call is the gate's probe.
            over.append(asyncio.Event())
            alone.set()
            while not over[0].is_set():
                try:
                    await over[0].wait()
                except asyncio.CancelledError:
                    if unwinds:
                        raise
        return row

    def source() -> Iterator[Chunk]:
        yield from chunks_of(range(3))
        alone.wait()
        run.engine.cancel()

    made = definition()
    run = Run(fn, made=made)
    with pytest.raises(StoppedError):
        run.of(source())
    assert Run(fn, made=made, total_timeout=2).of([7]) == [7]
    current_process().background.loop.call_soon_threadsafe(over[0].set)


@pytest.mark.parametrize("stop_after", [0, 1, 5])
def test_closing_a_run_cancels_calls_that_wait_at_the_gate(stop_after: int, witness: Witness) -> None:
    """Closing a run cancels the calls at the gate and the calls in flight."""

    async def fn(row: int) -> int:
        if row >= stop_after:
            raise too_many("30")
        return row

    run = Run(fn, max_in_flight=3)
    answers = run.begin(chunks_of(range(50), 1))
    for _ in range(stop_after):
        next(answers)
    began = time.monotonic()
    if stop_after == 0:
        run.engine.cancel()
        with pytest.raises(Exception, match="cancelled"):
            next(answers)
    answers.close()
    assert witness.took(began) < 2
