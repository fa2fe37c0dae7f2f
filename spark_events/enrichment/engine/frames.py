"""Recognition of the user's own code, as opposed to code of Python, installed libraries and this package."""

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

_OURS = str(Path(__file__).parents[1])
_OPENER = str(Path(__file__).with_name("resources.py"))
_IMPORTER = "<frozen importlib._bootstrap>"
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
# Code on the loop that calls the user's function or other callbacks.
_CALLERS = (_OURS, str(Path(asyncio.__file__).parent))


def frame_of(thread_id: int | None) -> FrameType | None:
    """Return the current frame of a thread, or None.

    Garbage collection is disabled during the call. Before Python 3.13, ``sys._current_frames`` holds a lock while it
    creates objects. If a garbage collection starts there and finalizes a ``threading.local``, it waits for the same
    lock while it holds the GIL, and the process deadlocks (CPython, gh-106883).
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
    """Return whether a file belongs to Python, a library or this package, and not to the user."""
    installed = "/site-packages/" in filename or "/dist-packages/" in filename
    # The code of Cython, such as that of uvloop, has no path.
    return installed or filename.startswith((_OURS, *_LIBRARIES, "<frozen ", "<string>")) or filename.endswith(".pyx")


def location(code: CodeType, line: int | None) -> str:
    """Return a code location in the form ``file:line in function``."""
    return f"{code.co_filename}:{line} in {getattr(code, 'co_qualname', code.co_name)}"


class Holder(NamedTuple):
    """Call that occupies the loop's thread.

    Attributes:
        entry: the frame that the loop called: the user's function, or another callback or task.
        mine: the innermost frame of the user's own code; the entry if the code is installed as a library.
        inside: the innermost frame.
        imports: whether the call imports a module.
        opens: whether the call opens a resource.
    """

    entry: FrameType
    mine: FrameType
    inside: FrameType
    imports: bool = False
    opens: bool = False

    def describe(self) -> str:
        """Describe the user's line, and the library function that this line called."""
        there = location(self.mine.f_code, self.mine.f_lineno)
        if self.imports:
            return f"{there} (an import: move it to the top of the module, or into resource)"
        if self.inside is self.mine:
            return there
        return f"{there}, inside {self.inside.f_code.co_name} of {Path(self.inside.f_code.co_filename).name}"


def holder_of(frame: FrameType | None) -> Holder | None:
    """Return the call that occupies the loop's thread at this frame; None if the loop runs no call."""
    inside, mine, entry, imports = frame, None, None, False
    while frame is not None and not frame.f_code.co_filename.startswith(_CALLERS):
        entry = frame
        if frame.f_code.co_filename == _IMPORTER:
            # The frames of an imported module do not show the mistake; the line that imports the module does.
            imports, mine = True, None
        if mine is None and not is_foreign(frame.f_code.co_filename):
            mine = frame
        frame = frame.f_back
    if entry is None or inside is None or entry.f_code.co_filename == threading.__file__:
        return None
    opens = frame is not None and frame.f_code.co_filename == _OPENER
    return Holder(entry, mine or entry, inside, imports, opens)


def where_raised(traceback: TracebackType | None) -> str:
    """Return the innermost line of the user's own code; for code installed as a library, the outermost line."""
    mine = entry = ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_foreign(code.co_filename):
            mine = location(code, traceback.tb_lineno)
        elif not entry and not code.co_filename.startswith(_OURS):
            entry = location(code, traceback.tb_lineno)
        traceback = traceback.tb_next
    return mine or entry
