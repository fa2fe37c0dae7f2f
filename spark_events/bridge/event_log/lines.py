"""Splitting of text into lines in bounded memory; a query plan can make a line of many megabytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

__all__ = ["Lines"]

#: Above this length, a line is kept only if it is needed.
_LONG = 1 << 20
#: No valid line is longer; a longer one comes from a file without line breaks.
_LONGEST = 1 << 27
_BEGINNING = 1 << 10


class Lines:
    """The lines of a text, without line breaks.

    Of a long line that is not needed, only the beginning and the last character are kept. Of a line that is too long,
    the beginning and a part of the end are kept, so that the line is detected as damaged.

    Args:
        pieces: the text in pieces of any size.
        of_use: decides from the beginning of a line whether the line is needed.

    Attributes:
        rest: after all pieces have been read, the text after the last line break.
    """

    def __init__(self, pieces: Iterable[bytes], of_use: Callable[[bytes], bool]) -> None:
        self.rest = b""
        self._pieces = pieces
        self._of_use = of_use

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yield lists of lines."""
        begun: list[bytes] = []
        size = 0
        for piece in self._pieces:
            *whole, rest = piece.split(b"\n")
            if whole:
                if begun:
                    whole[0] = b"".join((*begun, whole[0]))
                    begun, size = [], 0
                yield whole
            if not rest:
                continue
            begun.append(rest)
            size += len(rest)
            if size > _LONG:
                beginning = b"".join(begun[:2])[:_BEGINNING]
                if size > _LONGEST or not self._of_use(beginning):
                    begun, size = [beginning, rest[-1:]], 0
        self.rest = b"".join(begun)
