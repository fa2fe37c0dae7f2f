"""Whose files are whose: every living process has its own, and what dead ones left is found."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import ROOT, event, is_gone

from spark_events.dispatch.spool.database import Database, NewRow
from spark_events.dispatch.spool.files import Claim, claim, orphans
from spark_events.event import encode_event


def fill(owned: Claim, *which: int) -> None:
    database = Database(owned.path, False, 1 << 20)
    made = [event(number) for number in which]
    database.append([NewRow(n, e.event_id, 9, 0.0, encode_event(e)) for n, e in zip(which, made, strict=True)], (), 0)
    database.close()


def names(folder: Path) -> set[str]:
    return {found.name for found in folder.rglob("*")}


def test_a_spool_is_found_again_by_its_names(tmp_path: Path) -> None:
    """The next process of the same application and reporter gets the same file, once the first has let go."""
    first = claim(tmp_path, "shop", "audit")
    first.release()
    second = claim(tmp_path, "shop", "audit")
    assert second.path == first.path
    second.release()


@pytest.mark.parametrize(
    ("application", "reporter"),
    [("shop", "mirror"), ("Shop", "audit"), ("shop ", "audit"), ("", "audit"), ("a/../b", "audit"), ("shop", "a/b")],
)
def test_other_names_have_other_files(tmp_path: Path, application: str, reporter: str) -> None:
    """Names that differ in anything differ in their files, and none leads out of the directory."""
    one, other = claim(tmp_path, "shop", "audit"), claim(tmp_path, application, reporter)
    assert one.path != other.path
    assert tmp_path in other.path.resolve().parents
    one.delete()
    other.delete()
    assert names(tmp_path) == set()


def test_two_owners_have_two_files(tmp_path: Path) -> None:
    """Two drivers of one name at the same time do not touch each other's."""
    first, second = claim(tmp_path, "shop", "audit"), claim(tmp_path, "shop", "audit")
    assert (first.folder.name, second.folder.name) == ("audit.0", "audit.1")
    for own in (first, second):
        assert list(orphans(own)) == []
    first.release()
    second.release()


def test_what_the_dead_left_is_found(tmp_path: Path) -> None:
    """The files of dead owners are claimed, one by one; those of the living are not, nor another reporter's."""
    owners = [claim(tmp_path, "shop", "audit") for _ in range(4)]
    other = claim(tmp_path, "shop", "audit.0")
    for dead in (owners[0], owners[3], other):
        dead.release()
    own = claim(tmp_path, "shop", "audit")
    assert own.path == owners[0].path
    (orphan,) = orphans(own)
    assert orphan.path == owners[3].path
    for left in (own, orphan, *owners[1:3]):
        left.release()


def test_a_killed_process_gives_up_its_file(tmp_path: Path) -> None:
    """A lock goes with its process, however that ended."""
    program = (
        "import sys, os, signal; from pathlib import Path; from spark_events.dispatch.spool.files import claim;"
        "own = claim(Path(sys.argv[1]), 'shop', 'audit'); print(own.path, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        taken = Path(process.stdout.readline().decode().strip())
        second = claim(tmp_path, "shop", "audit")
        assert second.path != taken
        second.delete()
        process.kill()
        process.wait()
        third = claim(tmp_path, "shop", "audit")
        assert third.path == taken
        third.release()


FORKS = """
import os, sys
from pathlib import Path
from spark_events.dispatch.spool.files import claim

own = claim(Path(sys.argv[1]), "shop", "audit")
released = claim(Path(sys.argv[1]), "shop", "audit")
released.release()
another = os.open(os.devnull, os.O_RDONLY)
if not os.fork():
    os.fstat(another)
    print(os.getpid(), own.path, flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_a_child_of_a_killed_process_does_not_keep_its_file(tmp_path: Path) -> None:
    """A reporter may fork without calling anything: multiprocessing does. What else the child has open stays open."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        child, taken = process.stdout.readline().decode().split()
        second = claim(tmp_path, "shop", "audit")
        assert str(second.path) != taken
        second.delete()
        process.kill()
        process.wait()
        third = claim(tmp_path, "shop", "audit")
        assert str(third.path) == taken
        third.release()
        assert not is_gone(int(child))


def test_who_lets_go_of_a_file_lets_go_for_those_who_have_its_lock_from_him(tmp_path: Path) -> None:
    """A program that was given all that is open, say, which goes on when the spool is left."""
    own = claim(tmp_path, "shop", "audit")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[own._descriptor]) as other:
        own.release()
        again = claim(tmp_path, "shop", "audit")
        assert again.path == own.path
        again.release()
        assert other.poll() is None


def test_nothing_is_left_of_a_spool_that_is_deleted(tmp_path: Path) -> None:
    """Neither the file nor its log, its folder, its lock, or the application's folder."""
    own = claim(tmp_path, "shop", "audit")
    fill(own, 1, 2)
    own.delete()
    assert names(tmp_path) == set()


def test_a_folder_with_something_in_it_stays(tmp_path: Path) -> None:
    """Whoever leaves last takes it with him."""
    own, other = claim(tmp_path, "shop", "audit"), claim(tmp_path, "shop", "mirror")
    own.delete()
    assert other.folder.is_dir()
    other.delete()
    assert names(tmp_path) == set()


def test_who_leaves_takes_nothing_of_whoever_has_come_since_the_lock_was_removed(tmp_path: Path) -> None:
    """By somebody: then the folder has another owner, whose lock and file stay."""
    first = claim(tmp_path, "shop", "audit")
    lock = first.folder.with_name(f"{first.folder.name}.lock")
    lock.unlink()
    second = claim(tmp_path, "shop", "audit")
    assert second.folder == first.folder
    fill(second, 1)
    first.delete()
    assert second.path.exists()
    third = claim(tmp_path, "shop", "audit")
    assert third.folder != second.folder
    third.delete()
    second.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_never_owned_twice(tmp_path: Path) -> None:
    """Claims and deletions race, and at no moment have two owners the same file."""
    owned: set[Path] = set()
    lock, problems = threading.Lock(), []

    def come_and_go() -> None:
        for round_ in range(150):
            own = claim(tmp_path, "shop", "audit")
            with lock:
                if own.path in owned:
                    problems.append(own.path)
                owned.add(own.path)
            (own.folder / "events.db").write_bytes(b"mine")
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


def test_what_is_set_aside_is_found_until_it_is_put_away(tmp_path: Path) -> None:
    """A damaged file makes room with its log, by one rename; a successor still finds it."""
    own = claim(tmp_path, "shop", "audit")
    fill(own, 1)
    (own.folder / "events.db-wal").write_bytes(b"log")
    own.set_aside()
    assert not own.path.exists()
    own.release()
    successor = claim(tmp_path, "shop", "audit")
    (damaged,) = successor.damaged()
    assert (damaged.parent / "events.db-wal").read_bytes() == b"log"
    kept = successor.put_away(damaged)
    assert successor.damaged() == []
    assert ".corrupt-" in kept.name
    assert (kept / "events.db").exists()
    successor.delete()
    assert kept.exists()


def test_what_was_set_aside_and_nothing_else_is_an_orphan(tmp_path: Path) -> None:
    """An owner that died between setting aside and reading has left no file of the usual name."""
    first, dead = claim(tmp_path, "shop", "audit"), claim(tmp_path, "shop", "audit")
    dead.set_aside()
    dead.folder.rmdir()
    dead.release()
    (orphan,) = orphans(first)
    assert len(orphan.damaged()) == 1
    orphan.release()
    first.release()


def test_a_directory_that_may_not_be_written_is_an_error(closed: Path) -> None:
    """The caller hears the system's own words."""
    with pytest.raises(PermissionError, match="shop-"):
        claim(closed, "shop", "audit")


def test_a_file_where_the_directory_should_be_is_an_error(tmp_path: Path) -> None:
    """As above, for everybody."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        claim(tmp_path / "file", "shop", "audit")


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Whatever is not said is allowed to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_only_the_owner_may_read(tmp_path: Path, no_umask: None) -> None:
    """What applications fail of is nobody else's business: folders 0700, files 0600."""
    own = claim(tmp_path / "state" / "spool", "shop", "audit")
    fill(own, 1)
    assert (tmp_path / "state").stat().st_mode & 0o777 == (tmp_path / "state" / "spool").stat().st_mode & 0o777 == 0o700
    modes = {found.name: found.stat().st_mode & 0o777 for found in (tmp_path / "state" / "spool").rglob("*")}
    assert {mode for name, mode in modes.items() if name.startswith("events.db") or name.endswith(".lock")} == {0o600}
    assert modes["audit.0"] == modes[own.folder.parent.name] == 0o700
    own.release()


def test_the_size_is_that_of_what_was_set_aside_as_well(tmp_path: Path) -> None:
    """Its owner was killed before it had read it: all of that would come."""
    own = claim(tmp_path, "shop", "audit")
    fill(own, 1)
    before = own.size()
    own.set_aside()
    assert own.size() == before > 0
    fill(own, 2)
    assert own.size() == 2 * before
    own.release()


def test_a_lock_that_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system has none, somebody must find out which one that is."""

    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match=rf"No locks available: '{tmp_path}/.*\.lock'"):
        claim(tmp_path, "shop", "audit")
