"""The way of log lines out of a process of ours, in which other people's code logs, too, and sets logging up."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from spark_events.dispatch.calls import describe
from spark_events.dispatch.interruption import Uninterrupted
from spark_events.event.text import said_of
from spark_events.reporters.log import DRIVER_LOGGER

__all__ = ["LogLines"]

#: Where what is said is ours, whoever else logs in this process.
_OWN = ("spark_events", DRIVER_LOGGER)
_MOST_QUOTED = 200


class LogLines(logging.Handler):
    """Hands lines on, and never raises: logging does not, and those who log count on that."""

    def __init__(self) -> None:
        super().__init__()
        #: Takes out of a line what nobody may read.
        self.hide: Callable[[str], str] = str

    #: By this the `log` reporter knows that its lines arrive.
    leads_to_driver = True

    def createLock(self) -> None:
        # What lines go to has a lock that is never left taken; logging's own is, by a thread that was interrupted.
        self.lock = None

    def tell(self, logger: str, level: int, line: str) -> None:
        """To be overridden: hands a line on."""
        raise NotImplementedError

    def line_of(self, record: logging.LogRecord) -> str:
        """A record as text, whatever is wrong with it."""
        try:
            return self.format(record)
        except Exception as error:
            return f"{said_of(record.msg, _MOST_QUOTED)} (cannot be formatted: {describe(error)})"

    def handle(self, record: logging.LogRecord) -> bool:
        with Uninterrupted(), contextlib.suppress(OSError):
            line = self.line_of(record)
            # Of an event, nothing is taken: who may read it, its reporter's configuration says.
            self.tell(record.name, record.levelno, line if record.name == DRIVER_LOGGER else self.hide(line))
        return True

    def connect(self) -> None:
        """Sees to it that lines come here, also where a module has set logging up since, which cuts off all others."""
        for name in (None, *_OWN):
            logger = logging.getLogger(name)
            if self not in logger.handlers:
                logger.addHandler(self)
            # Ours do not go by the root logger, which is the one that everybody sets up.
            logger.propagate = name is None
        for name, known in list(logging.root.manager.loggerDict.items()):
            if isinstance(known, logging.Logger) and name.startswith(_OWN):
                known.disabled = False
