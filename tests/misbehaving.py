"""Faulty reporters of several kinds, which any process can import by name."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import logging
import os
import random
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from pathlib import Path
from typing import Any

from spark_events import Event, PermanentError, Reporter, ThrottledError
from spark_events.config import Settings
from spark_events.dispatch.pipeline import Pipeline, build
from spark_events.reporters.file import FileConfig, FileReporter

#: Event that releases all blocked threads after a test.
RELEASE = threading.Event()
_LONG = 3600.0
_CHUNK = 64 * 1024


class BlocksPlain(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        RELEASE.wait()


class BlocksAsync(Reporter):
    """Reporter with a blocking call in an ``async def``, a common mistake."""

    async def report(self, events: Sequence[Event]) -> None:
        time.sleep(_LONG)  # noqa: ASYNC251


class AwaitsForEver(Reporter):
    async def report(self, events: Sequence[Event]) -> None:
        await asyncio.Event().wait()


class RaisesAlways(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        raise OSError("connection refused")


class Refuses(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        raise PermanentError("refused")


class NoException(BaseException):
    """Exception that ``except Exception`` does not catch; some libraries raise such exceptions."""

    def __str__(self) -> str:
        return "odd"


class UnprintableError(PermanentError):
    """Error whose ``str`` raises an exception."""

    def __str__(self) -> str:
        raise ValueError("nothing to tell")


class RaisesOddThings(Reporter):
    """Reporter whose errors do not derive from Exception, or cannot be formatted or encoded."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self._calls = 0

    def report(self, events: Sequence[Event]) -> None:
        self._calls += 1
        raise (NoException(), UnprintableError(), SystemExit(1), OSError("\udc80" * 100))[self._calls % 4]


class SwallowsItsCancellation(Reporter):
    async def report(self, events: Sequence[Event]) -> None:
        while not RELEASE.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)


class RaisesAtRandom(Reporter):
    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self._random = random.Random(41)

    def report(self, events: Sequence[Event]) -> None:
        error = self._random.choice([None, OSError("reset"), PermanentError("bad"), ThrottledError("slow", 0.02)])
        if error is not None:
            raise error


class LeaksMemory(Reporter):
    kept: list[bytearray] = []  # noqa: RUF012 (the leak outlives each instance)

    def report(self, events: Sequence[Event]) -> None:
        self.kept.append(bytearray(_CHUNK))


class LeaksThreads(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        threading.Thread(target=RELEASE.wait, daemon=True).start()


class LeaksDescriptors(Reporter):
    kept: list[int] = []  # noqa: RUF012

    def report(self, events: Sequence[Event]) -> None:
        self.kept.append(os.open(os.devnull, os.O_RDONLY))


class Slow(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        time.sleep(0.05)


class _Nonsense:
    def __await__(self) -> Generator[Any, None, None]:
        yield "no future"


class ReturnsGarbage(Reporter):
    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self._calls = 0

    def report(self, events: Sequence[Event]) -> Any:
        self._calls += 1
        return [42, "yes", {"ok": False}, _Nonsense(), object()][self._calls % 5]


class DiesInOpen(Reporter):
    def open(self) -> None:
        raise SystemExit("no licence")

    def report(self, events: Sequence[Event]) -> None:
        raise AssertionError("never opened")


class DiesInClose(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        return None

    def close(self) -> None:
        raise SystemExit("died")


class BlocksInOpen(Reporter):
    def open(self) -> None:
        RELEASE.wait()

    def report(self, events: Sequence[Event]) -> None:
        raise AssertionError("never opened")


class BlocksInClose(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        return None

    def close(self) -> None:
        RELEASE.wait()


class Spins(Reporter):
    """Reporter with a busy loop, which releases the GIL only on request, every few milliseconds."""

    def report(self, events: Sequence[Event]) -> None:
        while not RELEASE.is_set():
            pass


class HoldsTheLock(Reporter):
    """Reporter with a C library call that never releases the GIL, so no other Python code runs in its process."""

    def report(self, events: Sequence[Event]) -> None:
        ctypes.PyDLL(None).sleep(int(_LONG))


class Exits(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        os._exit(3)


class Segfaults(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        ctypes.string_at(0)


class StartsAProgram(FileReporter):
    """Reporter that runs a program that reads its standard input, like ``mail`` or ``ssh``."""

    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        read = subprocess.run(["cat"], capture_output=True, check=True).stdout
        assert read == b"", read
        return super().report(events)


class EndsAProgram(FileReporter):
    """Reporter that starts a program, forks a process, and terminates both by signal, as multiprocessing does."""

    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        with subprocess.Popen(["sleep", "60"]) as started:
            started.terminate()
            assert started.wait() == -signal.SIGTERM
        runs, ready = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(ready, b"!")
            time.sleep(60)
            os._exit(0)
        os.read(runs, 1)
        os.close(runs)
        os.close(ready)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        return super().report(events)


class LeavesAChild(FileReporter):
    """Reporter that leaves its child process running, and writes the child's id to a file next to its own file."""

    def open(self) -> None:
        super().open()
        child = os.fork()
        if child == 0:
            signal.pause()
        Path(f"{self._path}.child").write_text(str(child), encoding="ascii")


class Obedient(FileReporter):
    """Reporter that runs the command in the attribute ``do`` of each event once, and writes the events to a file."""

    def __init__(self, config: FileConfig) -> None:
        super().__init__(config)
        self._orders = Path(f"{config.path}.orders")

    async def report(self, events: Sequence[Event]) -> None:
        for event in events:
            order = str(event.attributes.get("do", ""))
            done = self._orders.read_text().split() if self._orders.exists() else []
            if order and event.event_id not in done:
                self._orders.write_text(" ".join([*done, event.event_id]))
                await ORDERS[order](event)
        super().report(events)


class MadeLater(FileReporter):
    """Reporter whose constructor waits for a file with the suffix ``.go`` next to the reporter's file."""

    def __init__(self, config: FileConfig) -> None:
        while not Path(config.path).with_suffix(".go").exists():
            time.sleep(0.01)
        super().__init__(config)


class ModestObedient(Obedient):
    """Reporter that accepts at most two events per call."""

    max_batch_size = 2

    async def report(self, events: Sequence[Event]) -> None:
        assert len(events) <= self.max_batch_size
        await super().report(events)


async def _raise(error: BaseException) -> None:
    raise error


async def _call(function: Callable[[], object]) -> None:
    function()


def _answer_nonsense() -> None:
    """Write invalid bytes to the sidecar's socket, and wait for the sidecar's reaction."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if fd > 2 and stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, b"\xff\xff\xff\xff nonsense")
    time.sleep(_LONG)


def _log_endlessly() -> None:
    def run() -> None:
        while True:
            logging.getLogger("some.library").error("no end")

    threading.Thread(target=run, daemon=True).start()


def _start_a_child(event: Event) -> None:
    sleeper = subprocess.Popen(["sleep", "3600"], stdout=subprocess.DEVNULL)
    Path(str(event.attributes["path"])).write_text(str(sleeper.pid))


ORDERS: dict[str, Callable[[Event], Coroutine[Any, Any, None]]] = {
    "permanent": lambda _: _raise(PermanentError("no such table")),
    "throttled": lambda _: _raise(ThrottledError("slow down", 0.3)),
    "transient": lambda _: _raise(OSError("connection reset")),
    "sys.exit": lambda _: _raise(SystemExit(7)),
    "cancel": lambda _: _raise(asyncio.CancelledError()),
    "exit": lambda _: _call(lambda: os._exit(3)),
    "segfault": lambda _: _call(lambda: ctypes.string_at(0)),
    "kill": lambda _: _call(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "await": lambda _: asyncio.sleep(3600),
    "block": lambda _: _call(lambda: time.sleep(3600)),
    "hold the lock": lambda _: _call(lambda: ctypes.PyDLL(None).sleep(3600)),
    "stop": lambda _: _call(lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    "answer nonsense": lambda _: _call(_answer_nonsense),
    "print": lambda _: _call(lambda: (print("printed", flush=True), os.write(1, b"\xff\xff\xff\xff"))),
    "log": lambda event: _call(lambda: logging.getLogger("some.library").error("%s is odd", event.body)),
    "log endlessly": lambda _: _call(_log_endlessly),
    "start a child": lambda event: _call(lambda: _start_a_child(event)),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """Kind of fault: the class of the reporter and its isolation."""

    reporter: type[Reporter]
    isolation: str = "thread"

    def settings(self, name: str) -> dict[str, str]:
        """Return the settings of this reporter under the given name."""
        prefix = f"events.reporter.{name}"
        return {
            f"{prefix}.type": f"{self.reporter.__module__}:{self.reporter.__qualname__}",
            f"{prefix}.isolation": self.isolation,
        }


KINDS = {
    "blocks (def)": Kind(BlocksPlain),
    "blocks (async def)": Kind(BlocksAsync),
    "awaits for ever": Kind(AwaitsForEver),
    "raises always": Kind(RaisesAlways),
    "raises at random": Kind(RaisesAtRandom),
    "raises odd things": Kind(RaisesOddThings),
    "raises odd things in a process": Kind(RaisesOddThings, "process"),
    "swallows its cancellation": Kind(SwallowsItsCancellation),
    "leaks memory": Kind(LeaksMemory),
    "leaks threads": Kind(LeaksThreads),
    "leaks descriptors": Kind(LeaksDescriptors),
    "slow": Kind(Slow),
    "returns garbage": Kind(ReturnsGarbage),
    "dies in open": Kind(DiesInOpen),
    "dies in close": Kind(DiesInClose),
    "blocks in open": Kind(BlocksInOpen),
    "blocks in close": Kind(BlocksInClose),
    "spins in a thread": Kind(Spins),
    "spins in a process": Kind(Spins, "process"),
    "holds the lock in a process": Kind(HoldsTheLock, "process"),
    "exits in a process": Kind(Exits, "process"),
    "segfaults in a process": Kind(Segfaults, "process"),
}


def pipeline_with(kinds: Sequence[str], path: Path, **config: str) -> Pipeline:
    """Build a pipeline with a ``file`` reporter ``good`` and one faulty reporter of each kind, each with ``config``."""
    settings = {
        "events.dispatcher.type": "async-queued",
        "events.reporter.good.type": "file",
        "events.reporter.good.path": str(path),
    }
    for number, kind in enumerate(kinds):
        settings |= KINDS[kind].settings(f"bad{number}")
        settings |= {f"events.reporter.bad{number}.{key}": value for key, value in config.items()}
    return build(Settings.of(settings))


def release() -> None:
    """Release all blocked threads, and free leaked resources."""
    RELEASE.set()
    LeaksMemory.kept.clear()
    while LeaksDescriptors.kept:
        os.close(LeaksDescriptors.kept.pop())
