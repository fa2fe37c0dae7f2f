"""When a file that could not be read is tried again: less and less often."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Attempts"]

_LOG = logging.getLogger(__name__)
#: When it is tried again, in seconds, doubling: at the next look at first.
_FIRST_SECONDS, _MOST_SECONDS = 4.0, 300.0


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
        self._said: set[str] = set()

    def is_due(self, path: Path) -> bool:
        """Whether it may be tried now."""
        return path not in self._pauses or self._clock() >= self._pauses[path][1]

    def failed(self, path: Path, what: str, error: Exception) -> None:
        """It was tried in vain."""
        pause = min(self._pauses[path][0] * 2, _MOST_SECONDS) if path in self._pauses else _FIRST_SECONDS
        self._pauses[path] = pause, self._clock() + pause
        self.say(what, error)

    def succeeded(self, path: Path) -> None:
        """It need not be tried again."""
        self._pauses.pop(path, None)

    def say(self, what: str, error: Exception) -> None:
        """Into the log, if it has not been said."""
        if str(error) not in self._said:
            self._said.add(str(error))
            _LOG.error("reporter %s: %s: %s", self._reporter, what, error)
