"""Reporters that do what bad code does, by kind; found by name, in whatever process they are to run."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import os
import random
import threading
import time
from collections.abc import Generator, Sequence
from typing import Any

from spark_events import Event, PermanentError, Reporter, ThrottledError

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
    "leaks memory": Kind(LeaksMemory),
    "leaks threads": Kind(LeaksThreads),
    "leaks descriptors": Kind(LeaksDescriptors),
    "slow": Kind(Slow),
    "returns garbage": Kind(ReturnsGarbage),
    "dies in open": Kind(DiesInOpen),
    "dies in close": Kind(DiesInClose),
    "blocks in open": Kind(BlocksInOpen),
    "blocks in close": Kind(BlocksInClose),
    "spins, thread": Kind(Spins),
    "spins, process": Kind(Spins, "process"),
    "holds the lock, process": Kind(HoldsTheLock, "process"),
    "os._exit, process": Kind(Exits, "process"),
    "segfaults, process": Kind(Segfaults, "process"),
}
