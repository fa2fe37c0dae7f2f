"""Ending a thread that somebody else's code keeps: the interpreter can raise something in it.

CPython's ``PyThreadState_SetAsyncExc``. It arrives with the next instruction of Python, so a loop that spins ends at
once; a call that blocks outside Python ends when it comes back, which may be never.
"""

from __future__ import annotations

import contextlib
import threading

__all__ = ["Interrupted", "interrupt"]


class Interrupted(BaseException):
    """Raised in a thread that was given up; not an Exception, so that ``except Exception`` lets it pass."""


def interrupt(thread: threading.Thread) -> None:
    """Raises :class:`Interrupted` in the thread, as soon as it runs Python."""
    if thread.ident is None or not thread.is_alive():
        return
    # Another interpreter than CPython, one without ctypes, no descriptor left to read it: the thread goes on.
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import ctypes

        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupted))
