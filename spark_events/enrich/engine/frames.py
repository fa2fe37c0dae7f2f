"""Which code is the user's: what neither Python, nor an installed library, nor this package brought."""

from __future__ import annotations

import functools
import sysconfig
from pathlib import Path
from types import CodeType, FrameType

__all__ = ["blame", "is_foreign", "place"]

_OURS = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@functools.lru_cache(maxsize=4096)
def is_foreign(filename: str) -> bool:
    """Whether a file is not the user's own."""
    installed = "/site-packages/" in filename or "/dist-packages/" in filename
    return installed or filename.startswith((_OURS, *_LIBRARIES, "<frozen ", "<string>"))


def place(code: CodeType, line: int | None) -> str:
    """As ``file:line in function``."""
    return f"{code.co_filename}:{line} in {getattr(code, 'co_qualname', code.co_name)}"


def blame(frame: FrameType | None) -> str:
    """Who holds a thread that is at this frame: the user's innermost line, and what it is in; empty when nobody is."""
    inside = frame.f_code if frame is not None else None
    while frame is not None and is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or inside is None:
        return ""
    there = place(frame.f_code, frame.f_lineno)
    return there if inside is frame.f_code else f"{there}, inside {inside.co_name} of {Path(inside.co_filename).name}"
