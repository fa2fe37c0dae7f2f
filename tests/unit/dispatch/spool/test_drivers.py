"""A sidecar may die and its driver live: the spool waits for the sidecar that comes next, not for whoever looks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_events.dispatch.spool.database import Database, NewRow
from spark_events.dispatch.spool.drivers import is_alive, line_of
from spark_events.dispatch.spool.files import Claim, claim
from spark_events.dispatch.spool.inflow import Came
from spark_events.dispatch.spool.orphans import Orphans
from spark_events.dispatch.spool.window import Standing

MINE = line_of(os.getpid())
MANY = 1 << 30


@pytest.fixture
def another() -> Iterator[subprocess.Popen[bytes]]:
    """The process of another driver."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process


class Nobody:
    """Gets nothing."""

    read_through = 0

    def standing(self) -> Standing:
        return Standing(0, 0, 1, frozenset())

    def reserve(self, count: int) -> int:
        raise NotImplementedError

    def inherited(self, came: Came) -> None:
        raise NotImplementedError


def fill(owned: Claim) -> None:
    database = Database(owned.path, False, MANY)
    database.append([NewRow(1, "1", 1, 0.0, b"{}")], (), 0)
    database.close()


def ended(process: subprocess.Popen[bytes]) -> None:
    process.communicate()


def unburied(process: subprocess.Popen[bytes]) -> None:
    """Killed, and its parent does not ask for it: one that asks later, or the first process of a container."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("die", [ended, unburied])
def test_a_process_is_known_by_its_line_as_long_as_it_runs(
    another: subprocess.Popen[bytes], die: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    line = line_of(another.pid)
    assert is_alive(line)
    assert line != MINE
    die(another)
    assert not is_alive(line)
    assert line_of(another.pid) == ""


@pytest.mark.parametrize("change", [lambda parts: [*parts[:3], "1"], lambda parts: ["another-boot", *parts[1:]]])
def test_a_number_that_is_used_again_is_another_process(change: object) -> None:
    assert callable(change)
    assert is_alive(MINE)
    assert not is_alive(" ".join(change(MINE.split())))


@pytest.mark.parametrize("line", ["", "\x00" * 60, "a b", "1 2 ../../etc 4", f"{MINE} {MINE}"])
def test_what_is_no_line_is_nobody(line: str) -> None:
    """What a full disk, or a version to come, has left there."""
    assert not is_alive(line)


def test_two_drivers_whose_sidecars_die_together_find_their_own_spools_again(
    tmp_path: Path, another: subprocess.Popen[bytes]
) -> None:
    """Whichever is first to start one again."""
    line = line_of(another.pid)
    theirs, mine = claim(tmp_path, "shop", "audit", line), claim(tmp_path, "shop", "audit", MINE)
    for one in (theirs, mine):
        one.release()
    mine_again = claim(tmp_path, "shop", "audit", MINE)
    theirs_again = claim(tmp_path, "shop", "audit", line)
    assert (mine_again.path, theirs_again.path) == (mine.path, theirs.path)
    for one in (mine_again, theirs_again):
        one.release()


@pytest.mark.parametrize("die", [ended, unburied])
def test_the_spool_of_a_driver_that_is_dead_goes_to_whoever_starts(
    tmp_path: Path, another: subprocess.Popen[bytes], die: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    theirs = claim(tmp_path, "shop", "audit", line_of(another.pid))
    theirs.release()
    beside = claim(tmp_path, "shop", "audit", MINE)
    assert beside.path != theirs.path
    beside.delete()
    die(another)
    mine = claim(tmp_path, "shop", "audit", MINE)
    assert (mine.path, mine.driver) == (theirs.path, MINE)
    mine.release()


def test_a_sidecar_that_is_dead_is_waited_for_as_long_as_its_driver_may_start_another(
    tmp_path: Path, another: subprocess.Popen[bytes]
) -> None:
    """Not from when it was first seen, but from its death; and not for ever, for in the end a driver starts none."""
    now = 1000.0
    mine, line = claim(tmp_path, "shop", "audit", MINE), line_of(another.pid)
    theirs = claim(tmp_path, "shop", "audit", line)
    looking = Orphans("audit", lambda: now)
    fill(theirs)

    def seen() -> bool:
        found = looking.find(mine, lambda: None, Nobody())
        if found is not None:
            found.close()
        return found is not None

    theirs.release()
    assert not seen()
    now += 59
    assert not seen()
    theirs = claim(tmp_path, "shop", "audit", line)
    now += 59
    assert not seen()
    theirs.release()
    now += 59
    assert not seen()
    now += 59
    assert not seen()
    now += 2
    assert seen()
    mine.release()


def test_a_driver_that_dies_while_its_sidecar_is_waited_for_is_not_waited_for(
    tmp_path: Path, another: subprocess.Popen[bytes]
) -> None:
    mine, theirs = claim(tmp_path, "shop", "audit", MINE), claim(tmp_path, "shop", "audit", line_of(another.pid))
    fill(theirs)
    theirs.release()
    looking = Orphans("audit")
    assert looking.find(mine, lambda: None, Nobody()) is None
    ended(another)
    found = looking.find(mine, lambda: None, Nobody())
    assert found is not None
    found.close()
    mine.release()
