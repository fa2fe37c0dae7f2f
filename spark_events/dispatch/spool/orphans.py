"""What dead processes of the same application have left: it is taken in, or stays where it is safe."""

from __future__ import annotations

import logging

from spark_events.dispatch.spool import files
from spark_events.dispatch.spool.files import Claim
from spark_events.dispatch.spool.salvage import say_kept
from spark_events.dispatch.spool.takeover import Takeover, UnreadableError

__all__ = ["Orphans"]

_LOG = logging.getLogger(__name__)


class Orphans:
    """The spools of a reporter whose owners are dead. Whatever is wrong with them is no trouble of one's own spool.

    Args:
        reporter: its name in the configuration.
    """

    def __init__(self, reporter: str) -> None:
        self._reporter = reporter
        self._said: set[str] = set()

    def find(self, own: Claim, most: int | None = None, max_bytes: int = 0) -> list[Claim]:
        """Looks for them; those that are returned belong to this process now.

        Args:
            own: the spool that they are to go to.
            most: those that are larger stay where they are, in bytes; None: all are wanted, however large.
            max_bytes: where not all are wanted, how large the own spool may become by them.
        """
        found: list[Claim] = []
        try:
            room = max_bytes if most is None else max_bytes - own.size()
            for orphan in files.orphans(own):
                size = self._size(orphan)
                # Where it is, it is safe; here it would make others go, or keep them waiting for the disk.
                if size is None or (most is not None and size > min(most, room)):
                    orphan.release()
                else:
                    room -= size
                    found.append(orphan)
        except OSError as error:
            self._say("it cannot be seen whether earlier runs have left anything", error)
        return found

    def _size(self, orphan: Claim) -> int | None:
        try:
            return orphan.size()
        except OSError as error:
            self._say("what an earlier run has left cannot be read now, it is tried again", error)
            return None

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
        try:
            self._take(orphan, takeover)
        except UnreadableError as error:
            orphan.release()
            self._say("what an earlier run has left cannot be read now, it is tried again", error)
        except OSError as error:
            # It stays with this process: whoever took it again would deliver it again, every few seconds.
            self._say("what an earlier run has left cannot be removed, the next run may deliver it again", error)
        except BaseException:
            orphan.release()
            raise

    def _take(self, orphan: Claim, takeover: Takeover) -> None:
        for path in orphan.damaged():
            say_kept(self._reporter, takeover.add_file(path), orphan.put_away(path))
        if orphan.path.exists():
            salvage = takeover.add_file(orphan.path)
            if not salvage.is_whole:
                orphan.set_aside()
                say_kept(self._reporter, salvage, orphan.put_away(orphan.damaged()[-1]))
        orphan.delete()

    def _say(self, what: str, error: Exception) -> None:
        """Once: it is tried again and again."""
        if str(error) not in self._said:
            self._said.add(str(error))
            _LOG.error("reporter %s: %s: %s", self._reporter, what, error)
