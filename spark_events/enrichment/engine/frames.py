"""Which code is the user's: what neither Python, nor an installed library, nor this package brought."""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import sysconfig
import threading
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

__all__ = ["Holder", "frame_of", "holder_of", "is_foreign", "place", "where_raised"]

_OURS = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
# What calls the user's function, or anything else on the loop.
_CALLERS = (_OURS, str(Path(asyncio.__file__).parent))


def frame_of(thread_id: int | None) -> FrameType | None:
    """Where a thread is.

    Until Python 3.12, ``sys._current_frames`` holds a lock while it makes objects. A collection of garbage that begins
    there and meets a ``threading.local`` waits for that same lock, and has the interpreter's meanwhile: the process
    stands still for ever (CPython, gh-106883). So none may begin.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread_id) if thread_id is not None else None
    finally:
        if collects:
            gc.enable()


@functools.lru_cache(maxsize=4096)
def is_foreign(filename: str) -> bool:
    """Whether a file is not the user's own."""
    installed = "/site-packages/" in filename or "/dist-packages/" in filename
    return installed or filename.startswith((_OURS, *_LIBRARIES, "<frozen ", "<string>"))


def place(code: CodeType, line: int | None) -> str:
    """As ``file:line in function``."""
    return f"{code.co_filename}:{line} in {getattr(code, 'co_qualname', code.co_name)}"


class Holder(NamedTuple):
    """Who has the loop's thread.

    Attributes:
        entry: the call that the loop made: of the user's function, or of something it has left running.
        mine: the innermost frame of the user's own code; of a function that is installed as a library, its entry.
        inside: where it is.
    """

    entry: FrameType
    mine: FrameType
    inside: FrameType

    def told(self) -> str:
        """The line, and what it is in."""
        there = place(self.mine.f_code, self.mine.f_lineno)
        if self.inside is self.mine:
            return there
        return f"{there}, inside {self.inside.f_code.co_name} of {Path(self.inside.f_code.co_filename).name}"


def holder_of(frame: FrameType | None) -> Holder | None:
    """Who has the loop's thread, which is at this frame; None when nobody but the loop itself does."""
    inside, mine, entry = frame, None, None
    while frame is not None and not frame.f_code.co_filename.startswith(_CALLERS):
        entry = frame
        if mine is None and not is_foreign(frame.f_code.co_filename):
            mine = frame
        frame = frame.f_back
    if entry is None or inside is None or entry.f_code.co_filename == threading.__file__:
        return None
    return Holder(entry, mine or entry, inside)


def where_raised(traceback: TracebackType | None) -> str:
    """The innermost line of the user's own code; of a function that is installed as a library, its outermost."""
    mine = entry = ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_foreign(code.co_filename):
            mine = place(code, traceback.tb_lineno)
        elif not entry and not code.co_filename.startswith(_OURS):
            entry = place(code, traceback.tb_lineno)
        traceback = traceback.tb_next
    return mine or entry
