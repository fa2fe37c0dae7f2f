"""Reporters that do what bad code does, by kind; found by name, in whatever process they are to run."""

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
from spark_events.pipeline import Pipeline, build
from spark_events.reporters.file import FileConfig, FileReporter

#: Lets go what blocks in a thread, at the end of a test.
RELEASE = threading.Event()
_LONG = 3600.0
_CHUNK = 64 * 1024


class BlocksPlain(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        RELEASE.wait()


class BlocksAsync(Reporter):
    """As people do: a blocking call in an ``async def``."""

    async def report(self, events: Sequence[Event]) -> None:
        time.sleep(_LONG)  # noqa: ASYNC251


class AwaitsForEver(Reporter):
    async def report(self, events: Sequence[Event]) -> None:
        await asyncio.Event().wait()


class RaisesAlways(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        raise OSError("connection refused")


class NoException(BaseException):
    """Some libraries have one, to pass through ``except Exception``."""

    def __str__(self) -> str:
        return "odd"


class Untold(PermanentError):
    """An error that says nothing of itself."""

    def __str__(self) -> str:
        raise ValueError("nothing to tell")


class RaisesOddThings(Reporter):
    """Errors that are no Exception, and errors that cannot be told."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self._calls = 0

    def report(self, events: Sequence[Event]) -> None:
        self._calls += 1
        raise (NoException(), Untold(), SystemExit(1), OSError("\udc80" * 100))[self._calls % 4]


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
    kept: list[bytearray] = []  # noqa: RUF012 (it leaks, also beyond its instances)

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
    """Keeps the processor busy; the interpreter's lock it gives up only when it is asked to, every few milliseconds."""

    def report(self, events: Sequence[Event]) -> None:
        while not RELEASE.is_set():
            pass


class HoldsTheLock(Reporter):
    """A library's call that never gives the interpreter's lock back: no Python runs in this process any more."""

    def report(self, events: Sequence[Event]) -> None:
        ctypes.PyDLL(None).sleep(int(_LONG))


class Exits(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        os._exit(3)


class Segfaults(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        ctypes.string_at(0)


class StartsAProgram(FileReporter):
    """One that reads what it is given, as ``mail`` or ``ssh`` do."""

    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        read = subprocess.run(["cat"], capture_output=True, check=True).stdout
        assert read == b"", read
        return super().report(events)


class EndsAProgram(FileReporter):
    """One that runs until it is told to end, and a process that it forks, as multiprocessing does."""

    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        with subprocess.Popen(["sleep", "60"]) as started:
            started.terminate()
            assert started.wait() == -signal.SIGTERM
        runs, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(told, b"!")
            time.sleep(60)
            os._exit(0)
        os.read(runs, 1)
        os.close(runs)
        os.close(told)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        return super().report(events)


class LeavesAChild(FileReporter):
    """A process that lives on; its number is beside the file."""

    def open(self) -> None:
        super().open()
        child = os.fork()
        if child == 0:
            signal.pause()
        Path(f"{self._path}.child").write_text(str(child), encoding="ascii")


class ComesBackTwice(FileReporter):
    """From every call, once as a child."""

    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        return super().report(events) if os.fork() else None


class Obedient(FileReporter):
    """Writes events to a file, but first does, once an event, what the attribute ``do`` of each says."""

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
    """Its constructor waits for a file beside its own."""

    def __init__(self, config: FileConfig) -> None:
        while not Path(config.path).with_suffix(".go").exists():
            time.sleep(0.01)
        super().__init__(config)


class ModestObedient(Obedient):
    """Takes two events a call, and no more."""

    max_batch_size = 2

    async def report(self, events: Sequence[Event]) -> None:
        assert len(events) <= self.max_batch_size
        await super().report(events)


async def _raise(error: BaseException) -> None:
    raise error


async def _call(function: Callable[[], object]) -> None:
    function()


def _answer_nonsense() -> None:
    """Its pipe is the way back. Then it waits for what will come of it."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if fd > 2 and stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, b"\xff\xff\xff\xff nonsense")
    time.sleep(_LONG)


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
    "start a child": lambda event: _call(lambda: _start_a_child(event)),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A way to misbehave: the reporter, and where it runs."""

    reporter: type[Reporter]
    isolation: str = "thread"

    def settings(self, name: str) -> dict[str, str]:
        """What configures it as the reporter of that name."""
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


def beside(kinds: Sequence[str], path: Path, **config: str) -> Pipeline:
    """A pipeline with a ``file`` reporter, named good, beside one of each kind; ``config`` is that of the bad ones."""
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
    """Lets go every thread that blocks, and gives back what was leaked."""
    RELEASE.set()
    LeaksMemory.kept.clear()
    while LeaksDescriptors.kept:
        os.close(LeaksDescriptors.kept.pop())
