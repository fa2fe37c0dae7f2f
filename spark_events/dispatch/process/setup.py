"""Set-up of processes that serve a pipe: signals, standard streams, and the log handler."""

from __future__ import annotations

import abc
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType

from spark_events.dispatch.reporter_calls import describe
from spark_events.event.text import text_of
from spark_events.reporters.log_reporter import DRIVER_LOGGER, TAG

_OWN = "spark_events"
_MOST_QUOTED = 200


class LogLines(logging.Handler, abc.ABC):
    """Log handler that forwards lines and never raises.

    Code that logs does not expect ``logging`` to raise errors.

    Attributes:
        hide: removes secrets from the lines of third-party loggers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hide: Callable[[str], str] = str
        self._root, self._own = logging.getLogger(), logging.getLogger(_OWN)
        self._events = logging.getLogger(DRIVER_LOGGER)
        self._events.__class__ = _AlwaysOn
        # Pass events of every level: the reporter's filter and the driver's logging configuration select them.
        self._events.setLevel(1)
        # Set this logger's own level; otherwise the root logger's level would apply.
        self._own.setLevel(logging.WARNING)

    @abc.abstractmethod
    def write(self, logger: str, level: int, line: str) -> None:
        """Forward the line of one log record."""

    def handle(self, record: logging.LogRecord) -> bool:
        # Forward only warnings and events to the driver's log. Users may write lower levels to files of their own.
        if record.levelno >= logging.WARNING or record.name == DRIVER_LOGGER:
            line = self._line_of(record)
            try:
                self.write(str(record.name), record.levelno, line)
            except Exception as error:
                # Use standard error, which this process shares with the driver; nothing else is left.
                why = f"this line cannot be forwarded to the driver's log: {describe(error)}"
                lost = f"{TAG} {record.name}: {line} ({why})\n"
                with contextlib.suppress(OSError):
                    os.write(2, lost.encode("utf-8", "replace"))
        return True

    def _line_of(self, record: logging.LogRecord) -> str:
        """Return the record as a string, even if its formatting fails."""
        try:
            line = self.format(record)
        except Exception as error:
            line = f"{text_of(record.msg, _MOST_QUOTED)} (cannot be formatted: {describe(error)})"
        # Hide secrets only in lines of third-party loggers: events must stay complete, and this package's own lines
        # contain no secrets.
        return line if _is_ours(record.name) or record.name == DRIVER_LOGGER else self.hide(line)

    def connect(self) -> None:
        """Attach this handler again, in case a module has reconfigured logging.

        This method acquires no lock of ``logging``, because a thread that reconfigures logging may block while holding
        it.
        """
        for logger in (self._root, self._own, self._events):
            # Attach the handler to this package's loggers and not to the root logger, which third-party code often
            # reconfigures.
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


_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore_driver_signals() -> None:
    """Survive signals that end the driver, such as Ctrl-C or SIGTERM.

    This process must exit after the driver, because it delivers the driver's last events. Only the main thread may call
    this function.
    """
    # Use a handler instead of SIG_IGN, because the reporter's subprocesses would inherit SIG_IGN and could not be
    # terminated. Keep a SIG_IGN that is already set, for example by nohup.
    numbers = [one for one in _NUMBERS if signal.getsignal(one) is not signal.SIG_IGN]
    for number in numbers:
        signal.signal(number, _nothing)
        # Restart interrupted system calls; otherwise libraries written in C would fail with EINTR.
        signal.siginterrupt(number, False)
    # Restore the default handling in processes that a reporter forks.
    os.register_at_fork(after_in_child=lambda: _restore_default_handlers(numbers))


def _restore_default_handlers(numbers: Sequence[signal.Signals]) -> None:
    for number in numbers:
        # Only the main thread may set handlers. After a fork, the forking thread is the child's main thread.
        signal.signal(number, signal.SIG_DFL)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Ignore the signal, which is meant for the driver."""


def take_standard_streams() -> tuple[int, int]:
    """Move standard input and output to private descriptors; return both.

    Afterwards, a reporter's ``print`` writes to standard error. The reporter's subprocesses have an empty standard
    input, so they cannot read the requests. Processes that a reporter forks do not inherit the descriptors, because an
    open copy would hide the end of this process from the sidecar.

    Returns:
        The descriptor for reading and the descriptor for writing.
    """
    streams = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)

    def close_descriptors() -> None:
        for stream in streams:
            os.dup2(0, stream, inheritable=False)

    os.register_at_fork(after_in_child=close_descriptors)
    return streams
