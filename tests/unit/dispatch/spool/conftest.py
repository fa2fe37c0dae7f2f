"""Spools in a folder of the test's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes import PATIENCE, event, eventually, numbers

from spark_events import Severity
from spark_events.dispatch.entries import Entries, Entry
from spark_events.dispatch.spool import attempts
from spark_events.dispatch.spool.clerk import Clerk
from spark_events.dispatch.spool.config import SpoolConfig
from spark_events.dispatch.spool.spool import Spool
from spark_events.dispatch.store import Counts


class Owner:
    """A spool with a clerk that works, and what a reporter's worker does with it."""

    def __init__(self, directory: Path, application: str = "shop", reporter: str = "audit", **config: Any) -> None:
        settings = SpoolConfig(directory=str(directory), **config)
        self.clerk: Clerk
        clerk = partial(self._clerk, application, reporter, settings)
        self.spool = Spool(1024, clerk, lambda: None, lambda: None, settings.max_size)
        self._record = 0
        self.spool.start()
        # Which of two has come first must be known.
        eventually(lambda: self.clerk._opening.was_open or self.clerk.is_failing)

    def _clerk(self, application: str, reporter: str, settings: SpoolConfig, spool: Spool) -> Clerk:
        self.clerk = Clerk(application, reporter, settings, spool)
        return self.clerk

    def put(self, *which: int, severity: Severity = Severity.INFO, places: int = 1, **attributes: Any) -> None:
        """Events of these numbers, each from a record of its own."""
        entries = [
            Entry(self._record + place, event(n, severity, **attributes), places) for place, n in enumerate(which, 1)
        ]
        self._record += len(which)
        self.spool.put(Entries(entries))

    def write(self, *which: int, **about: Any) -> None:
        """The same, and waits until they are on disk."""
        self.put(*which, **about)
        assert self.spool.wait_until_answered(PATIENCE)

    def deliver(self, count: int) -> list[int]:
        """Takes and settles so many, as they come."""
        told: list[int] = []
        while len(told) < count:
            some = partial(self.spool.take, min(5, count - len(told)))
            told += numbers(eventually(some, what=f"{count} events, there were {told}"))
            self.spool.settle()
        return told

    def counts(self) -> Counts:
        """The account, which balances."""
        counts = self.spool.counts()
        assert counts.accepted == counts.delivered + sum(counts.dropped.values()) + counts.spooled + counts.held
        return counts

    def close(self) -> None:
        """With as much time as it takes."""
        self.spool.close(time.monotonic() + PATIENCE)

    @property
    def file(self) -> Path:
        """The database."""
        claimed = self.clerk._opening._claim
        assert claimed is not None
        return claimed.path


def counting(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[None]:
    """Grows with every call of that method, which does what it does."""
    calls: list[None] = []
    method = getattr(owner, name)

    def called(*arguments: Any, **options: Any) -> Any:
        calls.append(None)
        return method(*arguments, **options)

    monkeypatch.setattr(owner, name, called)
    return calls


def tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read is tried again at every look."""
    monkeypatch.setattr(attempts, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(attempts, "_MOST_SECONDS", 0.0)


@contextlib.contextmanager
def somebody_reads(path: Path) -> Iterator[None]:
    """As a person does who has a look with ``sqlite3``, and leaves it open in the middle of a SELECT."""
    db = sqlite3.connect(path, check_same_thread=False)
    cursor = db.execute("SELECT id FROM events")
    cursor.fetchone()
    try:
        yield
    finally:
        db.close()


def write_slices(one: Owner, numbers: Iterable[int]) -> None:
    """In several writes: only so much is taken at once."""
    all_ = list(numbers)
    for start in range(0, len(all_), 500):
        one.write(*all_[start : start + 500])


@pytest.fixture
def closed() -> Iterator[Path]:
    """A directory in which nothing may be made; for root, for whom there are no permissions, as somebody else."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


Open = Callable[..., Owner]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Open]:
    """Opens spools below ``tmp_path``; they are closed at the end of the test."""
    opened: list[Owner] = []

    def _open(directory: Path = tmp_path, **options: Any) -> Owner:
        opened.append(Owner(directory, **options))
        return opened[-1]

    yield _open
    for one in opened:
        one.close()
