"""Ending a thread that somebody else's code keeps: the interpreter can raise something in it.

CPython's ``PyThreadState_SetAsyncExc``. It arrives with the next instruction of Python, so a loop that spins ends at
once; a call that blocks outside Python ends when it comes back, which may be never.

What arrives anywhere must not arrive just anywhere: between a lock that was taken and the ``try`` that would let it
go, it leaves the lock taken for ever, and with it all who need it. So it is sent only to a thread that is inside
somebody else's code, it has arrived before that code is left, and what of ours such code calls keeps it off.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from types import TracebackType

__all__ = ["Interrupted", "Interruptible", "Uninterrupted", "let_go_of_logging"]


class Interrupted(BaseException):
    """Raised in a thread that was given up; not an Exception, so that ``except Exception`` lets it pass."""


class Interruptible:
    """A stretch of one thread's way that another thread may cut off; for ``with``.

    Whoever was interrupted in it leaves it with :class:`Interrupted`, whatever the code inside has caught or raised,
    and cannot enter it again.
    """

    def __init__(self) -> None:
        # Taken again by its owner, should the interruption arrive just when it was taken.
        self._lock = threading.RLock()
        self._thread: int | None = None
        self._kept_off = 0
        self._wanted = False

    def __enter__(self) -> None:
        with self._lock:
            if self._wanted:
                raise Interrupted
            _inside.stretch = self
            self._thread = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            _inside.stretch = None
            thread, self._thread = self._thread, None
            if not self._wanted:
                return
            # Should it be on its way still, it is not to arrive out there.
            _raise_in(thread, None)
        if kind is None or not issubclass(kind, (Interrupted, GeneratorExit)):
            raise Interrupted

    def interrupt(self) -> None:
        """From another thread: raises :class:`Interrupted` in the one that is inside, as soon as it runs Python."""
        with self._lock:
            self._wanted = True
            if not self._kept_off:
                _raise_in(self._thread, Interrupted)

    def keep_off(self) -> None:
        """From the thread inside: until :meth:`let_in` nothing arrives."""
        with self._lock:
            self._kept_off += 1
            if self._wanted:
                _raise_in(self._thread, None)
        # Outside of the lock, so that it is let go whatever happens.
        if self._wanted:
            self.let_in()

    def let_in(self) -> None:
        """From the thread inside: what was kept off arrives now."""
        with self._lock:
            self._kept_off -= 1
        if self._wanted and not self._kept_off:
            raise Interrupted


class _Inside(threading.local):
    stretch: Interruptible | None = None


_inside = _Inside()


class Uninterrupted:
    """Code of ours that somebody else's code may call, and that shares something with other threads; for ``with``."""

    def __enter__(self) -> None:
        if _inside.stretch is not None:
            _inside.stretch.keep_off()

    def __exit__(self, *_: object) -> None:
        if _inside.stretch is not None:
            _inside.stretch.let_in()


def _raise_in(thread: int | None, error: type[BaseException] | None) -> None:
    """Raises it in that thread; None takes back what has not arrived yet."""
    if thread is None:
        return
    # Another interpreter than CPython, one without ctypes, no descriptor left to read it: the thread goes on.
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import ctypes

        given = None if error is None else ctypes.py_object(error)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)


def let_go_of_logging() -> None:
    """For a thread that was interrupted: of the locks of ``logging``, which all threads share, it keeps none.

    Its handlers are locked by ``acquire()`` before a ``try``, which leaves a gap between the two. Locks that a
    reporter's library has of its own are that library's affair.
    """
    handlers = [reference() for reference in list(getattr(logging, "_handlerList", ()))]
    for lock in [getattr(logging, "_lock", None), *(getattr(handler, "lock", None) for handler in handlers)]:
        is_owned = getattr(lock, "_is_owned", None)
        while lock is not None and is_owned is not None and is_owned():
            lock.release()
