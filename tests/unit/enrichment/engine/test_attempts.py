"""Tests of retries, timeouts and cancellation of single calls."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from enrich_engine import Run, chunks_of
from fakes import eventually
from virtual_engine import VirtualRun, virtual_now

from spark_events.enrichment.engine.failure import RowFailure, message_of
from spark_events.enrichment.engine.ledger import JobLimits
from spark_events.enrichment.settings import Retry

AT_ONCE = Retry(initial=0, jitter=0)
pytestmark = pytest.mark.usefixtures("each_loop")


class Scripted:
    """Function that raises the exceptions in a script, one per attempt and row, and afterwards returns the row."""

    def __init__(self, *script: BaseException | Any) -> None:
        self._script = script
        self.attempts: dict[Any, int] = {}

    async def __call__(self, row: Any) -> Any:
        number = self.attempts.get(row, 0)
        self.attempts[row] = number + 1
        if number < len(self._script):
            step = self._script[number]
            if isinstance(step, BaseException):
                raise step
            return step
        return row


def failure_of(answers: list[Any]) -> RowFailure:
    (failure,) = answers
    assert isinstance(failure, RowFailure)
    return failure


def test_a_transient_failure_is_retried() -> None:
    """A transient failure is retried. The number of attempts includes the first: 4 attempts survive 3 failures."""
    fn = Scripted(ConnectionError(), TimeoutError(), ConnectionResetError())
    run = Run(fn, retry=AT_ONCE)
    assert run.of([1, 2]) == [1, 2]
    assert fn.attempts == {1: 4, 2: 4}
    assert (run.numbers["calls"], run.numbers["attempts"], run.numbers["retries"]) == (2, 8, 6)


def test_the_row_has_its_last_failure() -> None:
    """For a failed row, the result contains the last failure, the number of attempts, and whether it was transient."""
    fn = Scripted(*[ConnectionError(f"attempt {n}") for n in range(1, 9)])
    failure = failure_of(Run(fn, retry=Retry(attempts=3, initial=0, jitter=0)).of([1]))
    assert (failure.type, failure.message, failure.attempts, failure.retryable) == (
        "ConnectionError", "attempt 3", 3, True,
    )  # fmt: skip
    assert fn.attempts == {1: 3}


@pytest.mark.parametrize(
    "error", [TypeError("x"), KeyError("x"), AttributeError("x"), ValueError("x"), ZeroDivisionError()]
)
def test_a_programming_error_is_not_retried(error: Exception) -> None:
    """A programming error is not retried, because a retry would raise the same error."""
    fn = Scripted(error)
    assert failure_of(Run(fn, retry=AT_ONCE).of([1])).attempts == 1


def test_an_exception_group_is_retried_like_its_exceptions() -> None:
    group = type("BaseExceptionGroup", (Exception,), {"exceptions": (ConnectionRefusedError("no"),)})()
    fn = Scripted(group)
    assert Run(fn, retry=AT_ONCE).of([1]) == [1]
    failure = failure_of(Run(Scripted(group), retry=None).of([1]))
    assert (failure.type, failure.message) == ("ConnectionRefusedError", "no")


def test_retry_none_means_one_attempt() -> None:
    fn = Scripted(ConnectionError())
    failure = failure_of(Run(fn, retry=None).of([1]))
    assert (failure.attempts, failure.retryable) == (1, False)


def test_on_selects_the_retried_exceptions() -> None:
    """``on`` selects the retried exceptions by type or by a function. If this function raises, the row fails."""
    one_type = Retry(initial=0, jitter=0, on=ValueError)
    assert Run(Scripted(ValueError()), retry=one_type).of([1]) == [1]
    assert Run(Scripted(ValueError("a")), retry=Retry(initial=0, jitter=0, on=lambda e: "a" in str(e))).of([1]) == [1]
    by_type = Run(Scripted(ConnectionError()), retry=one_type).of([1])
    assert failure_of(by_type).type == "ConnectionError"
    broken = Run(Scripted(ValueError()), retry=Retry(initial=0, jitter=0, on=lambda e: e.status)).of([1])  # type: ignore[attr-defined]
    assert failure_of(broken).type == "AttributeError"


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit


class _Unreadable(Exception):
    @property
    def response(self) -> Any:
        raise KeyboardInterrupt


def _exits(_: Any) -> bool:
    sys.exit("asked")


@pytest.mark.parametrize(
    ("error", "asked", "reason"),
    [
        (ValueError(), {"on": _exits}, "SystemExit: asked"),
        (None, {"on_result": _exits}, "SystemExit: asked"),
        (_Unreadable(), {}, "KeyboardInterrupt: "),
        (_Unspeakable(), {}, "_Unspeakable: (its __str__ raised SystemExit)"),
    ],
    ids=["on", "on_result", "response", "str"],
)
@pytest.mark.parametrize("bulk", [False, True])
def test_an_exit_in_a_retry_policy_fails_the_row(
    error: Exception | None, asked: dict[str, Any], reason: str, bulk: bool
) -> None:
    """SystemExit in a retry policy fails the row.

    Regression: SystemExit ended the runner, and the row had no timeout.
    """

    async def one(row: int) -> int:
        if error is not None and row == 1:
            raise error
        return row

    async def several(rows: list[int]) -> list[Any]:
        return [error if error is not None and row == 1 else row for row in rows]

    run = Run(several if bulk else one, retry=Retry(initial=0, jitter=0, **asked), batch_size=3 if bulk else None)
    failed = run.of([0, 1, 2])[1]
    assert isinstance(failed, RowFailure)
    assert f"{failed.type.rpartition('.')[2]}: {failed.message}" == reason
    # The loop can still run the engine.
    assert Run(Scripted()).of([1]) == [1]


def test_an_exit_in_the_policy_of_a_resource_fails_the_rows() -> None:
    """SystemExit in a resource's retry policy fails the rows, and the process continues to use its loop."""

    def opener() -> Any:
        raise ValueError

    async def fn(row: int) -> int:
        return row

    failure = failure_of(Run(fn, resource=opener, retry=Retry(on=_exits)).of([1]))
    assert (failure.kind, failure.type) == ("resource", "SystemExit")


def test_on_result_rejects_answers() -> None:
    """If ``on_result`` rejects an answer, the row is retried.

    After the last attempt, the row fails with the rejection as its reason.
    """
    policy = Retry(attempts=3, initial=0, jitter=0, on_result=lambda answer: answer is None)
    assert Run(Scripted(None, None), retry=policy).of([7]) == [7]
    failure = failure_of(Run(Scripted(None, None, None), retry=policy).of([7]))
    assert (failure.kind, failure.attempts) == ("result", 3)


def test_the_back_off_grows_from_initial_to_max() -> None:
    """The back-off doubles from `initial` to `max` and does not delay other rows."""
    times: list[float] = []

    async def fn(row: int) -> int:
        if row:
            return row
        times.append(virtual_now())
        raise ConnectionError

    VirtualRun(fn, retry=Retry(attempts=5, initial=0.05, max=0.1, jitter=0)).of([0, 1])
    assert [after - before for before, after in itertools.pairwise(times)] == pytest.approx([0.05, 0.1, 0.1, 0.1])


def test_an_attempt_is_cancelled_at_its_timeout_and_retried() -> None:
    """An attempt is cancelled at its timeout and retried; the function receives CancelledError."""
    ends: list[str] = []

    async def fn(row: int, ctx: Any) -> int:
        if ctx.attempt > 1:
            return row
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        return -1

    run = VirtualRun(fn, timeout=0.1, retry=AT_ONCE)
    assert run.of([5]) == [5]
    assert run.seconds == pytest.approx(0.1, abs=0.05)
    assert ends == ["cancelled"]
    assert run.numbers["timeouts"] == 1


def test_total_timeout_ends_a_call_with_all_its_attempts() -> None:
    """The total timeout ends a call with its attempts and back-offs, regardless of the remaining attempts."""

    async def never(row: int) -> None:
        await asyncio.sleep(60)

    run = VirtualRun(never, timeout=1, total_timeout=2.6, retry=Retry(attempts=100, initial=0.01, jitter=0))
    failure = failure_of(run.of([1]))
    # The third attempt begins after 2 s. The engine compares the timeouts with the clock every 0.1 s.
    assert run.seconds == pytest.approx(2.6, abs=0.11)
    assert (failure.kind, failure.attempts) == ("timeout", 3)
    assert failure.type == "TimeoutError"


def test_a_back_off_beyond_total_timeout_fails_the_row_at_once() -> None:
    """If a back-off would exceed the total timeout, the row fails at once with its last failure."""
    policy = Retry(initial=30, max=30)
    run = VirtualRun(Scripted(ConnectionError("refused")), retry=policy, total_timeout=5)
    failure = failure_of(run.of([1]))
    assert run.seconds == 0
    assert (failure.type, failure.message, failure.attempts) == ("ConnectionError", "refused", 1)


def test_the_client_s_own_timeout_counts_as_a_timeout() -> None:
    """A timeout in the function, for example from asyncio.wait_for, counts as a timeout of the attempt."""

    async def fn(row: int) -> None:
        await asyncio.wait_for(asyncio.sleep(60), 0.01)

    run = Run(fn, retry=None)
    assert failure_of(run.of([1])).kind == "timeout"
    assert run.numbers["timeouts"] == 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout is new in Python 3.11")
def test_a_timeout_leaves_no_cancellation_in_the_runner() -> None:
    """After a timeout, no cancellation is pending in the runner's task, so asyncio.timeout works in the next call."""

    async def fn(row: int) -> int:
        if row == 0:
            await asyncio.sleep(60)
        async with asyncio.timeout(10):  # type: ignore[attr-defined]
            task = asyncio.current_task()
            assert task is not None
            await asyncio.sleep(0)
            return int(task.cancelling())  # type: ignore[attr-defined]

    answers = Run(fn, max_in_flight=1, timeout=0.05, retry=None).of([0, 1])
    assert answers[1] == 0


def test_an_answer_after_the_cancellation_is_a_timeout() -> None:
    """An answer after the cancellation is ignored, and the attempt counts as a timeout."""

    async def fn(row: int) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "fallback"
        return "never"

    run = Run(fn, timeout=0.05, retry=None)
    assert failure_of(run.of([1])).kind == "timeout"
    assert run.numbers["swallowed"] == 1


def test_a_call_that_ignores_its_cancellation_does_not_block_the_pool(caplog: pytest.LogCaptureFixture) -> None:
    """If a call ignores its cancellation, its row fails without a retry. A new runner replaces the blocked runner."""
    release: list[asyncio.Event] = []

    async def stubborn(row: int) -> int:
        if row == 0:
            release.append(asyncio.Event())
            while not release[0].is_set():
                try:
                    await release[0].wait()
                except asyncio.CancelledError:
                    continue
        return row

    run = Run(stubborn, max_in_flight=1, timeout=0.1, retry=AT_ONCE)
    with caplog.at_level(logging.ERROR):
        failure, *others = run.of([0, 1, 2])
    assert isinstance(failure, RowFailure)
    assert (failure.kind, failure.attempts) == ("timeout", 1)
    assert "stubborn" in failure.message
    assert "stubborn" in caplog.text
    assert others == [1, 2]
    assert (run.numbers["abandoned"], run.numbers["timeouts"]) == (1, 1)
    assert run.numbers["attempts"] == 3
    # When the abandoned call returns, no warning is logged.
    from spark_events.enrichment.engine.process import current_process

    loop = current_process().background.loop
    loop.call_soon_threadsafe(release[0].set)
    pool = run.engine._life.pool
    assert pool is not None
    eventually(lambda: not pool._uncancellable)


def test_max_in_flight_uncancellable_calls_fail_the_remaining_rows() -> None:
    """At most max_in_flight uncancellable calls may continue. At this limit, all remaining rows fail."""
    running = 0

    async def stubborn(row: int) -> None:
        nonlocal running
        if row == 0:
            raise ConnectionError("once")
        running += 1
        end = virtual_now() + 60
        while virtual_now() < end:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    # When the other calls are abandoned, the first row is between two attempts.
    run = VirtualRun(stubborn, max_in_flight=3, timeout=0.05, total_timeout=None, retry=Retry(initial=60, max=60))
    answers = run.of(range(1000))
    assert all(isinstance(answer, RowFailure) for answer in answers)
    assert running <= 8
    assert run.seconds < 6
    assert run.numbers["kinds"] == {"timeout": 1000}
    for answer, attempts in ((answers[0], 1), (answers[-1], 0)):
        assert (answer.type, answer.attempts) == ("TimeoutError", attempts)
        assert "given up: 4 calls of test_max_in_flight" in answer.message


def test_a_stop_waits_a_limited_time_for_cancelled_calls() -> None:
    """A stop waits for cancelled calls that clean up, but not for calls that ignore their cancellation."""
    begun: list[int] = []
    cleaned: list[int] = []

    async def fn(row: int) -> int:
        if row == 0:
            return row
        begun.append(row)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            cleaned.append(row)
        return row

    run = Run(fn, max_in_flight=4)
    answers = run.begin(chunks_of(range(4), 1))
    next(answers)
    eventually(lambda: len(begun) == 3)
    answers.close()
    assert sorted(cleaned) == [1, 2, 3]


def test_no_attempt_follows_the_end_of_the_run() -> None:
    """Whatever the function does with its cancellation, no attempt begins after the run has ended."""
    begun: list[int] = []

    async def fn(row: int, ctx: Any) -> int:
        if row == 0:
            return row
        begun.append(ctx.attempt)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("closed") from None
        return row

    answers = Run(fn, retry=AT_ONCE).begin(chunks_of(range(2), 1))
    next(answers)
    eventually(lambda: begun)
    answers.close()
    assert begun == [1]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://joe:p@ss@db.example:5432/users", "postgresql://db.example:5432/users"),
        ("postgresql://joe:p#s?s@db.example/users", "postgresql://db.example/users"),
        ("redis://:p?ss@db.example:6379/0?ssl=1", "redis://db.example:6379/0"),
        ("https://api.example?mail=a@b.example", "https://api.example"),
        ("https://api.example:8080?mail=a@b.example", "https://api.example:8080"),
        ("https://api.example/a@b", "https://api.example/a@b"),
    ],
)
def test_a_password_may_contain_reserved_characters(url: str, shown: str) -> None:
    """A password may contain @, # and ?. Regression: a part of the password was shown."""
    assert message_of(ValueError(f"cannot open {url} now")) == f"cannot open {shown} now"


def test_messages_have_no_secrets_of_urls() -> None:
    """Messages omit users, passwords, queries and fragments of URLs, and long messages are truncated."""
    message = "401 for url 'https://joe:pw@api.example/users/7?token=abc#x' " + "z" * 1000
    failure = failure_of(Run(Scripted(ValueError(message))).of([1]))
    assert "https://api.example/users/7'" in failure.message
    assert "abc" not in failure.message
    assert "pw" not in failure.message
    assert len(failure.message) < 520


def _others() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "options",
    [{}, {"job": JobLimits(200.0)}, {"batch_size": 3}, {"max_in_flight": 1}, {"key": "k"}, {"resource": True}],
    ids=str,
)
def test_a_call_that_cancels_every_task_does_not_end_the_run(options: dict[str, Any]) -> None:
    """If a call cancels all tasks, the calls in flight fail. The run continues with the remaining rows."""
    options = dict(options)
    opened: list[int] = []

    @contextlib.asynccontextmanager
    async def open_it() -> AsyncIterator[int]:
        opened.append(1)
        yield 1

    if options.pop("resource", False):
        options["resource"] = open_it

    async def one(row: int) -> int:
        if row % 50 == 20:
            for task in _others():
                task.cancel()
            return row
        await asyncio.sleep(0.002)
        return row

    async def several(rows: list[int]) -> list[int]:
        return [await one(row) for row in rows]

    fn = several if "batch_size" in options else one
    run = Run(fn, **{"max_in_flight": 10, "retry": AT_ONCE, **options})
    chunks = chunks_of(range(200), 10, key=lambda row: row % 7) if "key" in options else range(200)
    answers = run.of(chunks)
    failures = [answer for answer in answers if isinstance(answer, RowFailure)]
    assert [a for a in answers if not isinstance(a, RowFailure)] == [
        row for row, a in enumerate(answers) if not isinstance(a, RowFailure)
    ]
    assert {failure.type.rpartition(".")[2] for failure in failures} <= {"CancelledError", "SkippedError"}
    cancelled = [failure for failure in failures if failure.type.endswith("CancelledError")]
    assert all("cancelled by the function itself, or by other code" in failure.message for failure in cancelled)
    assert len(cancelled) <= 4 * 10 * options.get("batch_size", 1)
    assert len(opened) == ("resource" in options)
    # The engine can still run in this process.
    assert Run(one).of([1, 2]) == [1, 2]


@pytest.mark.timeout(30)
def test_a_cancellation_between_two_attempts_fails_the_row() -> None:

    async def fn(row: int) -> int:
        if row == 1:
            raise ConnectionError
        await asyncio.sleep(0.05)
        for task in _others():
            task.cancel()
        return row

    first, second = Run(fn, retry=Retry(initial=60, max=60, jitter=0), max_in_flight=2).of([1, 2])
    assert second == 2
    assert (first.type, first.attempts) == ("asyncio.exceptions.CancelledError", 1)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("step", ["returns", "raises", "swallows", "awaits"])
def test_a_call_that_cancels_itself_fails_only_its_row(step: str) -> None:

    async def fn(row: int) -> int:
        if row == 3:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if step == "raises":
                raise ValueError("3")
            if step == "awaits":
                await asyncio.sleep(0)
            if step == "swallows":
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
        await asyncio.sleep(0)
        return row

    async def at_once(row: int) -> int:
        if row != 3:
            return await fn(row)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if step == "raises":
            raise ValueError("3")
        return row

    for function in (fn, at_once) if step in ("returns", "raises") else (fn,):
        answers = Run(function, max_in_flight=1, retry=AT_ONCE).of(range(8))
        failed = answers.pop(3)
        assert answers == [0, 1, 2, 4, 5, 6, 7]
        if step == "swallows":
            assert failed == 3
        else:
            kind = "ValueError" if step == "raises" else "asyncio.exceptions.CancelledError"
            assert (failed.type, failed.attempts) == (kind, 1)
            assert failed.message


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Task.cancelling is of Python 3.11")
def test_a_call_leaves_no_cancellation_in_the_runner() -> None:
    """After a call, no cancellation is pending in the runner's task, so a task group works in the next call."""

    async def fn(row: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        before: int = task.cancelling()  # type: ignore[attr-defined]
        if row == 1:
            for _ in range(3):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
        return before

    assert Run(fn, max_in_flight=1).of(range(4)) == [0, 0, 0, 0]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout is of Python 3.11")
def test_a_call_may_handle_its_own_timeouts() -> None:
    """A function may use its own timeouts, which cancel the runner's task and revoke the cancellation."""

    async def fn(row: int) -> int:
        try:
            async with asyncio.timeout(0.001):  # type: ignore[attr-defined]
                await asyncio.sleep(10)
        except TimeoutError:
            task = asyncio.current_task()
            assert task is not None
            return row + int(task.cancelling())  # type: ignore[attr-defined]
        raise AssertionError

    assert Run(fn, max_in_flight=2).of(range(20)) == list(range(20))
