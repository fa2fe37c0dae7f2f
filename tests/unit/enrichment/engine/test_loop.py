"""Tests of a worker process's event loop, which a call cannot stop for other calls."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from enrich_engine import Run

from spark_events.enrichment.engine.loop import BackgroundLoop

SECONDS = 10.0


async def _stop() -> None:
    asyncio.get_running_loop().stop()


async def _leave_one_that_exits() -> None:
    asyncio.get_running_loop().call_soon(sys.exit)


async def _answer() -> int:
    await asyncio.sleep(0)
    return 7


@pytest.mark.usefixtures("each_loop")
@pytest.mark.parametrize("end", [_stop, _leave_one_that_exits])
def test_a_loop_that_a_call_stops_continues(end: Callable[[], Coroutine[Any, Any, None]]) -> None:
    background = BackgroundLoop()
    background.submit(end()).result(SECONDS)
    assert background.submit(_answer()).result(SECONDS) == 7
    background.close(SECONDS)
    assert background.loop.is_closed()


@pytest.mark.usefixtures("each_loop")
def test_a_function_that_stops_the_loop_loses_no_answer() -> None:
    """If a function stops the loop, no answer is lost: the loop continues, and timeouts still apply."""

    async def fn(row: int) -> int:
        if row % 3 == 0:
            asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return row

    assert Run(fn, max_in_flight=4, timeout=2, total_timeout=4).of(range(20)) == list(range(20))


# Code of a process that exits only when its standard input closes: the C library waits after the interpreter's exit.
_ENDS_SLOWLY = """
import ctypes
from spark_events.enrichment.engine.loop import BackgroundLoop

libc = ctypes.CDLL(None)
libc.on_exit(libc.getchar, None)
background = BackgroundLoop()
background.loop.call_soon_threadsafe(background.loop.call_later, 1.0, print, "late")
print(background.kind, flush=True)
"""


def test_the_loop_s_thread_ends_before_its_interpreter() -> None:
    """The loop's thread exits before the interpreter. Otherwise, the process could crash with SIGSEGV."""
    with subprocess.Popen(
        [sys.executable, "-c", _ENDS_SLOWLY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "uvloop\n"
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.stdin.close()
        assert process.wait(SECONDS) == 0


_LEAVES_TASKS = """
import asyncio, sys
if sys.argv[1] == "asyncio":
    sys.modules["uvloop"] = None
from spark_events.enrichment.engine.loop import BackgroundLoop

async def fails_late():
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.01)
        print("ended", flush=True)
        raise ValueError("of no interest any more")

async def stays():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("stays", flush=True)

background = BackgroundLoop()
background.submit(fails_late())
if sys.argv[2] == "stays":
    background.submit(stays())
background.submit(asyncio.sleep(0)).result()
"""


@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
def test_remaining_tasks_are_cancelled_without_warnings(kind: str) -> None:
    """Remaining tasks, such as internal listeners of settled batches, are cancelled without warnings."""
    done = subprocess.run(
        [sys.executable, "-c", _LEAVES_TASKS, kind, ""], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
def test_an_uncancellable_task_does_not_delay_the_end(kind: str) -> None:
    """If a user's task cannot be cancelled, the loop stops without delay after all other tasks have ended."""
    done = subprocess.run(
        [sys.executable, "-c", _LEAVES_TASKS, kind, "stays"], capture_output=True, text=True, timeout=60, check=True
    )
    assert sorted(done.stdout.splitlines()) == ["ended", "stays"]
