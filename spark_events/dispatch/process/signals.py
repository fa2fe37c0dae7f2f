"""Signals that are meant for the driver and reach the processes beside it as well."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["leave_signals_alone"]


def leave_signals_alone() -> None:
    """Ctrl-C and a resource manager's SIGTERM end the driver; this process ends after it. For the main thread."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Not ignored: that would be inherited by every program that a reporter starts, which could not be ended then.
        signal.signal(number, _nothing)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """It was not for us."""
