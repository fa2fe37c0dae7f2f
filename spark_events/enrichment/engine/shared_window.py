"""Window that the worker processes of one executor share.

Each task slot of an executor has its own Python process. Separate windows would hide each other's effect on the
destination (:mod:`spark_events.enrichment.engine.window`). Therefore the processes keep one :class:`Window` in a file
of the executor, and each process uses a share of its size:

    process 1 ── answers, rejections ──▶ ┌──────────────┐
    process 2 ── answers, rejections ──▶ │ file: Window │ ── round, share of the size ──▶ each process
    process 3 ── answers, rejections ──▶ └──────────────┘

After a change of the window, a round begins as soon as every process uses its new share. The file begins with a
version, so that a process notices changes by reading a few bytes. While calls are in flight, no process waits for the
lock of the file: if another process holds the lock, the process keeps its measurements and tries again with its next
report. A process can be killed while it writes: then the checksum is wrong, and the window restarts at its first size.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import logging
import math
import os
import pickle
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from spark_events.enrichment.engine.deadlines import HEARTBEAT_SECONDS
from spark_events.enrichment.engine.window import LEAST_CALLS, Window, are_instant
from spark_events.enrichment.settings import Auto

__all__ = ["SharedWindow"]

_LOG = logging.getLogger(__name__)
#: Files that this process could not use; each is logged once.
_UNUSABLE: set[str] = set()

#: Start of the file: version, and length and checksum of the pickled state.
_HEADER, _VERSION = struct.Struct("<QII"), struct.Struct("<Q")
#: A process checks the version after 2 answers, or after 1/8 of its unreported answers if that is more.
_CHECK_AFTER, _CHECK_SHARE = 2, 8
#: Number of attempts to lock the file when a run ends. A process holds the lock for less than a millisecond.
_ATTEMPTS = 1000
#: Seconds without a report after which a process no longer counts.
_FORGOTTEN = 5.0
#: If something else limits the calls of a process, its share is this multiple of its calls in flight, plus one.
_SPARE = 1.25
_numbers = itertools.count()


@dataclasses.dataclass(slots=True)
class _Member:
    """A process that shares the window.

    Attributes:
        wanted: the number of calls in flight that the process can use; infinite: any number.
        round: the latest round whose share the process uses.
        seen: the time of its latest report.
    """

    wanted: float = math.inf
    round: int = -1
    seen: float = 0.0


@dataclasses.dataclass(slots=True)
class _State:
    """Content of the file.

    Attributes:
        window: the executor's window, with the measurements of the current round.
        version: a number that changes when other processes must read the file.
        round: the number of the latest change of the window.
        has_begun: whether every process uses its share of this round.
        members: the processes by name.
    """

    window: Window
    version: int
    round: int
    has_begun: bool = False
    members: dict[str, _Member] = dataclasses.field(default_factory=dict)

    def shares(self) -> dict[str, int]:
        """Divide the window. Processes that can use less than an equal part get less; the others share the rest."""
        left, shares = self.window.size, {}
        order = sorted(self.members, key=lambda name: (self.members[name].wanted, name))
        for number, name in enumerate(order):
            shares[name] = int(min(self.members[name].wanted, left // (len(order) - number)))
            left -= shares[name]
        return {name: max(1, share + left // len(order)) for name, share in shares.items()}

    def enter(self, name: str, wanted: float, least: int, now: float) -> _Member:
        """Add a process or update its report, and remove processes that no longer report."""
        total, members = self.window, self.members
        for other in [other for other, member in members.items() if now - member.seen > _FORGOTTEN]:
            del members[other]
        if not members:
            total.begin(now)
        member = members.setdefault(name, _Member())
        member.wanted, member.seen = wanted, now
        # Each process can always have one call in flight.
        total.least = max(least, len(members))
        total.is_idle |= sum(member.wanted for member in members.values()) < total.size
        return member


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o600)


class SharedWindow:
    """This process's share of the executor's window; has the methods and attributes of a :class:`Window`.

    If the file cannot be read, the share does not change. If the file cannot be written, for example because the disk
    is full, measurements are lost.

    Args:
        bounds: smallest, largest and first size of the executor's window.
        path: the file of the window; created if it does not exist.
        clock: monotonic time in seconds, the same in all processes of the executor.

    Raises:
        OSError: when the file cannot be opened or locked.
    """

    def __init__(self, bounds: Auto, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._bounds = bounds
        # The file is closed when this object is deleted.
        self._file = open(path, "r+b", buffering=0, opener=_opened)  # noqa: SIM115
        self._clock = clock
        self._name = f"{os.getpid()}.{next(_numbers)}"
        self.latencies: list[float] = []
        self.since, self.latency, self.size, self.need = math.inf, 0.0, bounds.initial, _CHECK_AFTER
        self.is_idle = self.is_instant = self.is_largest = False
        self._rejected, self._timed_out, self._wanted, self._awaits_leases = 0, False, math.inf, False
        #: The state that this process has read last, and this process's part of the calls of a round.
        self._state, self._part = _State(Window(bounds), -1, -1), 1
        #: Whether this process uses its share, and whether the share has changed without the pool's knowledge.
        self._uses_share = self._has_changed = False
        with contextlib.suppress(BlockingIOError):
            # Raise an error now if the file system does not support locks.
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @property
    def whole(self) -> int:
        """Size of the executor's window."""
        return self._state.window.size

    def begin(self, now: float) -> None:
        """Start using the share. If ``now`` is infinite, too many calls are in flight; another call follows."""
        self.latencies.clear()
        self.since, self.need = max(now, self._state.window.since), _CHECK_AFTER
        self._uses_share = now < math.inf
        if self._uses_share:
            self._has_changed |= self._exchange()

    def leave(self) -> None:
        """Give up the share, because the run has ended."""
        self._wanted, self.since = math.inf, math.inf
        for _ in range(_ATTEMPTS):
            if self._exchange(leaves=True):
                return

    def rejected(self, began: float) -> bool:
        """Count a call that the destination rejected because of an overload; return whether the share has changed."""
        if began < self.since:
            return False
        self._rejected += 1
        return self._exchange()

    def timed_out(self, began: float) -> bool:
        """Halve the window after a timeout, but only once for all calls in flight; return whether the share changed."""
        if began < self.since:
            return False
        self._timed_out = True
        return self._exchange()

    def beat(self, now: float, in_flight: float) -> bool:
        """Report at the heartbeat; return whether the share has changed.

        ``in_flight`` is infinite if the job's limits delay calls: leases, and thus the calls in flight, change often.
        """
        # Workers that wait, for example for `Retry-After`, make no calls, so only the calls in flight count.
        self._uses_share |= in_flight <= self.size
        self._wanted = _SPARE * in_flight + 1 if self.is_idle else math.inf
        self._awaits_leases, self.is_idle = self.is_idle and in_flight == math.inf, False
        return self._exchange()

    def turn(self) -> bool:
        """Report the answers if this process has its part of a round, or if another process has changed the state.

        Returns:
            Whether the share has changed.
        """
        latencies = self.latencies
        if are_instant(latencies, self.whole):
            self.need = max(LEAST_CALLS, self.whole)
            self.is_instant = len(latencies) >= LEAST_CALLS
            if self.is_instant:
                latencies.clear()
            return False
        self.is_instant = False
        self.need = len(latencies) + max(_CHECK_AFTER, len(latencies) // _CHECK_SHARE)
        return (len(latencies) >= self._part or self._has_news()) and self._exchange()

    def _has_news(self) -> bool:
        """Return whether another process has changed the state."""
        with contextlib.suppress(OSError):
            return os.pread(self._file.fileno(), _VERSION.size, 0) != _VERSION.pack(self._state.version)
        return False

    def _exchange(self, *, leaves: bool = False) -> bool:
        """Report to the other processes, and read their decisions; return whether the share has changed."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                state = self._read()
                if leaves:
                    state.members.pop(self._name, None)
                    state.version += 1
                    self._has_changed = True
                else:
                    self._take_part(state)
                self._write(state)
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        except BlockingIOError:
            # Another process holds the lock. The next report tries again.
            return False
        except OSError as error:
            if self._file.name not in _UNUSABLE:
                # A task uses a new object, so the process remembers what it has logged.
                _UNUSABLE.add(self._file.name)
                _LOG.warning(
                    "max_in_flight: cannot use %s (%s); the number of calls in flight stays the same for now: check "
                    "the free space of spark.local.dir",
                    self._file.name,
                    error,
                )
            return False
        except Exception:
            # A defect of the state must not fail the tasks that follow: the window restarts at its first size.
            os.ftruncate(self._file.fileno(), 0)
            raise
        changed, self._has_changed = self._has_changed, False
        return changed

    def _take_part(self, state: _State) -> None:
        """Add this process's report to the state, start the next round if possible, and take over the new share."""
        now, shares, total, last = self._clock(), state.shares(), state.window, self._state
        member = state.enter(self._name, self._wanted, self._bounds.min, now)
        total.is_idle |= self._awaits_leases
        if state.has_begun and last.has_begun and last.round == state.round and self._count(total, now):
            state.round += 1
            state.version += 1
            state.has_begun = False
        self.latencies.clear()
        self.need, self._part = _CHECK_AFTER, math.ceil((total.need - len(total.latencies)) / len(state.members))
        self._rejected, self._timed_out = 0, False
        after = state.shares()
        if after[self._name] < self.size:
            # The pool calls `begin` as soon as few enough calls are in flight.
            self._uses_share = False
        if self._uses_share:
            member.round = state.round
        if not state.has_begun and all(member.round == state.round for member in state.members.values()):
            total.begin(now)
            state.has_begun = True
            state.version += 1
        elif after != shares:
            state.version += 1
        if state.has_begun and not (last.has_begun and last.round == state.round):
            self.since = max(self.since, total.since)
        self._has_changed |= after[self._name] != self.size
        self.size, self.latency, self._state = after[self._name], total.latency, state
        self.is_largest = total.is_largest

    def _count(self, total: Window, now: float) -> bool:
        """Add the measurements of this process to the round; return whether the window has changed."""
        total.latencies += self.latencies
        if self._timed_out:
            return total.timed_out(math.inf)
        if any(total.rejected(math.inf) for _ in range(self._rejected)):
            return True
        # After this delay, every process has reported the answers that end a trial.
        return total.beat(now - HEARTBEAT_SECONDS, 0) or (len(total.latencies) >= total.need and total.turn())

    def _read(self) -> _State:
        header = os.pread(self._file.fileno(), _HEADER.size, 0).ljust(_HEADER.size, b"\0")
        _, length, checksum = _HEADER.unpack(header)
        pickled = os.pread(self._file.fileno(), min(length, os.fstat(self._file.fileno()).st_size), _HEADER.size)
        if pickled and zlib.crc32(pickled) == checksum:
            state: _State = pickle.loads(pickled)
            return state
        # Because of the clock, version and round differ from those of all earlier states.
        return _State(Window(self._bounds), time.monotonic_ns(), time.monotonic_ns())

    def _write(self, state: _State) -> None:
        pickled = pickle.dumps(state)
        os.pwrite(self._file.fileno(), _HEADER.pack(state.version, len(pickled), zlib.crc32(pickled)) + pickled, 0)
