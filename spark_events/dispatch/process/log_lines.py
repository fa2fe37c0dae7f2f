"""The way of log lines out of a process of ours, in which other people's code logs, too, and sets logging up."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from spark_events.dispatch.calls import describe
from spark_events.event.text import said_of
from spark_events.reporters.log import DRIVER_LOGGER

__all__ = ["LogLines"]

_OWN = "spark_events"
_MOST_QUOTED = 200


class LogLines(logging.Handler):
    """Hands lines on, and never raises: logging does not, and those who log count on that.

    Attributes:
        hide: takes out of others' lines what nobody may read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hide: Callable[[str], str] = str
        self._root, self._own = logging.getLogger(), logging.getLogger(_OWN)
        self._events = logging.getLogger(DRIVER_LOGGER)
        self._events.__class__ = _AlwaysOn
        # Which events are wanted, the reporter's filter decides, and the driver's configuration of that logger.
        self._events.setLevel(1)
        # Whatever level somebody gives the root logger.
        self._own.setLevel(logging.WARNING)

    def tell(self, logger: str, level: int, line: str) -> None:
        """To be overridden: hands a line on."""
        raise NotImplementedError

    def handle(self, record: logging.LogRecord) -> bool:
        # Who sets logging up for files of his own may want everything there; the driver's log is for warnings.
        if record.levelno >= logging.WARNING or record.name == DRIVER_LOGGER:
            with contextlib.suppress(Exception):
                self.tell(str(record.name), record.levelno, self._line_of(record))
        return True

    def _line_of(self, record: logging.LogRecord) -> str:
        """A record as text, whatever is wrong with it."""
        try:
            line = self.format(record)
        except Exception as error:
            line = f"{said_of(record.msg, _MOST_QUOTED)} (cannot be formatted: {describe(error)})"
        # Of an event nothing is taken, and what we quote ourselves has been looked at.
        return line if _is_ours(record.name) or record.name == DRIVER_LOGGER else self.hide(line)

    def connect(self) -> None:
        """Sees to it that lines come here, also where a module has set logging up since, which cuts off all others.

        Without the locks of logging: who sets it up, and blocks in that, may hold them.
        """
        for logger in (self._root, self._own, self._events):
            # Ours do not go by the root logger, which is the one that everybody sets up.
            logger.propagate = logger is self._root
            if self not in logger.handlers:
                logger.handlers.append(self)
        for name, known in logging.root.manager.loggerDict.copy().items():
            if _is_ours(name) and isinstance(known, logging.Logger):
                known.__class__ = _AlwaysOn


class _AlwaysOn(logging.Logger):
    """One that nobody switches off: ``dictConfig`` does all that it does not know, ``logging.disable`` every one."""

    @property
    def disabled(self) -> bool:
        return False

    @disabled.setter
    def disabled(self, _: bool) -> None: ...

    def isEnabledFor(self, level: int) -> bool:
        return level >= self.getEffectiveLevel()


def _is_ours(name: str) -> bool:
    return name == _OWN or name.startswith(f"{_OWN}.")
