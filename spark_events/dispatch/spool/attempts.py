"""When a file that could not be read is tried again: less and less often."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["HOPEFUL_SECONDS", "Attempts"]

_LOG = logging.getLogger(__name__)
#: When it is tried again, in seconds, doubling: at the next look at first.
_FIRST_SECONDS, _MOST_SECONDS = 4.0, 300.0
#: Nothing counts as lost before so many seconds of attempts, nor before the pause has grown to so many.
HOPEFUL_SECONDS, _HOPEFUL_PAUSE = 120.0, 60.0


class Attempts:
    """What has failed, and says so: once, however often it is tried.

    Args:
        reporter: its name in the configuration.
        clock: in seconds.
    """

    def __init__(self, reporter: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._reporter = reporter
        self._clock = clock
        # By path: the pause, and when it has passed.
        self._pauses: dict[Path, tuple[float, float]] = {}
        # By path: when it was known first.
        self._since: dict[Path, float] = {}
        self._said: set[str] = set()

    def is_due(self, path: Path) -> bool:
        """Whether it may be tried now."""
        return path not in self._pauses or self._clock() >= self._pauses[path][1]

    def is_patient(self, path: Path) -> bool:
        """Whether what cannot be read now is worth another attempt; else it is taken for damage."""
        if path not in self._since:
            return True
        # Neither many attempts in a moment say much, nor a long time without any.
        return self._clock() - self._since[path] < HOPEFUL_SECONDS or self._pauses[path][0] < _HOPEFUL_PAUSE

    def failed(self, path: Path, what: str, error: Exception) -> None:
        """It was tried in vain; before its time, that changes nothing."""
        self._since.setdefault(path, self._clock())
        if self.is_due(path):
            pause = min(self._pauses[path][0] * 2, _MOST_SECONDS) if path in self._pauses else _FIRST_SECONDS
            self._pauses[path] = pause, self._clock() + pause
        self.say(what, error)

    def succeeded(self, path: Path) -> None:
        """It need not be tried again."""
        self._pauses.pop(path, None)
        self._since.pop(path, None)

    def say(self, what: str, error: Exception) -> None:
        """Into the log, if it has not been said."""
        if str(error) not in self._said:
            self._said.add(str(error))
            _LOG.error("reporter %s: %s: %s", self._reporter, what, error)
