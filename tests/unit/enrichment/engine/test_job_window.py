"""Tests of the window that the worker processes of one job share."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from virtual_time import VirtualLoop

from spark_events.enrichment.engine.job_window import CallReport, JobWindow, Share
from spark_events.enrichment.engine.shared_window import SharedWindow
from spark_events.enrichment.settings import Auto

LATENCY = 0.05
#: Seconds that a message takes.
MESSAGE = 0.001


class Processes:
    """Processes of one job in virtual time, and the calls that they make."""

    def __init__(self, number: int, bounds: Auto) -> None:
        self.loop = VirtualLoop()
        self.loop.now = 100.0
        self.job = JobWindow(bounds, self.loop.time)
        self.windows: list[SharedWindow] = []
        self.reports = 0
        for _ in range(number):
            self.add()

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        self.loop.run_until_complete(work)

    def add(self) -> SharedWindow:
        window = SharedWindow(self.loop.time)

        def receive(share: Share) -> None:
            self.loop.call_later(MESSAGE, lambda: window.receive(share))

        def send(report: CallReport) -> None:
            self.reports += 1
            self.loop.call_later(MESSAGE, lambda: self.job.report(window, report, receive))

        window.on_change(lambda: window.begin(self.now))
        self.windows.append(window)
        window.begin(self.now)
        window.connect(send)
        self.run(asyncio.sleep(3 * MESSAGE))
        return window

    def kill(self, window: SharedWindow) -> None:
        """Let a process report nothing, and its connection stay open."""
        window.leave()
        self.windows.remove(window)

    def leave(self, window: SharedWindow) -> None:
        """End the run of a process, and its connection."""
        self.kill(window)
        self.job.leave(window)

    @property
    def now(self) -> float:
        return self.loop.time()

    @property
    def sizes(self) -> list[int]:
        return [window.size for window in self.windows]

    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def beat(self, *in_flight: int, after: float = 0.1) -> None:
        """Let every process report; a process with a given number of calls in flight has no further rows."""
        for _ in range(3):
            self.wait(after)
            for number, window in enumerate(self.windows):
                flying = window.size
                if number < len(in_flight):
                    window.is_idle, flying = True, in_flight[number]
                window.beat(self.now, flying)
            self.wait(5 * MESSAGE)

    def answer(self, latency: Callable[[int], float], rounds: int = 1) -> None:
        """Answer a full window of calls of every process; ``latency`` returns the seconds for all calls in flight."""
        for _ in range(rounds):
            seconds = latency(sum(self.sizes))
            began = [(window, self.now, window.size) for window in self.windows]
            self.wait(seconds)
            self.run(self._answer(began, seconds))
            # Reports are at least 0.05 s apart.
            self.wait(0.06)

    async def _answer(self, began: list[tuple[SharedWindow, float, int]], seconds: float) -> None:
        for window, start, size in began:
            for _ in range(size):
                self.measured(window, start, seconds * random.uniform(0.98, 1.02))

    @staticmethod
    def measured(window: SharedWindow, began: float, seconds: float) -> None:
        if began >= window.since:
            window.latencies.append(seconds)
            if len(window.latencies) >= window.need:
                window.turn()

    def do(self, step: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on the loop, and wait until the messages that it causes have arrived."""

        async def work() -> None:
            step(*arguments)

        self.run(work())
        self.wait(5 * MESSAGE)


@pytest.fixture
def made() -> Iterator[Callable[[int, Auto], Processes]]:
    """Yield a function that creates processes; their loops are closed afterwards."""
    jobs = []

    def make(number: int, bounds: Auto) -> Processes:
        jobs.append(Processes(number, bounds))
        return jobs[-1]

    yield make
    for job in jobs:
        job.loop.close()


Make = Callable[[int, Auto], Processes]


def test_processes_share_the_window_equally(made: Make) -> None:
    """The shares add up to the size of the window, whenever a process joins or leaves."""
    job = made(1, Auto(initial=20))
    assert job.sizes == [20]
    for number in (2, 3, 8):
        while len(job.windows) < number:
            job.add()
        job.beat()
        assert sum(job.sizes) == 20
        assert max(job.sizes) - min(job.sizes) <= 1
    for window in job.windows[3:]:
        job.leave(window)
    job.beat()
    assert sum(job.sizes) == 20


@pytest.mark.parametrize("capacity", [8, 40, 200])
def test_processes_find_the_capacity_together(made: Make, capacity: int) -> None:
    """Four processes find the capacity of a service that slows down with more calls."""
    random.seed(1)
    job = made(4, Auto())
    job.answer(lambda calls: LATENCY * max(1.0, calls / capacity) ** 2, rounds=200)
    assert 0.75 * capacity <= sum(job.sizes) <= 1.4 * capacity


def test_the_bounds_apply_to_the_job(made: Make) -> None:
    """All processes together stay within the bounds, except that each can always have one call in flight."""
    job = made(4, Auto(min=1, max=6, initial=6))
    job.answer(lambda _: LATENCY, rounds=50)
    assert sum(job.sizes) == 6
    assert all(window.is_largest for window in job.windows)
    while len(job.windows) < 9:
        job.add()
    job.beat()
    assert job.sizes == [1] * 9


def test_a_process_without_rows_leaves_its_calls_to_the_others(made: Make) -> None:
    """A process that waits for its input gets little more than it uses, until it has rows again."""
    job = made(3, Auto(initial=90))
    job.beat(4)
    assert job.sizes[0] == 6
    assert sum(job.sizes) == 90
    job.beat()
    assert job.sizes == [30, 30, 30]


def test_processes_that_wait_for_their_input_can_use_the_whole_window(made: Make) -> None:
    """If no process needs its share, the shares do not shrink, because more rows may arrive at any time."""
    job = made(2, Auto(initial=40))
    job.beat(2, 3)
    assert sum(job.sizes) in (39, 40)


def test_a_process_that_hangs_is_forgotten(made: Make) -> None:
    """After some seconds without a report, the other processes use the share of a process that hangs."""
    job = made(2, Auto(initial=20))
    job.beat()
    assert job.sizes == [10, 10]
    job.kill(job.windows[1])
    job.wait(4)
    job.beat()
    assert job.sizes == [10]
    job.wait(2)
    job.beat()
    assert job.sizes == [20]


def test_a_process_that_has_left_does_not_report_again(made: Make) -> None:
    """Calls that end after their run neither take a share nor count."""
    job = made(2, Auto(initial=20))
    job.beat()
    left, stays = job.windows
    began = job.now
    job.leave(left)
    job.do(left.rejected, began)
    job.do(left.timed_out, began)
    job.beat()
    assert stays.size == 20


def test_processes_that_join_end_the_trial_of_a_smaller_window(made: Make) -> None:
    """If more processes start than the tried window has calls, the window returns to the size that it had before."""
    job = made(2, Auto(initial=8))

    def answer(seconds: float, *, is_idle: bool) -> None:
        for window in job.windows:
            window.is_idle |= is_idle
            for _ in range(window.size):
                job.do(job.measured, window, job.now, seconds)
        job.wait(0.06)

    for _ in range(200):
        if job.job.size >= 8:
            answer(0.1 * job.job.size**2, is_idle=False)
    assert job.job.size < 8
    job.beat(1, 1)
    while len(job.windows) < 8:
        job.add()
    job.beat(*[0] * 8)
    # Later, the window may grow again, because the calls have become much faster.
    for _ in range(50):
        if job.job.size < 8:
            answer(0.1, is_idle=True)
    assert job.job.size == 8
    assert job.sizes == [1] * 8


@pytest.mark.parametrize("seed", range(15))
def test_any_course_of_events_keeps_the_bounds(made: Make, seed: int) -> None:
    """Processes join, leave, wait, answer, time out and are rejected in a random order; no error occurs."""
    chance = random.Random(seed)
    bounds = Auto(min=1, max=chance.choice([4, 12, 60]), initial=chance.choice([1, 4]))
    job = made(1, bounds)
    for _ in range(500):
        job.wait(chance.choice([0.0, 0.001, 0.05, 0.3, 0.3]))
        window = chance.choice(job.windows)
        step = chance.random()
        if step < 0.03 and len(job.windows) < 8:
            job.add()
        elif step < 0.05 and len(job.windows) > 1:
            chance.choice([job.leave, job.kill])(window)
        elif step < 0.08:
            job.do(window.timed_out, job.now)
        elif step < 0.12:
            job.do(window.rejected, job.now)
        elif step < 0.4:
            window.is_idle |= chance.random() < 0.3
            job.do(window.beat, job.now, chance.choice([0, 1, window.size, math.inf]))
        else:
            window.latencies += [chance.uniform(0.02, 0.4) for _ in range(chance.randint(1, window.size))]
            if len(window.latencies) >= window.need:
                job.do(window.turn)
        assert all(1 <= one.size <= bounds.max for one in job.windows)
        assert job.job.size <= max(bounds.max, len(job.windows) + 8)


def test_a_timeout_halves_the_window_once(made: Make) -> None:
    """Timeouts of calls that began before the change do not halve the window again."""
    job = made(2, Auto(initial=40))
    job.beat()
    began = job.now
    job.wait(LATENCY)
    for window in job.windows:
        for _ in range(5):
            job.do(window.timed_out, began)
    job.beat()
    assert job.sizes == [10, 10]
    for window in job.windows:
        job.do(window.timed_out, began)
    job.beat()
    assert job.sizes == [10, 10]


def test_rejections_of_all_processes_shrink_the_window(made: Make) -> None:
    """If the service rejects all calls, the window halves, although each process has seen only a part."""
    job = made(4, Auto(initial=40))
    job.beat()
    for _ in range(10):
        for window in job.windows:
            job.do(window.rejected, job.now)
    job.beat()
    assert sum(job.sizes) == 20


def test_a_trial_that_takes_far_too_long_ends_early(made: Make) -> None:
    """A larger window whose calls do not return is given up before its round is complete."""
    job = made(2, Auto(initial=20))
    job.beat()
    job.answer(lambda _: LATENCY)
    assert sum(job.sizes) == 40
    job.beat(after=0.1 + LATENCY)
    assert sum(job.sizes) == 20


def test_a_process_that_pauses_does_not_delay_the_next_round(made: Make) -> None:
    """Runners that wait, for example for ``Retry-After``, may be more than the share, but make no calls."""
    job = made(2, Auto(initial=40))
    job.beat()
    paused, working = job.windows
    paused.on_change(lambda: paused.begin(math.inf))  # 20 runners wait
    job.wait(1)
    job.do(working.timed_out, job.now)
    assert job.sizes == [10, 10]
    for in_flight, begins in ((15, False), (0, True)):
        job.wait(1)
        job.do(paused.beat, job.now, in_flight)
        job.do(working.beat, job.now, working.size)
        assert (working.since < math.inf) is begins


def test_calls_of_the_former_round_do_not_count(made: Make) -> None:
    """A round counts only calls that began after all processes had begun to use their shares."""
    job = made(2, Auto(initial=40))
    job.beat()
    first, second = job.windows
    second.on_change(lambda: second.begin(math.inf))
    job.wait(1)
    job.do(first.timed_out, job.now)
    assert first.since == math.inf
    job.wait(1)
    job.do(second.begin, job.now)
    assert first.since >= job.now - 5 * MESSAGE


def test_a_window_that_is_not_used_up_does_not_change(made: Make) -> None:
    """If all processes wait for their input, their latencies do not show whether a larger window would help."""
    job = made(2, Auto(initial=40))
    job.beat(3, 3)
    for _ in range(20):
        for window in job.windows:
            window.latencies += [LATENCY] * 20
            job.do(window.turn)
        job.beat(3, 3)
    assert job.job.size == 40


def test_calls_that_return_immediately_are_not_reported(made: Make) -> None:
    """Calls that return immediately do not change the window, as in a process with its own window."""
    job = made(2, Auto(initial=40))
    job.beat()
    (window, _), before = job.windows, job.reports
    for _ in range(100):
        job.measured(window, job.now, 1e-6)
    assert window.is_instant
    assert job.reports == before
    window.latencies += [LATENCY] * 40
    job.do(window.turn)
    assert not window.is_instant


def test_a_process_reports_several_times_per_second_and_not_per_call(made: Make) -> None:
    """The number of reports depends on the time, and not on the number of calls; all calls count."""
    job = made(1, Auto(initial=200))
    (window,), before = job.windows, job.reports
    for _ in range(200):
        for _ in range(20):
            job.do(job.measured, window, job.now, 0.01)
    assert 0 < job.reports - before <= (job.now - 100) / 0.05 + 20
    assert window.whole > 200


def test_many_latencies_are_summarised(made: Make) -> None:
    """A report has a bounded size, and its latencies have the distribution of all calls."""
    job = made(1, Auto(initial=20))
    (window,) = job.windows
    reports: list[CallReport] = []
    window.connect(reports.append)
    chance = random.Random(3)
    window.latencies += [chance.uniform(1, 3) for _ in range(10_000)]
    job.wait(1)
    window.beat(job.now, 20)
    found = reports[-1]
    assert len(found.latencies) <= 128
    assert abs(len(found.latencies) * found.weight - 10_000) <= found.weight
    assert abs(sum(found.latencies) / len(found.latencies) - 2) < 0.02


def test_without_the_driver_a_process_has_its_own_window(made: Make) -> None:
    """A process that cannot reach the driver adapts its own number of calls within its part of the bounds."""
    job = made(1, Auto(initial=20))
    (window,) = job.windows
    job.do(window.go_alone, Auto(1, 12, 4))
    assert window.size == 4
    job.answer(lambda calls: LATENCY, rounds=20)
    assert window.size == 12
    assert job.job.size == 20
