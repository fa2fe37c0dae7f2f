"""Standard input and output of a process that speaks by them, and runs other people's code as well."""

from __future__ import annotations

import os

__all__ = ["take_standard_streams"]


def take_standard_streams() -> tuple[int, int]:
    """Takes them to descriptors that nobody knows of, and returns these: where to read, and where to write.

    What a reporter prints goes to standard error then, and a program that it starts finds an empty standard input,
    and not what is meant for this process. Nor does a process have them that a reporter forks: as long as that lived,
    nobody would notice that this one has died.
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
