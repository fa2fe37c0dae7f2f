"""Threads that are kept on one processor, and what ends that. The threads and their processors are real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import eventually, two_processors

from spark_events.dispatch.affinity import Affinity

pytestmark = pytest.mark.skipif(
    not two_processors(), reason="needs Linux and two processors; there is nothing to be kept together on one"
)


class Thread(threading.Thread):
    """Waits, or spins, until it is ended."""

    def __init__(self, *, spins: bool = False) -> None:
        super().__init__(daemon=True)
        self._spins = spins
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.over.wait(0 if self._spins else None):
            pass

    @property
    def id(self) -> int:
        assert self.native_id is not None
        return self.native_id

    @property
    def processors(self) -> set[int]:
        return os.sched_getaffinity(self.id)


@pytest.fixture
def threads() -> Iterator[list[Thread]]:
    made = [Thread() for _ in range(3)]
    yield made
    for thread in made:
        thread.over.set()
        thread.join()


class Kernel:
    """Tells of threads what a test says, and the time."""

    def __init__(self, folder: Path, threads: list[Thread]) -> None:
        self.tasks = folder
        self.now = 100.0
        self.processor = min(os.sched_getaffinity(0))
        self._threads = threads
        self._times = {thread.id: (0.0, 0.0) for thread in threads}
        for thread in threads:
            (folder / str(thread.id)).mkdir()
        self.spend(**{f"t{number}": (0.001, 0.0) for number in range(len(threads))})

    def spend(self, **spent: tuple[float, float]) -> None:
        """A second goes by; ``t0=(ran, waited)``: what the first thread did in it."""
        self.now += 1.0
        for number, thread in enumerate(self._threads):
            ran, waited = spent.get(f"t{number}", (0.0, 0.0))
            before = self._times[thread.id]
            self._times[thread.id] = now = (before[0] + ran, before[1] + waited)
            folder = self.tasks / str(thread.id)
            (folder / "schedstat").write_text(f"{now[0] * 1e9:.0f} {now[1] * 1e9:.0f} 7\n")
            behind = " ".join(["S", *["0"] * 35, str(self.processor), *["0"] * 13])
            (folder / "stat").write_text(f"{thread.id} (a) b (c) {behind}\n")


@pytest.fixture
def kernel(tmp_path: Path, threads: list[Thread]) -> Kernel:
    return Kernel(tmp_path, threads)


@pytest.fixture
def affinity(kernel: Kernel, threads: list[Thread]) -> Affinity:
    return Affinity(threads[0].id, lambda: kernel.now, kernel.tasks)


ANYWHERE = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def test_companions_run_where_the_leader_does_and_nobody_else(
    affinity: Affinity, kernel: Kernel, threads: list[Thread]
) -> None:
    kernel.processor = max(ANYWHERE)
    kernel.spend()
    affinity.look([threads[1].id])
    assert [thread.processors for thread in threads] == [{kernel.processor}, {kernel.processor}, ANYWHERE]
    assert os.sched_getaffinity(0) == ANYWHERE


def test_one_that_is_replaced_is_let_go_and_its_successor_kept(
    affinity: Affinity, kernel: Kernel, threads: list[Thread]
) -> None:
    affinity.look([threads[1].id])
    kernel.spend()
    affinity.look([threads[2].id])
    assert [thread.processors for thread in threads] == [{kernel.processor}, ANYWHERE, {kernel.processor}]


def test_without_companions_the_leader_is_free(affinity: Affinity, kernel: Kernel, threads: list[Thread]) -> None:
    affinity.look([])
    assert threads[0].processors == ANYWHERE
    kernel.spend()
    affinity.look([threads[1].id])
    kernel.spend()
    affinity.look([])
    assert [thread.processors for thread in threads] == [ANYWHERE] * 3


@pytest.mark.parametrize(
    ("leader", "companion", "is_crowded"),
    [
        # It waits while its companion runs; that is what is meant to be.
        ((0.7, 0.25), (0.25, 0.6), False),
        ((0.01, 0.2), (0.2, 0.01), False),
        # Somebody else takes a little, now and then.
        ((0.7, 0.4), (0.25, 0.6), False),
        ((0.001, 0.015), (0.0, 0.0), False),
        # Somebody else takes as much as it gets, or what it seldom wants.
        ((0.4, 0.5), (0.1, 0.5), True),
        ((0.001, 0.03), (0.001, 0.03), True),
        # The leader mostly sleeps; it is its companion that waits for somebody else.
        ((0.18, 0.3), (0.3, 0.51), True),
    ],
)
def test_only_others_are_a_crowd(
    affinity: Affinity,
    kernel: Kernel,
    threads: list[Thread],
    leader: tuple[float, float],
    companion: tuple[float, float],
    is_crowded: bool,
) -> None:
    affinity.look([threads[1].id])
    kernel.spend(t0=leader, t1=companion)
    affinity.look([threads[1].id])
    kept = ANYWHERE if is_crowded else {kernel.processor}
    assert [thread.processors for thread in threads] == [kept, kept, ANYWHERE]


def test_it_is_tried_again_less_and_less_often(affinity: Affinity, kernel: Kernel, threads: list[Thread]) -> None:
    """Until it was good for longer than the last pause."""
    pauses = []
    for kept_for in (1, 1, 1, 1, 1, 1, 1, 400, 1):
        began = kernel.now
        while threads[0].processors == ANYWHERE:
            kernel.spend()
            affinity.look([threads[1].id])
        pauses.append(round(kernel.now - began))
        for _ in range(kept_for - 1):
            kernel.spend(t0=(0.1, 0.0))
            affinity.look([threads[1].id])
            assert threads[0].processors == {kernel.processor}
        kernel.spend(t0=(0.1, 0.9))
        affinity.look([threads[1].id])
        assert threads[0].processors == ANYWHERE
    assert pauses == [1, 10, 20, 40, 80, 160, 300, 300, 10]


def test_nothing_is_done_where_nobody_tells_of_waiting(
    affinity: Affinity, kernel: Kernel, threads: list[Thread]
) -> None:
    """A kernel without these figures, a thread that has ended: what cannot be seen to harm is not done."""
    (kernel.tasks / str(threads[0].id) / "schedstat").unlink()
    affinity.look([threads[1].id])
    assert [thread.processors for thread in threads] == [ANYWHERE] * 3
    kernel.spend()
    (kernel.tasks / str(threads[0].id) / "stat").write_text("nothing\n")
    affinity.look([threads[1].id])
    assert [thread.processors for thread in threads] == [ANYWHERE] * 3
    kernel.spend()
    affinity.look([threads[1].id, 2**22 + 1])
    assert threads[1].processors == {kernel.processor}


def test_a_number_that_is_another_s_by_now_is_left_alone(
    affinity: Affinity, kernel: Kernel, threads: list[Thread]
) -> None:
    """Neither kept nor let go: it is no thread of this process, or was bound by somebody else."""
    affinity.look([threads[1].id])
    shutil.rmtree(kernel.tasks / str(threads[1].id))
    kernel.now += 1
    affinity.look([threads[1].id, threads[2].id])
    assert [thread.processors for thread in threads] == [{kernel.processor}] * 3
    (kernel.tasks / str(threads[2].id) / "schedstat").write_text("0 0 0\n")
    kernel.now += 1
    affinity.look([threads[1].id, threads[2].id])
    assert [thread.processors for thread in threads] == [ANYWHERE, {kernel.processor}, ANYWHERE]


def test_processors_that_come_later_may_be_used(
    affinity: Affinity, kernel: Kernel, threads: list[Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that is given more."""
    few = {kernel.processor, max(ANYWHERE)}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: few)
    affinity.look([threads[1].id])
    monkeypatch.undo()
    kernel.spend()
    affinity.look([threads[1].id])
    kernel.spend()
    affinity.look([])
    assert [thread.processors for thread in threads] == [ANYWHERE] * 3


def test_where_it_is_forbidden_or_has_no_sense_nothing_is_done(
    affinity: Affinity, kernel: Kernel, threads: list[Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        affinity.look([threads[1].id])
    assert [thread.processors for thread in threads] == [ANYWHERE] * 3
    kernel.spend()
    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", forbidden)
        affinity.look([threads[1].id])
    kernel.spend()
    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_setaffinity", forbidden)
        affinity.look([threads[1].id])
    assert [thread.processors for thread in threads] == [ANYWHERE] * 3


def test_a_look_that_follows_at_once_is_none(affinity: Affinity, kernel: Kernel, threads: list[Thread]) -> None:
    """It would judge by moments."""
    affinity.look([threads[1].id])
    kernel.now += 0.1
    affinity.look([threads[2].id])
    assert [thread.processors for thread in threads] == [{kernel.processor}, {kernel.processor}, ANYWHERE]


def test_who_is_driven_from_a_processor_goes_elsewhere() -> None:
    """With the kernel's own figures: a program that computes, and may not run anywhere else."""
    leader, companion = Thread(spins=True), Thread()
    affinity = Affinity(leader.id)
    program = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"
    other = None
    try:
        affinity.look([companion.id])
        (processor,) = leader.processors
        assert companion.processors == {processor}
        other = subprocess.Popen([sys.executable, "-c", program, str(processor)], stdout=subprocess.PIPE)
        assert other.stdout is not None
        other.stdout.readline()

        def is_free() -> bool:
            affinity.look([companion.id])
            return leader.processors == ANYWHERE

        eventually(is_free)
        assert companion.processors == ANYWHERE
    finally:
        for thread in (leader, companion):
            thread.over.set()
            thread.join()
        if other is not None:
            other.kill()
            other.communicate()
