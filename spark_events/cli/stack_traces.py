"""Stack traces for a person: each Python traceback once.

Spark repeats the traceback of a task in the message of the job's exception and in its cause.
"""

from __future__ import annotations

__all__ = ["without_repeats"]

_TRACEBACK = "Traceback (most recent call last):"
#: Beginnings of the lines that end a traceback within a Java stack trace.
_JAVA = ("at ", "... ", "Caused by: ", "Suppressed: ", "Driver stacktrace:")


def without_repeats(lines: list[str]) -> list[str]:
    """Return the lines of a stack trace, with each Python traceback only once.

    >>> without_repeats(["A: Traceback (most recent call last):", '  File "x.py"', "E: 1"] * 2)[-1]
    'A: the traceback above'
    """
    kept: list[str] = []
    known: set[tuple[str, ...]] = set()
    at = 0
    while at < len(lines):
        end = at + 1
        if _TRACEBACK in lines[at]:
            while end < len(lines) and not _ends_traceback(lines[end]):
                end += 1
        block = lines[at:end]
        about = tuple(line.strip() for line in block[1:] if line.strip())
        if about and about in known:
            before = lines[at].partition(_TRACEBACK)[0]
            kept += [f"{before}the traceback above"] if before.strip() else []
        else:
            known |= {about} if len(block) > 1 else set()
            kept += block
        at = end
    return kept


def _ends_traceback(line: str) -> bool:
    return _TRACEBACK in line or line.lstrip().startswith(_JAVA)
