"""Lines of an event log, from pieces of its text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

__all__ = ["MeasuredText", "split"]

#: Maximum length of a line that is kept without checking whether the reader needs the line.
_LONG = 1 << 20
#: Maximum length of a valid line. A longer line indicates a file without line breaks.
_LONGEST = 1 << 27
_KEPT_BYTES = 1 << 10


def split(pieces: Iterable[bytes], is_needed: Callable[[bytes], bool]) -> Iterator[tuple[list[bytes], bool]]:
    """Yield lists of lines without their line breaks, and whether the lines are whole.

    Only the text after the last line break may be a part of a line. A long unneeded line is reduced to its first 1,024
    bytes and its last byte. A line above the maximum length is also cut, so that the reader detects it as damaged.

    Args:
        pieces: the text in pieces of any size.
        is_needed: decides from the first bytes of a line whether the line is needed.
    """
    begun: list[bytes] = []
    size = 0
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        if whole:
            if begun:
                whole[0] = b"".join((*begun, whole[0]))
                begun, size = [], 0
            yield whole, True
        if not rest:
            continue
        begun.append(rest)
        size += len(rest)
        if size > _LONG:
            beginning = b"".join(begun[:2])[:_KEPT_BYTES]
            if size > _LONGEST or not is_needed(beginning):
                begun, size = [beginning, rest[-1:]], 0
    if begun:
        yield [b"".join(begun)], False


class MeasuredText:
    """Pieces of a text, at most ``limit`` bytes; ``whole`` counts the bytes up to the last line break so far."""

    def __init__(self, content: Iterator[bytes], limit: int | None) -> None:
        self._content = content
        self._left = limit
        self._size = 0
        self.whole = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._content:
            taken = piece if self._left is None else piece[: self._left]
            if self._left is not None:
                self._left -= len(taken)
            if b"\n" in taken:
                self.whole = self._size + taken.rfind(b"\n") + 1
            self._size += len(taken)
            yield taken
            if self._left == 0:
                return
