"""What dead processes of the same application have left: it is taken in, or stays where it is safe."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from spark_events.dispatch.spool import files
from spark_events.dispatch.spool.attempts import Attempts
from spark_events.dispatch.spool.connection import is_new, is_sound, open_file
from spark_events.dispatch.spool.database import BEFORE_ALL
from spark_events.dispatch.spool.drivers import is_alive
from spark_events.dispatch.spool.files import Claim
from spark_events.dispatch.spool.inflow import Heir, Inflow, Trail
from spark_events.dispatch.spool.salvage import Salvage, Slice, say_kept
from spark_events.dispatch.spool.takeover import Takeover

__all__ = ["Orphans"]

_UNSEEN = "it cannot be seen whether earlier runs have left anything"
_UNREADABLE = "what an earlier run has left cannot be read now, it is tried again"
_UNREMOVABLE = "what an earlier run has left cannot be removed, the next run may deliver it again"

#: A driver that lives starts its sidecar again, after half a minute at most. When none has come, none will.
_SUCCESSOR_SECONDS = 60.0


@dataclasses.dataclass(slots=True)
class _Coming:
    """An orphan that is read.

    Attributes:
        orphan: this process has it.
        trail: of what has come of it into a file that is in use.
        salvages: by path, how far it has been read.
    """

    orphan: Claim
    trail: Trail | None = None
    salvages: dict[Path, Salvage] = dataclasses.field(default_factory=dict)


class Orphans:
    """The spools of a reporter whose owners are dead. Whatever is wrong with them is no trouble of one's own spool.

    Args:
        reporter: its name in the configuration.
        clock: in seconds.
    """

    def __init__(self, reporter: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._reporter = reporter
        self._clock = clock
        self._attempts = Attempts(reporter)
        # Those of living drivers, and when each was found without an owner.
        self._expecting: dict[Path, float] = {}
        # Of which something has come, and the rest could not be read. They stay with this process: whoever took them
        # again would deliver that again.
        self._begun: dict[Path, _Coming] = {}

    def find(self, own: Claim, on_progress: Callable[[], None], heir: Heir) -> Inflow | None:
        """Looks for one that can be read; it belongs to this process from then on, until it is closed or has come.

        Args:
            own: the spool that it is to go to.
            on_progress: called now and then, as long as the disk answers.
            heir: who gets it.
        """
        for folder in filter(self._attempts.is_due, list(self._begun)):
            if inflow := self._inflow(self._begun.pop(folder), on_progress, heir):
                return inflow
        found = None
        try:
            for orphan in self._free(own):
                if found or not self._attempts.is_due(orphan.folder):
                    orphan.release()
                    continue
                found = self._inflow(_Coming(orphan), on_progress, heir)
        except OSError as error:
            self._attempts.say(_UNSEEN, error)
        return found

    def _inflow(self, coming: _Coming, on_progress: Callable[[], None], heir: Heir) -> Inflow | None:
        coming.trail = coming.trail or Trail(heir)
        inflow = Inflow(self._slices(coming, on_progress), coming.trail, is_own=False)
        return inflow if inflow.advance() else None

    def let_go(self) -> None:
        """What has come of any is looked for anew, by whoever is first."""
        for coming in self._begun.values():
            coming.orphan.release()
        self._begun.clear()

    def _free(self, own: Claim) -> Iterator[Claim]:
        """Those that nobody will come back to."""
        before, self._expecting = self._expecting, {}
        for orphan in files.orphans(own):
            since = before.get(orphan.folder, self._clock())
            is_expected = orphan.driver != own.driver and is_alive(orphan.driver)
            if is_expected and self._clock() - since < _SUCCESSOR_SECONDS:
                self._expecting[orphan.folder] = since
                orphan.release()
            else:
                yield orphan

    def _size(self, orphan: Claim) -> int | None:
        """Bytes of all its files."""
        try:
            return orphan.size()
        except OSError as error:
            self._attempts.failed(orphan.folder, _UNREADABLE, error)
            return None

    def adopt_all(self, own: Claim, takeover: Takeover) -> None:
        """Takes in all that leave half of the spool to what is new; the others come slice by slice.

        Args:
            own: the spool that they go to.
            takeover: into it.

        Raises:
            sqlite3.Error: the own file cannot be used.
        """
        try:
            # One by one: each costs a descriptor as long as it is here.
            for orphan in self._free(own):
                size = self._size(orphan) if self._attempts.is_due(orphan.folder) else None
                # Where it is, it is safe; here it would make others go.
                if size is None or size > takeover.database.room - takeover.database.capacity // 2:
                    orphan.release()
                else:
                    self._adopt(orphan, takeover)
        except OSError as error:
            self._attempts.say(_UNSEEN, error)

    def _adopt(self, orphan: Claim, takeover: Takeover) -> None:
        with contextlib.closing(self._slices(_Coming(orphan), takeover.on_progress)) as slices:
            for piece in slices:
                takeover.add(piece)

    def _slices(self, coming: _Coming, on_progress: Callable[[], None]) -> Generator[Slice]:
        """All that is in it; nothing is left of it when the last was taken, and it is free when this is closed."""
        orphan = coming.orphan
        # Whether there is a file whose events are all here already.
        is_taken = False
        try:
            for path in orphan.databases():
                salvage = coming.salvages.setdefault(path, Salvage(BEFORE_ALL))
                is_patient = self._attempts.is_patient(orphan.folder)
                with open_file(path, on_progress, is_patient) as db:
                    was_new = is_new(db, is_patient)
                    if coming.trail is not None:
                        coming.trail.follow(db if is_sound(db) else None)
                    for piece in salvage.read(db, is_patient):
                        yield piece
                        # It gets on.
                        self._attempts.succeeded(orphan.folder)
                if coming.trail is not None:
                    coming.trail.end()
                is_taken = is_taken or salvage.last > BEFORE_ALL
                if path == orphan.path and (salvage.is_whole or was_new):
                    continue
                if path == orphan.path:
                    orphan.set_aside()
                apart = orphan.damaged()[-1] if path == orphan.path else path
                say_kept(self._reporter, salvage, orphan.put_away(apart))
                del coming.salvages[path]
                is_taken = False
            orphan.delete()
            self._attempts.succeeded(orphan.folder)
        except GeneratorExit:
            orphan.release()
            raise
        except Exception as error:
            if is_taken:
                # It stays with this process, for the same reason.
                self._attempts.say(_UNREMOVABLE, error)
            else:
                self._wait(coming, error)

    def _wait(self, coming: _Coming, error: Exception) -> None:
        folder = coming.orphan.folder
        if coming.trail is not None:
            coming.trail.follow(None)
        if any(salvage.last > BEFORE_ALL for salvage in coming.salvages.values()):
            self._begun[folder] = coming
        else:
            coming.orphan.release()
        self._attempts.failed(folder, _UNREADABLE, error)
