"""Tests of file ownership: each process owns its files, and new owners find the files of dead processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import ROOT

from spark_events.dispatch.spool.ownership import SpoolFolder, SpoolFolders, driver_identity

MINE = driver_identity(os.getpid())


def folders(directory: Path, application: str = "shop", reporter: str = "audit", driver: str = "") -> SpoolFolders:
    return SpoolFolders(directory, application, reporter, driver)


def claim(directory: Path, application: str = "shop", reporter: str = "audit", driver: str = "") -> SpoolFolder:
    return folders(directory, application, reporter, driver).claim_own()


def names(folder: Path) -> set[str]:
    return {found.name for found in folder.rglob("*")}


@pytest.fixture
def another() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that stands in for another driver."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process


def ended(process: subprocess.Popen[bytes]) -> None:
    process.communicate()


def zombie(process: subprocess.Popen[bytes]) -> None:
    """Kill a process without collecting its exit status, so that it stays a zombie."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize(
    ("application", "reporter"),
    [("shop", "mirror"), ("Shop", "audit"), ("shop ", "audit"), ("", "audit"), ("a/../b", "audit"), ("shop", "a/b")],
)
def test_other_names_have_other_files(tmp_path: Path, application: str, reporter: str) -> None:
    one, other = claim(tmp_path), claim(tmp_path, application, reporter)
    assert one.path != other.path
    assert tmp_path in other.path.resolve().parents
    one.delete()
    other.delete()
    assert names(tmp_path) == set()


def test_the_newest_file_of_dead_owners_is_reused(tmp_path: Path) -> None:
    """A new owner continues the newest file of dead owners, and delivers their other files, oldest first."""
    owners = [claim(tmp_path) for _ in range(12)]
    other = claim(tmp_path, reporter="audit.0")
    assert [one.folder.name for one in owners] == [f"audit.{n}" for n in range(12)]
    for dead in (owners[2], owners[9], owners[10], other):
        dead.release()
    own = claim(tmp_path)
    found = list(folders(tmp_path).claim_dead())
    assert (own.path, [one.path for one in found]) == (owners[10].path, [owners[2].path, owners[9].path])
    for one in (own, *found, *owners[3:9]):
        one.release()


OWNS = """
import sys, os
from pathlib import Path
from spark_events.dispatch.spool.ownership import SpoolFolders
own = SpoolFolders(Path(sys.argv[1]), "shop", "audit", "").claim_own()
print(own.path, flush=True)
sys.stdin.read()
"""


def test_a_killed_process_releases_its_file(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        taken = Path(process.stdout.readline().decode().strip())
        second = claim(tmp_path)
        assert second.path != taken
        second.delete()
        process.kill()
        process.wait()
        third = claim(tmp_path)
        assert third.path == taken
        third.release()


def test_a_file_is_released_even_if_a_child_inherited_its_lock(tmp_path: Path) -> None:
    own = claim(tmp_path)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[own._descriptor]) as other:
        own.release()
        again = claim(tmp_path)
        assert again.path == own.path
        again.release()
        assert other.poll() is None


def test_a_name_never_has_two_owners(tmp_path: Path) -> None:
    """Two processes never own the same name, even if claims and deletions run concurrently."""
    owned: set[Path] = set()
    lock, problems = threading.Lock(), []
    beside = claim(tmp_path, reporter="other")

    def come_and_go() -> None:
        for round_ in range(100):
            own = claim(tmp_path)
            with lock:
                if own.path in owned:
                    problems.append(own.path)
                owned.add(own.path)
            own.path.write_bytes(b"mine")
            with lock:
                owned.discard(own.path)
            if round_ % 3:
                own.delete()
            else:
                own.release()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems
    assert not any(thread.is_alive() for thread in threads)
    beside.release()


def test_only_the_owner_can_read(tmp_path: Path) -> None:
    """Folders have mode 0700 and lock files have mode 0600, regardless of the umask."""
    before = os.umask(0)
    try:
        own = claim(tmp_path / "state" / "spool")
    finally:
        os.umask(before)
    modes = {found.name: found.stat().st_mode & 0o777 for found in (tmp_path / "state").rglob("*")}
    assert modes.pop("audit.0.lock") == 0o600
    assert set(modes.values()) == {0o700}
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    own.release()


# --- drivers that outlive their sidecars ----------------------------------------------------------


@pytest.mark.parametrize("die", [ended, zombie])
def test_a_process_is_identified_while_it_runs(
    another: subprocess.Popen[bytes], die: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    assert driver_identity(another.pid) not in ("", MINE)
    die(another)
    assert driver_identity(another.pid) == ""


@pytest.mark.parametrize(
    "text",
    ["", "\x00" * 60, "a b", "1 ../../etc 4", f"{MINE} {MINE}", f"{MINE}0", f"x{MINE}"],
    # These ids are equal in every pytest-xdist worker; the text of MINE contains a process id.
    ids=["empty", "zeros", "no-numbers", "path", "twice", "longer", "prefixed"],
)
def test_a_lock_of_a_dead_process_is_free(tmp_path: Path, text: str) -> None:
    """A dead process's lock is free if it is empty, comes from another version, or contains a reused process id."""
    claim(tmp_path, driver=text).release()
    again = claim(tmp_path, driver="another")
    assert again.folder.name == "audit.0"
    again.release()


def test_drivers_find_their_own_files_after_their_sidecars_died(
    tmp_path: Path, another: subprocess.Popen[bytes]
) -> None:
    identity = driver_identity(another.pid)
    theirs, mine = claim(tmp_path, driver=identity), claim(tmp_path, driver=MINE)
    for one in (theirs, mine):
        one.release()
    mine_again = claim(tmp_path, driver=MINE)
    assert list(folders(tmp_path, driver=MINE).claim_dead()) == []
    theirs_again = claim(tmp_path, driver=identity)
    assert (mine_again.path, theirs_again.path) == (mine.path, theirs.path)
    for one in (mine_again, theirs_again):
        one.release()


@pytest.mark.parametrize("die", [ended, zombie])
def test_the_file_of_a_dead_driver_is_free(
    tmp_path: Path, another: subprocess.Popen[bytes], die: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    theirs = claim(tmp_path, driver=driver_identity(another.pid))
    theirs.release()
    mine = claim(tmp_path, driver=MINE)
    assert mine.path != theirs.path
    die(another)
    (found,) = folders(tmp_path, driver=MINE).claim_dead()
    assert found.path == theirs.path
    found.release()
    mine.release()


def test_a_file_that_cannot_be_locked_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other files of dead owners are found, although the lock of one file cannot be opened."""
    dead = [claim(tmp_path) for _ in range(2)]
    for one in dead:
        one.release()
    lock = dead[0].folder.with_name("audit.0.lock")
    lock.unlink()
    lock.mkdir()
    looking = folders(tmp_path)
    for _ in range(2):
        found = list(looking.claim_dead())
        assert [one.path for one in found] == [dead[1].path]
        found[0].release()
    (message,) = caplog.messages
    assert message.startswith(f"cannot lock {dead[0].path} of an earlier run, so it is skipped: ")
