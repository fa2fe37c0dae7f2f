"""Marks of the runs of one application in a spool directory, which show the next run how this run has ended.

On disk, beside the spool files of the reporters::

    shop-3f2a9c01/run~.0.lock          flock held by the run's sidecar; contains the identity of its driver
                  run~.0/start.json    identity and attributes of the run; its time shows that the run is alive
                  run~.0/end.json      end of the run, stored by a driver without a sidecar

Life of a mark::

    placed ──▶ touched every 10 s ──▶ deleted by its own run, at the orderly end
                      │
                      ├── end.json ──────────────▶ ENDED ─┐ reported
                      └── no sidecar, no touch ──▶ LOST ──┴──────────▶ deleted by the next run

A driver without a sidecar stores the end instead of starting a last sidecar for it: the case is rare, and a sidecar
that died ten times dies again.

A mark is deleted only after its run was reported, and written only as a whole, so neither a full or read-only disk nor
a kill destroys the evidence.

A free lock proves the death of a run on this machine, since its last start. The lock of a run on another machine may be
free although the run is alive, because some file systems keep locks on each machine. Such a run is dead when its mark
is not touched any more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from spark_events.clocks import Clocks, boot
from spark_events.dispatch.spool.ownership import SpoolFolder, SpoolFolders
from spark_events.event import AttributeValue, Event
from spark_events.records.types import ApplicationStart
from spark_events.watch.lost import late_end, lost_event
from spark_events.watch.mark_files import delete, end_of, identity_of, read, touch, write

_LOG = logging.getLogger(__name__)
#: Name of the folder of a run; not a valid name for a reporter, whose spool files have the same parent folder.
_RUN = "run~"
_NEXT_RUN = "detected at the start of the next run"
_LOST = f"its driver died without reporting its end; {_NEXT_RUN}"
_LATE = "reported by the next run, because the sidecar had died"


@dataclasses.dataclass(frozen=True, slots=True)
class MarkConfig:
    """Times of marks, in seconds.

    Attributes:
        touch: interval at which a run touches its mark.
        missed: number of missing touches after which a run on another machine is dead.
        certain: age of a mark at which a run on another machine is dead at first sight.
    """

    touch: float = 10.0
    missed: int = 6
    certain: float = 600.0


class _Touch(NamedTuple):
    """Time of a mark's file, and the time of the monotonic clock at which it was first seen."""

    at: int
    since: float


class LeftMark:
    """Mark of a run that is over, which this process owns.

    Args:
        folder: the mark's folder; its lock is held.
        start: identity of the run.
        scope: the run's attributes and the key of its incident.
        at: time of the last touch, in milliseconds since the epoch.
        end: the driver's record of the end; None for a lost run.
    """

    def __init__(
        self,
        folder: SpoolFolder,
        start: ApplicationStart,
        scope: Mapping[str, AttributeValue],
        at: int,
        end: bytes | None,
    ) -> None:
        self._folder = folder
        self._start = start
        self._scope = scope
        self._at = at
        self._end = end

    @property
    def identity(self) -> tuple[str, str]:
        """Id and attempt of the run's application."""
        return identity_of(self._start)

    def events(self) -> list[Event]:
        """Return the events that report the run's end, or its loss."""
        if self._end is not None:
            return late_end(self._start, self._scope, self._at, self._end, _LATE)
        return [lost_event(self._start, self._scope, self._at, 0, _LOST)]

    def delete(self) -> None:
        """Delete the mark, after its run was reported."""
        delete(self._folder, "the next run reports this loss again")


class Marks:
    """Marks of one application, and the mark of this run.

    Args:
        directory: directory of the spool.
        start: identity of this run.
        scope: this run's attributes and the key of its incident.
        driver: identity of this run's driver; '' if unknown.
        clocks: the clocks of this process.
        config: times of marks.
    """

    def __init__(
        self,
        directory: Path,
        start: ApplicationStart,
        scope: Mapping[str, AttributeValue],
        driver: str,
        clocks: Clocks,
        config: MarkConfig,
    ) -> None:
        self._folders = SpoolFolders(directory, start.app_name, _RUN, driver)
        self._start = start
        self._scope = dict(scope)
        self._driver = driver
        self._clocks = clocks
        self._config = config
        self._own: SpoolFolder | None = None
        self._touched: dict[Path, _Touch] = {}
        # Folders of left marks, which this process owns; and the problems that were logged.
        self._left: set[Path] = set()
        self._logged: set[str] = set()

    def place(self) -> Path | None:
        """Mark this run as running, or touch its mark; return the folder of a new mark.

        Errors are logged once; call this method again at the next touch.
        """
        try:
            if self._own is not None and touch(self._own.folder):
                return None
            own = self._own = self._own or self._claimed()
            write(own.folder, self._start, self._scope)
            return own.folder
        except OSError as error:
            self._log(f"cannot mark this run as running, so the next run may not report a loss of this run: {error}")
            return None

    def _claimed(self) -> SpoolFolder:
        """Acquire the folder of an earlier sidecar of this run, or else a new folder.

        Raises:
            OSError: when there is no such folder.
        """
        for folder in self._folders.used_by_driver():
            with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
                start, _, _ = read(folder.folder)
                if identity_of(start) == identity_of(self._start) and folder.acquire():
                    return folder
        return self._folders.claim_new()

    def remove(self) -> None:
        """Delete the mark of this run, which has ended."""
        own, self._own = self._own, None
        if own is not None:
            delete(own, "the next run reports this run as LOST")

    def left(self) -> Iterator[LeftMark]:
        """Yield each mark of a run that is over, once; call this method at each touch."""
        try:
            found = self._folders.found()
        except OSError as error:
            self._log(f"cannot read the spool directory, so a lost earlier run is not reported: {error}")
            return
        for folder in found:
            if folder.folder in self._left or (self._own is not None and folder.folder == self._own.folder):
                continue
            try:
                left = self._judged(folder)
            except OSError as error:
                self._log(f"cannot read {folder.folder}, so a loss of its run is not reported: {error}")
                continue
            if left is not None:
                self._left.add(folder.folder)
                yield left

    def _judged(self, folder: SpoolFolder) -> LeftMark | None:
        """Return the mark if its run is over, with its lock held; None if the run may be alive, or is not of interest.

        Raises:
            OSError: when the mark cannot be read.
        """
        if folder.is_needed_by_another(self._driver) or not folder.acquire_to_read():
            return None
        with contextlib.ExitStack() as undo:
            undo.callback(folder.release)
            is_here = bool(boot()) and folder.driver.startswith(boot())
            try:
                start, scope, touched = read(folder.folder)
            except FileNotFoundError:
                # A run was killed while it placed or deleted its mark; on another machine, it may still be placing it.
                if is_here:
                    undo.pop_all()
                    folder.delete()
                return None
            except msgspec.MsgspecError as error:
                self._log(f"cannot read {folder.folder}, so a lost earlier run is not reported: {error}")
                undo.pop_all()
                delete(folder, "the next run logs this again")
                return None
            if scope.get("incident.key", self._scope.get("incident.key")) != self._scope.get("incident.key"):
                # A run of the same name in another environment.
                return None
            if identity_of(start) == identity_of(self._start):
                # The mark of an earlier sidecar of this run.
                undo.pop_all()
                delete(folder, "the next run reports this run as LOST")
                return None
            end = end_of(folder.folder)
            if end is None and folder.driver == self._driver != "":
                # An earlier application of this driver, which is alive.
                end = b""
            if end is None and not is_here and not self._stands_still(folder.folder, touched):
                return None
            undo.pop_all()
            return LeftMark(folder, start, scope, touched // 1_000_000, end)

    def _stands_still(self, folder: Path, touched: int) -> bool:
        """Return whether a mark is no longer touched.

        Compare only times of the same clock: the mark with its own earlier time, or, if it is very old, with the time
        that the file system has given to the mark of this run.
        """
        now = self._clocks.monotonic()
        known = self._touched.get(folder)
        if known is not None and known.at == touched:
            return now - known.since >= self._config.missed * self._config.touch
        self._touched[folder] = _Touch(touched, now)
        if known is not None or self._own is None:
            return False
        try:
            own = read(self._own.folder).touched
        except (OSError, msgspec.MsgspecError):
            return False
        return own - touched >= self._config.certain * 1e9

    def _log(self, problem: str) -> None:
        if problem not in self._logged:
            self._logged.add(problem)
            _LOG.warning("%s", problem)
