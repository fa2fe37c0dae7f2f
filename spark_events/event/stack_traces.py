"""Stack traces for a person: each Python traceback once, and the lines that matter if not all fit.

Spark repeats the traceback of a task in the message of the job's exception and in its cause.
"""

from __future__ import annotations

import itertools

__all__ = ["shortened", "without_repeats"]

_TRACEBACK = "Traceback (most recent call last):"
_FRAMES = ("at ", "... ")
#: Beginnings of the lines that end a traceback within a Java stack trace.
_JAVA = (*_FRAMES, "Caused by: ", "Suppressed: ", "Driver stacktrace:")
#: Lines of a long traceback that are always printed: its heading, the last call and the exception.
_FIRST, _LAST = 1, 5


def without_repeats(lines: list[str]) -> list[str]:
    """Return the lines of a stack trace, with each Python traceback only once.

    >>> without_repeats(["A: Traceback (most recent call last):", '  File "x.py"', "E: 1"] * 2)[-1]
    'A: the traceback above'
    """
    kept: list[str] = []
    known: set[tuple[str, ...]] = set()
    for part in _parts(lines):
        about = tuple(line.strip() for line in part[1:] if line.strip())
        if _TRACEBACK in part[0] and about in known:
            before = part[0].partition(_TRACEBACK)[0]
            kept += [f"{before}the traceback above"] if before.strip() else []
        else:
            known |= {about} if _TRACEBACK in part[0] and about else set()
            kept += part
    return kept


def shortened(lines: list[str], most: int) -> list[str]:
    """Return at most ``most`` lines of a stack trace: a traceback matters more than Java's frames, and its end most.

    >>> shortened(["E: 1", "  at a", "  at b", "  at c", "Caused by: F: 2", "  at d"], 5)
    ['E: 1', '  at a', '  … 2 more lines', 'Caused by: F: 2', '  at d']
    """
    parts = _parts(lines)
    left = len(lines) - most
    # Leave out Java's frames first, the longest parts first, and then the middle of tracebacks.
    for is_traceback, least in ((False, 0), (True, _FIRST + _LAST)):
        candidates = [n for n, part in enumerate(parts) if _can_shorten(part, is_traceback)]
        for n in sorted(candidates, key=lambda n: -len(parts[n])):
            if left <= 0:
                break
            size = max(least, len(parts[n]) - 1 - left)
            if size + 1 < len(parts[n]):
                left -= len(parts[n]) - size - 1
                parts[n] = _cut(parts[n], size, _LAST if is_traceback else 0)
    whole = list(itertools.chain.from_iterable(parts))
    return whole if len(whole) <= most else _cut(whole, most - 1, most // 2)


def _parts(lines: list[str]) -> list[list[str]]:
    """Divide a stack trace into tracebacks, sequences of Java's frames, and single other lines."""
    parts: list[list[str]] = []
    for line in lines:
        last = parts[-1] if parts else []
        is_frame = line.lstrip().startswith(_FRAMES)
        goes_on = last and (
            (is_frame and last[0].lstrip().startswith(_FRAMES))
            or (_TRACEBACK in last[0] and _TRACEBACK not in line and not line.lstrip().startswith(_JAVA))
        )
        if goes_on:
            last.append(line)
        else:
            parts.append([line])
    return parts


def _can_shorten(part: list[str], is_traceback: bool) -> bool:
    return _TRACEBACK in part[0] if is_traceback else part[0].lstrip().startswith(_FRAMES)


def _cut(part: list[str], size: int, last: int) -> list[str]:
    """Keep ``size`` lines, of which ``last`` are at the end, and a line that says how many are missing."""
    first = size - last
    indent = part[first][: len(part[first]) - len(part[first].lstrip())]
    return [*part[:first], f"{indent}… {len(part) - size:,} more lines", *part[len(part) - last :]]
