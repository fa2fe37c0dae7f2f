"""What dead processes of the same application have left: it is taken in, or stays where it is safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from spark_events.dispatch.spool import files
from spark_events.dispatch.spool.attempts import Attempts
from spark_events.dispatch.spool.drivers import is_alive
from spark_events.dispatch.spool.files import Claim
from spark_events.dispatch.spool.salvage import say_kept
from spark_events.dispatch.spool.takeover import Takeover, UnreadableError, probe

__all__ = ["Orphans"]

_UNSEEN = "it cannot be seen whether earlier runs have left anything"
_UNREADABLE = "what an earlier run has left cannot be read now, it is tried again"
_UNREMOVABLE = "what an earlier run has left cannot be removed, the next run may deliver it again"

#: A driver that lives starts its sidecar again, after half a minute at most. When none has come, none will.
_SUCCESSOR_SECONDS = 60.0


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

    def find(self, own: Claim, most: int, room: int, on_progress: Callable[[], None]) -> list[Claim]:
        """Looks for them; those that are returned can be read, and belong to this process now.

        Args:
            own: the spool that they are to go to.
            most: those that are larger stay where they are, in bytes.
            room: how much there is in it for all of them.
            on_progress: called now and then, as long as the disk answers.
        """
        found: list[Claim] = []
        try:
            for orphan in self._free(own):
                # Where it is, it is safe; here it would make others go, or keep them waiting for the disk.
                size = self._size(orphan, min(most, room), on_progress)
                if size is None:
                    orphan.release()
                else:
                    room -= size
                    found.append(orphan)
        except OSError as error:
            self._attempts.say(_UNSEEN, error)
        return found

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

    def _size(self, orphan: Claim, most: int, on_progress: Callable[[], None]) -> int | None:
        """In bytes, of one that is no larger and can be read."""
        if not self._attempts.is_due(orphan.folder):
            return None
        try:
            size = orphan.size()
            if size > most:
                return None
            for path in orphan.databases():
                probe(path, on_progress)
        except (OSError, UnreadableError) as error:
            self._attempts.failed(orphan.folder, _UNREADABLE, error)
            return None
        return size

    def adopt_all(self, own: Claim, takeover: Takeover) -> None:
        """Takes in all that there are, however large; what cannot be had stays where it is.

        Args:
            own: the spool that they go to.
            takeover: into it.

        Raises:
            sqlite3.Error: the own file cannot be used.
        """
        try:
            # One by one: each costs a descriptor as long as it is here.
            for orphan in self._free(own):
                self._adopt(orphan, takeover)
        except OSError as error:
            self._attempts.say(_UNSEEN, error)

    def adopt(self, found: list[Claim], takeover: Takeover) -> None:
        """Takes in what was found; what cannot be had stays where it is.

        Raises:
            sqlite3.Error: the own file cannot be used.
        """
        left = list(found)
        try:
            while left:
                self._adopt(left.pop(0), takeover)
        finally:
            for orphan in left:
                orphan.release()

    def _adopt(self, orphan: Claim, takeover: Takeover) -> None:
        # Whether there is a file whose events are here already.
        is_taken = False
        try:
            for path in orphan.databases():
                salvage = takeover.add_file(path)
                is_taken = True
                if path == orphan.path and salvage.is_whole:
                    continue
                if path == orphan.path:
                    orphan.set_aside()
                apart = orphan.damaged()[-1] if path == orphan.path else path
                say_kept(self._reporter, salvage, orphan.put_away(apart))
                is_taken = False
            orphan.delete()
            self._attempts.succeeded(orphan.folder)
        except (OSError, UnreadableError) as error:
            if is_taken:
                # It stays with this process: whoever took it again would deliver it again, every few seconds.
                self._attempts.say(_UNREMOVABLE, error)
            else:
                orphan.release()
                self._attempts.failed(orphan.folder, _UNREADABLE, error)
        except BaseException:
            orphan.release()
            raise
