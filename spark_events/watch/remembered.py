"""What a watcher remembers between two runs of the command: a small file in this user's state directory.

Without this file, for example in a new container, each check is a first check: it trusts the clocks of the drivers.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from pathlib import Path

import msgspec

from spark_events.clocks import boot
from spark_events.config import state_folder
from spark_events.watch.silence import Observed

_LOG = logging.getLogger(__name__)


class Remembered(msgspec.Struct):
    """Contents of the file.

    Attributes:
        boot: start of the machine at which the monotonic clock began; empty if unknown.
        observed: the signs of life of each run.
        reported: ids of the LOST events that were delivered, of runs that the source still shows as running.
    """

    boot: str = ""
    observed: Observed = msgspec.field(default_factory=Observed)
    reported: list[str] = []


class Memory:
    """File with the memory of one source.

    Args:
        path: path of the file; None: remember nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._cannot_save = False

    @classmethod
    def of(cls, source: str) -> Memory:
        """Return the memory of a source; ``source`` identifies it on this machine."""
        try:
            folder = state_folder() / "watch"
        except RuntimeError:
            # The user has no home directory.
            return cls(None)
        return cls(folder / f"{hashlib.blake2b(source.encode(), digest_size=8).hexdigest()}.json")

    def load(self) -> Remembered:
        """Return what was saved; nothing if the file is missing or damaged."""
        found = Remembered()
        if self._path is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found = msgspec.json.decode(self._path.read_bytes(), type=Remembered)
        if not found.boot or found.boot != boot():
            # Times of another start of the machine cannot be compared with the monotonic clock.
            found.observed = Observed()
        found.boot = boot()
        return found

    def save(self, remembered: Remembered) -> None:
        """Replace the file. An error is only information, because containers often have no state directory."""
        if self._path is None:
            return
        scratch = self._path.with_suffix(f".{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            scratch.write_bytes(msgspec.json.encode(remembered))
            scratch.replace(self._path)
        except OSError as error:
            if not self._cannot_save:
                _LOG.info("cannot write %s, so the next check trusts the drivers' clocks: %s", self._path, error)
            self._cannot_save = True
            with contextlib.suppress(OSError):
                scratch.unlink()
