"""Set-up of the processes that serve a pipe: signals and standard streams."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType

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


def take_standard_streams() -> tuple[int, int]:
    """Move standard input and output to private descriptors; return both.

    Afterwards, a reporter's prints appear on standard error, and its subprocesses get an empty standard input instead
    of the requests. Processes that a reporter forks do not keep the descriptors: a surviving copy would hide the death
    of this process from the sidecar.

    Returns:
        The descriptor for reading and the descriptor for writing.
    """
    streams = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)

    def let_go() -> None:
        for stream in streams:
            os.dup2(0, stream, inheritable=False)

    os.register_at_fork(after_in_child=let_go)
    return streams
