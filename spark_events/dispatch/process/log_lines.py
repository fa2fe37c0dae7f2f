"""Forward log lines from a process that also runs third-party code.

That code may log, and may reconfigure logging.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from spark_events.dispatch.calls import describe
from spark_events.event.text import said_of
from spark_events.reporters.log import DRIVER_LOGGER

_OWN = "spark_events"
_MOST_QUOTED = 200


class LogLines(logging.Handler):
    """Log handler that forwards lines and never raises.

    Callers of ``logging`` rely on it not to raise errors.

    Attributes:
        hide: removes secrets from the lines of third-party loggers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hide: Callable[[str], str] = str
        self._root, self._own = logging.getLogger(), logging.getLogger(_OWN)
        self._events = logging.getLogger(DRIVER_LOGGER)
        self._events.__class__ = _AlwaysOn
        # The reporter's filter and the driver's logging configuration select the events, so no level applies here.
        self._events.setLevel(1)
        # Set the level here, so that it does not depend on the root logger's level.
        self._own.setLevel(logging.WARNING)

    def tell(self, logger: str, level: int, line: str) -> None:
        """Forward a line; subclasses implement this."""
        raise NotImplementedError

    def handle(self, record: logging.LogRecord) -> bool:
        # Users may log at lower levels to their own files; the driver's log receives only warnings and events.
        if record.levelno >= logging.WARNING or record.name == DRIVER_LOGGER:
            with contextlib.suppress(Exception):
                self.tell(str(record.name), record.levelno, self._line_of(record))
        return True

    def _line_of(self, record: logging.LogRecord) -> str:
        """Return the record as text, even if its formatting fails."""
        try:
            line = self.format(record)
        except Exception as error:
            line = f"{said_of(record.msg, _MOST_QUOTED)} (cannot be formatted: {describe(error)})"
        # Events stay complete, and secrets in our own lines are already hidden.
        return line if _is_ours(record.name) or record.name == DRIVER_LOGGER else self.hide(line)

    def connect(self) -> None:
        """Attach this handler again, in case a module has reconfigured logging.

        This takes none of the locks of ``logging``: a thread that reconfigures logging may block while it holds them.
        """
        for logger in (self._root, self._own, self._events):
            # Our loggers bypass the root logger, which third-party code usually reconfigures.
            logger.propagate = logger is self._root
            if self not in logger.handlers:
                logger.handlers.append(self)
        for name, known in logging.root.manager.loggerDict.copy().items():
            if _is_ours(name) and isinstance(known, logging.Logger):
                known.__class__ = _AlwaysOn


class _AlwaysOn(logging.Logger):
    """Logger that cannot be disabled.

    ``dictConfig`` disables every logger that it does not list, and ``logging.disable`` disables all loggers.
    """

    @property
    def disabled(self) -> bool:
        return False

    @disabled.setter
    def disabled(self, _: bool) -> None: ...

    def isEnabledFor(self, level: int) -> bool:
        return level >= self.getEffectiveLevel()


def _is_ours(name: str) -> bool:
    return name == _OWN or name.startswith(f"{_OWN}.")
