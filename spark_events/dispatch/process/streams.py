"""Protect the standard streams that a reporter's process uses as its pipes."""

from __future__ import annotations

import os

__all__ = ["take_standard_streams"]


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
