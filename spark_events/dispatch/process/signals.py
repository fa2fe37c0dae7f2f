"""Handle signals that are meant for the driver but also reach this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType

__all__ = ["leave_signals_alone"]

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def leave_signals_alone() -> None:
    """Survive signals that end the driver, such as Ctrl-C or SIGTERM.

    This process ends after the driver. Only the main thread may call this.
    """
    # Use a handler instead of SIG_IGN: the reporter's subprocesses would inherit SIG_IGN and could not be terminated.
    # Keep SIG_IGN if it is already set, for example by nohup.
    numbers = [one for one in _NUMBERS if signal.getsignal(one) is not signal.SIG_IGN]
    for number in numbers:
        signal.signal(number, _nothing)
        # Restart interrupted system calls, so that libraries written in C are not disturbed.
        signal.siginterrupt(number, False)
    # Restore the default handling in processes that a reporter forks.
    os.register_at_fork(after_in_child=lambda: _have_their_way(numbers))


def _have_their_way(numbers: Sequence[signal.Signals]) -> None:
    for number in numbers:
        # This is allowed only in the main thread; after a fork, the forking thread is the main thread.
        signal.signal(number, signal.SIG_DFL)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Ignore the signal, which is meant for the driver."""
