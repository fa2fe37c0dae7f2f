"""Tests of the window that the processes of one executor share."""

from __future__ import annotations

import fcntl
import math
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_events.enrichment.engine.shared_window import SharedWindow
from spark_events.enrichment.settings import Auto

LATENCY = 0.05


class Processes:
    """Processes of one executor, in one thread and with a common clock, and the calls that they make."""

    def __init__(self, path: Path, number: int, bounds: Auto) -> None:
        self.now = 100.0
        self.path = path
        self.bounds = bounds
        self.windows: list[SharedWindow] = []
        for _ in range(number):
            self.add()

    def add(self) -> SharedWindow:
        window = SharedWindow(self.bounds, self.path, lambda: self.now)
        self.windows.append(window)
        window.begin(self.now)
        return window

    @property
    def sizes(self) -> list[int]:
        return [window.size for window in self.windows]

    def resize(self, window: SharedWindow, changed: bool) -> None:
        if changed:
            window.begin(self.now)

    def beat(self, *in_flight: int, after: float = 0.001) -> None:
        """Let every process report; a process with a given number of calls in flight has no further rows."""
        for _ in range(3):
            self.now += after
            for number, window in enumerate(self.windows):
                flying = window.size
                if number < len(in_flight):
                    window.is_idle, flying = True, in_flight[number]
                self.resize(window, window.beat(self.now, flying))

    def answer(self, latency: Callable[[int], float], rounds: int = 1) -> None:
        """Answer a full window of calls of every process; ``latency`` returns the seconds for all calls in flight."""
        for _ in range(rounds):
            seconds = latency(sum(self.sizes))
            began = [(window, self.now, window.size) for window in self.windows]
            self.now += seconds
            for window, start, size in began:
                for _ in range(size):
                    if start >= window.since:
                        window.latencies.append(seconds * random.uniform(0.98, 1.02))
                    if len(window.latencies) >= window.need:
                        self.resize(window, window.turn())
            self.beat()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "window"


def test_processes_share_the_window_equally(path: Path) -> None:
    """The shares add up to the size of the window, whenever a process joins or leaves."""
    executor = Processes(path, 1, Auto(initial=20))
    assert executor.sizes == [20]
    for number in (2, 3, 8):
        while len(executor.windows) < number:
            executor.add()
        executor.beat()
        assert sum(executor.sizes) == 20
        assert max(executor.sizes) - min(executor.sizes) <= 1
    for window in executor.windows[3:]:
        window.leave()
    del executor.windows[3:]
    executor.beat()
    assert sum(executor.sizes) == 20


@pytest.mark.parametrize("capacity", [8, 40, 200])
def test_processes_find_the_capacity_together(path: Path, capacity: int) -> None:
    """Four processes find the capacity of a service that slows down with more calls."""
    random.seed(1)
    executor = Processes(path, 4, Auto())
    executor.answer(lambda calls: LATENCY * max(1.0, calls / capacity) ** 2, rounds=200)
    assert 0.75 * capacity <= sum(executor.sizes) <= 1.4 * capacity


def test_the_bounds_apply_to_the_executor(path: Path) -> None:
    """All processes together stay within the bounds, except that each can always have one call in flight."""
    executor = Processes(path, 4, Auto(min=1, max=6, initial=6))
    executor.answer(lambda _: LATENCY, rounds=50)
    assert sum(executor.sizes) == 6
    assert all(window.is_largest for window in executor.windows)
    while len(executor.windows) < 9:
        executor.add()
    executor.beat()
    assert executor.sizes == [1] * 9


def test_a_process_without_rows_leaves_its_calls_to_the_others(path: Path) -> None:
    """A process that waits for its input gets little more than it uses, until it has rows again."""
    executor = Processes(path, 3, Auto(initial=90))
    executor.beat(4)
    assert executor.sizes[0] == 6
    assert sum(executor.sizes) == 90
    executor.beat()
    assert executor.sizes == [30, 30, 30]


def test_processes_that_wait_for_their_input_can_use_the_whole_window(path: Path) -> None:
    """If no process needs its share, the shares do not shrink, because more rows may arrive at any time."""
    executor = Processes(path, 2, Auto(initial=40))
    executor.beat(2, 3)
    assert sum(executor.sizes) in (39, 40)


def test_a_killed_process_is_forgotten(path: Path) -> None:
    """After some seconds without a report, the other processes use the share of a killed process."""
    executor = Processes(path, 2, Auto(initial=20))
    executor.beat()
    assert executor.sizes == [10, 10]
    del executor.windows[1]
    executor.now += 4
    executor.beat()
    assert executor.sizes == [10]
    executor.now += 2
    executor.beat()
    assert executor.sizes == [20]


def test_a_process_that_has_left_does_not_report_again(path: Path) -> None:
    """Calls that end after their run neither take a share nor count."""
    executor = Processes(path, 2, Auto(initial=20))
    executor.beat()
    left, stays = executor.windows
    began = executor.now
    left.leave()
    assert not left.rejected(began)
    assert not left.timed_out(began)
    executor.now += 0.1
    stays.beat(executor.now, 10)
    assert stays.size == 20


def test_processes_that_join_end_the_trial_of_a_smaller_window(path: Path) -> None:
    """If more processes start than the tried window has calls, the window returns to the size that it had before."""
    executor = Processes(path, 2, Auto(initial=8))

    def answer(seconds: float, *, is_idle: bool) -> None:
        for window in executor.windows:
            executor.now += seconds / 50
            window.latencies.append(seconds)
            window.is_idle |= is_idle
            if len(window.latencies) >= window.need:
                executor.resize(window, window.turn())

    while executor.windows[0].whole >= 8:
        answer(0.1 * executor.windows[0].whole ** 2, is_idle=False)
    executor.beat(1, 1)
    while len(executor.windows) < 8:
        executor.add()
    executor.beat(*[0] * 8)
    while executor.windows[0].whole < 8:
        answer(0.1, is_idle=True)
    for window in executor.windows:
        window.is_idle = False
    executor.beat(after=2)
    assert executor.sizes == [1] * 8


@pytest.mark.parametrize("seed", range(30))
def test_any_course_of_events_keeps_the_bounds(path: Path, seed: int) -> None:
    """Processes join, leave, wait, answer, time out and are rejected in a random order; no error occurs."""
    chance = random.Random(seed)
    bounds = Auto(min=1, max=chance.choice([4, 12, 60]), initial=chance.choice([1, 4]))
    executor = Processes(path, 1, bounds)
    for _ in range(1500):
        executor.now += chance.choice([0.0, 0.001, 0.05, 0.3, 0.3])
        window = chance.choice(executor.windows)
        step = chance.random()
        if step < 0.03 and len(executor.windows) < 8:
            executor.add()
        elif step < 0.05 and len(executor.windows) > 1:
            window.leave()
            executor.windows.remove(window)
        elif step < 0.08:
            executor.resize(window, window.timed_out(executor.now))
        elif step < 0.12:
            executor.resize(window, window.rejected(executor.now))
        elif step < 0.4:
            window.is_idle |= chance.random() < 0.3
            in_flight = chance.choice([0, 1, window.size, math.inf])
            executor.resize(window, window.beat(executor.now, in_flight))
        else:
            window.latencies += [chance.uniform(0.02, 0.4) for _ in range(chance.randint(1, window.size))]
            if len(window.latencies) >= window.need:
                executor.resize(window, window.turn())
        assert all(1 <= one.size <= bounds.max for one in executor.windows)
        assert window.whole <= max(bounds.max, len(executor.windows))


def test_a_timeout_halves_the_window_once(path: Path) -> None:
    """Timeouts of calls that began before the change do not halve the window again."""
    executor = Processes(path, 2, Auto(initial=40))
    executor.beat()
    began = executor.now
    executor.now += LATENCY
    for window in executor.windows:
        for _ in range(5):
            executor.resize(window, window.timed_out(began))
    executor.beat()
    assert executor.sizes == [10, 10]
    for window in executor.windows:
        assert not window.timed_out(began)
    executor.beat()
    assert executor.sizes == [10, 10]


def test_rejections_of_all_processes_shrink_the_window(path: Path) -> None:
    """If the service rejects all calls, the window halves, although each process has seen only a part."""
    executor = Processes(path, 4, Auto(initial=40))
    executor.beat()
    for _ in range(10):
        for window in executor.windows:
            executor.resize(window, window.rejected(executor.now))
    executor.beat()
    assert sum(executor.sizes) == 20


def test_a_trial_that_takes_far_too_long_ends_early(path: Path) -> None:
    """A larger window whose calls do not return is given up before its round is complete."""
    executor = Processes(path, 2, Auto(initial=20))
    executor.beat()
    executor.answer(lambda _: LATENCY)
    assert sum(executor.sizes) == 40
    executor.beat(after=0.1 + LATENCY)
    assert sum(executor.sizes) == 20


def test_a_process_does_not_wait_for_the_lock(path: Path) -> None:
    """While another process holds the lock, measurements are kept; afterwards, they count."""
    executor = Processes(path, 1, Auto(initial=20))
    executor.now += LATENCY
    (window,) = executor.windows
    window.latencies += [LATENCY] * 20
    with open(path, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not window.turn()
        assert not window.beat(executor.now, 20)
        assert len(window.latencies) == 20
    assert window.turn()
    assert window.size == 40


def test_a_process_that_pauses_does_not_delay_the_next_round(path: Path) -> None:
    """Workers that wait, for example for ``Retry-After``, may be more than the share, but make no calls."""
    executor = Processes(path, 2, Auto(initial=40))
    executor.beat()
    paused, working = executor.windows
    executor.now += 1
    assert working.timed_out(executor.now)
    working.begin(executor.now)
    assert paused.beat(executor.now, 0)
    paused.begin(math.inf)  # 20 workers wait
    for in_flight, begins in ((15, False), (0, True)):
        executor.now += 1
        paused.beat(executor.now, in_flight)
        working.beat(executor.now, working.size)
        assert (working.since == executor.now) is begins


def test_a_process_notices_a_change_with_its_next_answers(path: Path) -> None:
    """A process applies a changed share after a few answers, without a heartbeat."""
    executor = Processes(path, 1, Auto(initial=40))
    (window,) = executor.windows
    executor.add()
    window.latencies += [LATENCY] * window.need
    assert window.turn()
    assert window.size == 20


def test_calls_of_the_former_round_do_not_count(path: Path) -> None:
    """A round counts only calls that began after all processes had begun to use their shares."""
    executor = Processes(path, 2, Auto(initial=40))
    executor.beat()
    executor.now += 1
    first, second = executor.windows
    first.timed_out(executor.now)
    first.begin(executor.now)
    executor.now += 1
    assert second.beat(executor.now, 20)
    second.begin(executor.now)
    executor.now += 1
    first.beat(executor.now, 10)
    assert first.since >= executor.now - 1


def test_a_window_that_is_not_used_up_does_not_change(path: Path) -> None:
    """If all processes wait for their input, their latencies do not show whether a larger window would help."""
    executor = Processes(path, 2, Auto(initial=40))
    executor.beat(3, 3)
    for _ in range(20):
        for window in executor.windows:
            window.latencies += [LATENCY] * 20
            executor.resize(window, window.turn())
        executor.beat(3, 3)
    assert executor.windows[0].whole == 40


@pytest.mark.parametrize("damage", [b"", b"\0" * 200, b"\xff" * 500])
def test_a_damaged_file_starts_the_window_again(path: Path, damage: bytes) -> None:
    """A file that is empty, or does not contain a valid state, is replaced; all processes continue."""
    executor = Processes(path, 2, Auto(initial=20))
    executor.answer(lambda _: LATENCY, rounds=5)
    path.write_bytes(damage)
    executor.beat()
    executor.beat()
    assert sum(executor.sizes) == 20
    executor.answer(lambda calls: LATENCY * max(1.0, calls / 40) ** 2, rounds=100)
    assert 30 <= sum(executor.sizes) <= 56


def test_an_unusable_file_leaves_the_share_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    """If every write fails, as on a full disk, calls continue with the first number, and one warning is logged."""
    window = SharedWindow(Auto(initial=7), Path("/dev/full"))
    window.begin(0.0)
    window.latencies += [LATENCY] * 100
    assert not window.turn()
    assert not window.beat(1.0, 7)
    assert window.size == 7
    (message,) = caplog.messages
    assert "cannot use /dev/full" in message
    assert "the number of calls in flight stays the same" in message


def test_calls_that_return_immediately_do_not_write_the_file(path: Path) -> None:
    """Calls that return immediately do not change the window, as in a process with its own window."""
    executor = Processes(path, 2, Auto(initial=40))
    executor.beat()
    (window, _), before = executor.windows, path.read_bytes()
    for _ in range(100):
        window.latencies.append(1e-6)
        if len(window.latencies) >= window.need:
            assert not window.turn()
    assert window.is_instant
    assert path.read_bytes() == before
    window.latencies += [LATENCY] * 40
    window.turn()
    assert not window.is_instant


#: A process that reports answers without a pause.
REPORTING = """
import sys, time
from pathlib import Path
from spark_events.enrichment.engine.shared_window import SharedWindow
from spark_events.enrichment.settings import Auto
window = SharedWindow(Auto(), Path(sys.argv[1]))
window.begin(time.monotonic())
print(flush=True)
while True:
    window.latencies.append(0.01)
    if len(window.latencies) >= window.need and window.turn():
        window.begin(time.monotonic())
"""


def test_killed_processes_never_stop_the_others(path: Path) -> None:
    """Processes are killed while they write; the survivor always continues, and the file stays readable."""
    survivor = SharedWindow(Auto(), path)
    survivor.begin(time.monotonic())
    for _ in range(10):
        others = [subprocess.Popen([sys.executable, "-c", REPORTING, path], stdout=subprocess.PIPE) for _ in range(2)]
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()
        for other in others:
            other.send_signal(signal.SIGKILL)
            other.communicate()
        before = path.read_bytes()
        deadline = time.monotonic() + 60
        while path.read_bytes() == before:
            assert time.monotonic() < deadline
            if survivor.beat(time.monotonic(), 1):
                survivor.begin(time.monotonic())
        assert 1 <= survivor.size <= 1000
    assert survivor.since < math.inf
