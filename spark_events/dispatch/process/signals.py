"""Signals that are meant for the driver and reach the processes beside it as well."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType

__all__ = ["leave_signals_alone"]

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def leave_signals_alone() -> None:
    """Ctrl-C and a resource manager's SIGTERM end the driver; this process ends after it. For the main thread."""
    # Not ignored: that would be inherited by every program that a reporter starts, which could not be ended then. One
    # that is ignored already, as by nohup, is meant to be.
    numbers = [one for one in _NUMBERS if signal.getsignal(one) is not signal.SIG_IGN]
    for number in numbers:
        signal.signal(number, _nothing)
        # What a library waits for in C goes on.
        signal.siginterrupt(number, False)
    # Nor is it meant for processes that a reporter forks.
    os.register_at_fork(after_in_child=lambda: _have_their_way(numbers))


def _have_their_way(numbers: Sequence[signal.Signals]) -> None:
    for number in numbers:
        # Only a main thread may say so, which the thread is that has forked.
        signal.signal(number, signal.SIG_DFL)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """It was not for us."""
