"""Whether the spool's disk works, hangs or is slow."""

from __future__ import annotations

import time

#: How long the dispatcher waits for the disk, in seconds. After a timeout, it waits again only after a faster write.
#: The same limit applies to closing the spool if the disk fails or hangs.
PATIENCE_SECONDS = 0.25


class DiskHealth:
    """State of the disk, from the accesses of the spool writer.

    Args:
        hang_seconds: time in seconds after which a disk access counts as hanging.

    Attributes:
        is_failing: whether the last access failed; only the spool writer changes it.
        hangs: whether the current access hangs.
        is_slow: whether a wait for the disk has timed out, and no faster write has followed.
    """

    def __init__(self, hang_seconds: float) -> None:
        self._hang_seconds = hang_seconds
        self.is_failing = self.hangs = self.is_slow = False
        self._busy_since: float | None = None
        self._overdue: float | None = None

    @property
    def is_usable(self) -> bool:
        """Whether accesses succeed and return."""
        return not (self.is_failing or self.hangs)

    def begin(self) -> None:
        """Note the start of an access."""
        self._busy_since = time.monotonic()

    def end(self) -> bool:
        """Note the end of an access; return whether it had counted as hanging."""
        self._busy_since, hung, self.hangs = None, self.hangs, False
        return hung

    def check(self) -> bool:
        """Return whether the current access hangs, unless an earlier check has already returned so."""
        since, seen, self._overdue = self._busy_since, self._overdue, None
        if since is None or time.monotonic() - since < self._hang_seconds:
            return False
        self._overdue = since
        # Require two consecutive checks, because this process may have been suspended before the first check.
        if since != seen or self.hangs:
            return False
        self.hangs = True
        return True

    def wrote(self) -> None:
        """Note that the current access has written events."""
        self.is_slow = self.is_slow and time.monotonic() - (self._busy_since or 0.0) > PATIENCE_SECONDS


class DiskRetry:
    """Growing pauses after failures of the disk.

    Args:
        first: first pause, in seconds.
        longest: longest pause, in seconds.

    Attributes:
        at: when the next access is allowed, in seconds of ``time.monotonic``.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first = self._pause = first
        self.longest = longest
        self.at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the next access is allowed."""
        return time.monotonic() >= self.at

    def failed(self) -> None:
        """Note a failure, which delays the next access."""
        self.at = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, self.longest)

    def worked(self) -> None:
        """Note an access that succeeded."""
        self._pause = self._first
