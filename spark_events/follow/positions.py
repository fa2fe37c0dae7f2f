"""How far each log has been delivered: one JSON file, which is replaced as a whole.

A position is stored only after every event before it was delivered. So a process that is killed at any moment repeats
some events, with the same ids, and loses none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from spark_events.errors import SparkEventsError
from spark_events.records.event_log.log_files import Position

_VERSION = 1


class StoredLog(msgspec.Struct, omit_defaults=True):
    """Progress in one log.

    Attributes:
        number: see :class:`Position`.
        name: see :class:`Position`.
        offset: see :class:`Position`.
        part: number of the log's last part when it was last read.
        size: size of this part in bytes.
        is_over: whether the application has ended, so that the log is not read again.
        is_lost: whether the application was reported as LOST.
        is_history: whether nobody is notified of the log's events.
    """

    number: int = -1
    name: str = ""
    offset: int = 0
    part: int = -1
    size: int = -1
    is_over: bool = False
    is_lost: bool = False
    is_history: bool = False

    @property
    def position(self) -> Position:
        """The position up to which all events were delivered."""
        return Position(self.number, self.name, self.offset)

    def move(self, position: Position) -> None:
        """Set the position."""
        self.number, self.name, self.offset = position


class _File(msgspec.Struct):
    version: int = _VERSION
    knows_folder: bool = False
    logs: dict[str, StoredLog] = {}


class PositionFile:
    """File with the positions of the logs of one folder.

    Args:
        path: the file.

    Attributes:
        logs: progress in each log, by the log's key.
        knows_folder: whether the folder has been read completely once.

    Raises:
        SparkEventsError: when the file is damaged or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_File)
        except FileNotFoundError:
            found = _File()
        except OSError as error:
            raise SparkEventsError(f"cannot read {path}: {error.strerror}") from None
        except msgspec.MsgspecError as error:
            raise SparkEventsError(
                f"{path}: not a file of positions ({error}); delete it to read all logs again, with the same event ids"
            ) from None
        if found.version != _VERSION:
            raise SparkEventsError(f"{path}: written by another version; delete it, or pass another --state FILE")
        self.logs = found.logs
        self.knows_folder = found.knows_folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this file, which the system releases when the process dies.

        Raises:
            SparkEventsError: when another process holds the lock, or the folder cannot be written.
        """
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = open(f"{self._path}.lock", "wb")  # noqa: SIM115
        except OSError as error:
            raise SparkEventsError(f"cannot write {self._path}: {error.strerror}; pass --state FILE") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SparkEventsError(
                    f"{self._path}: another process follows these logs; stop it, or pass another --state FILE"
                ) from None
            yield

    def forget_others(self, keys: Collection[str]) -> None:
        """Forget the logs that no longer exist."""
        self.logs = {key: stored for key, stored in self.logs.items() if key in keys}

    def save(self) -> None:
        """Replace the file.

        Raises:
            SparkEventsError: when the file cannot be written.
        """
        scratch = Path(f"{self._path}.new")
        try:
            with scratch.open("wb") as file:
                file.write(msgspec.json.encode(_File(_VERSION, self.knows_folder, self.logs)))
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
        except OSError as error:
            raise SparkEventsError(f"cannot write {self._path}: {error.strerror}") from None
