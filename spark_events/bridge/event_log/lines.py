"""Pieces of text to lines, in bounded memory: plans of queries can be lines of many megabytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

__all__ = ["Lines"]

#: From here on it is asked whether a line is of use at all.
_LONG = 1 << 20
#: Nobody's line is longer; it would be a file without lines.
_LONGEST = 1 << 27
_BEGINNING = 1 << 10


class Lines:
    """The lines of a text, without their ends.

    Of a long line that is of no use, only its beginning and its last character are kept; of one that is
    too long, its beginning and some of its end, so that it will be found to be damaged.

    Args:
        pieces: of any size.
        of_use: decides by the beginning of a line.

    Attributes:
        rest: when all pieces have been read, what stands behind the last line end.
    """

    def __init__(self, pieces: Iterable[bytes], of_use: Callable[[bytes], bool]) -> None:
        self.rest = b""
        self._pieces = pieces
        self._of_use = of_use

    def __iter__(self) -> Iterator[list[bytes]]:
        """Many lines at a time."""
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
