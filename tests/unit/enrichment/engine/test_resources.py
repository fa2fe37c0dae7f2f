"""Tests of resources: opened once per process, shared by its tasks, and closed at the process's exit."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from typing import Any

import pytest
from enrich_engine import Run, chunks_of, definition

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.process import current_process
from spark_events.enrichment.engine.resources import Resources, ResourceTuning
from spark_events.enrichment.settings import Cache, CircuitBreaker, Retry

AT_ONCE = Retry(initial=0, jitter=0)


class Opener:
    """Opener that counts opened and closed resources and records the tasks that opened or closed them."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.opened = 0
        self.closed = 0

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[str]:
        self.opened += 1
        if self.errors:
            raise self.errors.pop(0)
        task = asyncio.current_task()
        yield f"resource {self.opened}"
        assert asyncio.current_task() is task
        self.closed += 1


async def use(row: int, ctx: Any) -> str:
    return str(ctx.resource)


def test_a_resource_is_opened_once_for_many_tasks() -> None:
    """All tasks of a definition share one resource. Another definition has its own resource."""
    opener = Opener()
    made = definition()
    for _ in range(3):
        assert Run(use, made=definition(resource=made.resource), resource=opener).of([1, 2]) == ["resource 1"] * 2
    assert (opener.opened, opener.closed) == (1, 0)
    assert Run(use, resource=opener).of([1]) == ["resource 2"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are new in Python 3.11")
def test_an_exception_group_of_temporary_errors_is_retried() -> None:
    """Opening is retried after an exception group like a call. Regression: a group was a permanent error."""
    group = ExceptionGroup  # type: ignore[name-defined,unused-ignore]  # noqa: F821
    opener = Opener(group("tasks", [ConnectionResetError("down")]))
    assert Run(use, resource=opener, retry=AT_ONCE).of([1]) == ["resource 2"]
    wrong = Opener(group("tasks", [ConnectionResetError("down"), KeyError("name")]))
    (failure,) = Run(use, resource=wrong, retry=AT_ONCE).of([1])
    assert (failure.type, wrong.opened) == ("KeyError", 1)


def test_a_resource_that_fails_to_open_fails_every_row_once() -> None:
    """If a resource fails to open, every row fails without a call. The message contains the resource and the reason."""
    called: list[int] = []

    async def fn(row: int) -> None:
        called.append(row)

    answers = Run(fn, resource=Opener(PermissionError("no such user"))).of(range(300))
    assert called == []
    assert {(answer.kind, answer.type, answer.attempts) for answer in answers} == {("resource", "PermissionError", 0)}
    # Regression: the location was the line of contextlib.asynccontextmanager.
    assert f"Opener.__call__ ({__file__}:" in answers[0].message
    assert "cannot be opened: no such user" in answers[0].message


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_any_exception_of_the_opener_is_reported(error: BaseException) -> None:
    """Any exception that the opener raises is reported, even StopIteration, which a future cannot contain."""

    def opener() -> Any:
        raise error

    (failure,) = Run(use, resource=opener, timeout=None, total_timeout=None).of([1])
    assert (failure.kind, failure.type) == ("resource", "RuntimeError")
    assert failure.message.endswith(f"cannot be opened: {error!r}")
    assert failure.where.endswith("opener")


def test_a_failure_after_several_attempts_has_the_duration_of_opening() -> None:
    """The failure contains the duration of the attempts to open the resource, but counts no attempt of the row."""
    (failure,) = Run(use, resource=Opener(*[ConnectionRefusedError("x")] * 4), retry=Retry(initial=0.05)).of([1])
    assert (failure.attempts, failure.elapsed) == (0, 0.0)
    assert re.search(r"cannot be opened \(4 attempts in (0\.[3-9]|[1-9][\d.]+) s\): x", failure.message)


def test_a_resource_without_any_answer_is_opened_again() -> None:
    """If a resource has produced no answer, the next task opens it again, because its connection may be broken."""
    opener, made = Opener(), definition()

    async def breaks(row: int, ctx: Any) -> str:
        if ctx.resource == "resource 1":
            raise ConnectionResetError
        return str(ctx.resource)

    failures = Run(breaks, resource=opener, made=made, retry=AT_ONCE).of([1, 2])
    assert {failure.type for failure in failures} == {"ConnectionResetError"}
    assert Run(breaks, resource=opener, made=made, retry=AT_ONCE).of([1, 2]) == ["resource 2"] * 2


@pytest.mark.parametrize("hangs", ["until cancelled", "longer"])
def test_a_resource_whose_calls_the_breaker_cancels_is_opened_again(hangs: str) -> None:
    """Calls that the circuit breaker cancels have no answer, so the next task opens the resource again.

    Regression: such calls counted as answered, and later tasks used the broken resource again.
    """
    opener, made = Opener(), definition()

    async def breaks(row: int, ctx: Any) -> str:
        if ctx.resource != "resource 1":
            return str(ctx.resource)
        if row:
            raise ConnectionResetError
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if hangs == "longer":
                await asyncio.sleep(1.5)
            raise
        raise AssertionError

    breaker = CircuitBreaker(failures=2, give_up_after=0.05)
    failures = Run(breaks, resource=opener, made=made, circuit_breaker=breaker, retry=AT_ONCE).of([0, 1])
    assert {failure.kind for failure in failures} <= {"circuit-open", "error"}
    assert failures[0].kind == "circuit-open"
    made = definition(resource=made.resource)
    assert Run(breaks, resource=opener, made=made, timeout=1, retry=None).of([0, 1]) == ["resource 2"] * 2


def test_opening_is_retried_like_calls() -> None:
    """Opening a resource is retried like a call, so the restart of a server does not fail the task."""
    opener = Opener(ConnectionRefusedError(), ConnectionRefusedError())
    assert Run(use, resource=opener, retry=AT_ONCE).of([1]) == ["resource 3"]


def test_opening_has_a_timeout() -> None:

    @contextlib.asynccontextmanager
    async def hangs() -> AsyncIterator[None]:
        await asyncio.sleep(3600)
        yield

    (failure,) = Run(use, resource=hangs, timeout=0.05, retry=None).of([1])
    assert isinstance(failure, RowFailure)
    assert "not open within 0.05 s" in failure.message


@pytest.mark.parametrize("opener", [lambda: "a string", lambda: asyncio.sleep(0), object])
def test_an_opener_without_a_context_manager_is_rejected_by_name(opener: Any) -> None:
    """If an opener does not return a context manager, it is rejected. The message contains the returned type."""
    (failure,) = Run(use, resource=opener).of([1])
    assert failure.type == "TypeError"
    assert "resource must return an async context manager, not" in failure.message


def test_an_idle_resource_is_closed_before_spark_kills_the_worker() -> None:
    """An idle resource is closed before Spark kills the worker, and opened again at its next use."""

    async def scenario() -> tuple[int, int]:
        opener = Opener()
        resources = Resources(ResourceTuning(idle_seconds=0.02))
        await resources.acquire("a", opener, 1)
        resources.release("a")
        holder = resources._holders["a"]
        await resources.acquire("a", opener, 1)
        resources.release("a")
        await holder.task
        await resources.acquire("a", opener, 1)
        return opener.opened, opener.closed

    assert current_process().background.submit(scenario()).result(10) == (2, 1)


def test_a_close_that_hangs_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """If a resource does not close in time, the log names the resource and what happens to it."""

    @contextlib.asynccontextmanager
    async def sticky() -> AsyncIterator[None]:
        yield
        await asyncio.sleep(3600)

    async def scenario() -> None:
        resources = Resources(ResourceTuning(closing_seconds=0.02))
        for key, opener in (("a", Opener()), ("b", sticky)):
            await resources.acquire(key, opener, 1)
            resources.release(key)
        await resources.close_unused()

    current_process().background.submit(scenario()).result(10)
    (message,) = [one for one in caplog.messages if one.startswith("closing did not end")]
    assert re.match(
        r"closing did not end within 0\.02 s: resource [\w.<>]+sticky \(.*\); the process no longer waits", message
    )


def test_the_number_of_idle_resources_is_limited() -> None:
    """The number of idle resources is limited: each closure with a new value is a new definition."""

    async def scenario() -> int:
        opener = Opener()
        resources = Resources()
        for number in range(40):
            await resources.acquire(str(number), opener, 1)
            resources.release(str(number))
        kept = len(resources._holders)
        await resources.close_unused()
        assert opener.closed == 40
        return kept

    assert current_process().background.submit(scenario()).result(10) == 16


def test_alternating_enrichments_keep_their_resources() -> None:
    """Twelve enrichments that alternate keep their resources and caches between uses."""
    openers = [Opener() for _ in range(12)]
    made = [definition() for _ in openers]
    cache = Cache(max_entries=10, ttl=60)
    for batch in range(3):
        for opener, one in zip(openers, made, strict=True):
            run = Run(use, made=one, resource=opener, cache=cache)
            assert run.of(chunks_of([1], request=lambda row: row)) == ["resource 1"]
            assert run.numbers["cached"] == (batch > 0)
    assert {(opener.opened, opener.closed) for opener in openers} == {(1, 0)}


def test_a_resource_is_closed_at_the_end_of_the_process() -> None:
    """At process exit, the loop cancels the task that holds a resource, which closes the resource."""
    program = """
        import contextlib, sys
        sys.path.insert(0, "tests")
        from enrich_engine import Run

        @contextlib.asynccontextmanager
        async def resource():
            print("open")
            try:
                yield 5
            finally:
                print("closed")

        async def fn(row, ctx):
            return ctx.resource

        print(Run(fn, resource=resource).of([1]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["open", "[5]", "closed"]
    assert done.stderr == ""


@pytest.mark.timeout(30)
def test_a_resource_whose_task_was_cancelled_is_opened_again() -> None:
    """If the task of a resource was cancelled, this task closes the resource, and the next task opens it again."""
    opener = Opener()
    made = definition()

    async def cancels(row: int, ctx: Any) -> str:
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        return str(ctx.resource)

    assert Run(cancels, made=made, resource=opener, max_in_flight=1).of([1]) == ["resource 1"]
    for _ in range(2):
        assert Run(use, made=definition(resource=made.resource), resource=opener).of([1]) == ["resource 2"]
