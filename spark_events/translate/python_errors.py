"""The errors of a printed Python traceback: chains, groups, and the errors that are printed inside others.

Python prints a chain of exceptions with the first one on top, separated by a sentence. Whatever else follows the line
of an error is part of its message, even if the message quotes another traceback. An error of a call into Spark contains
the error of the worker, and a group contains its exceptions.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

__all__ = ["TRACEBACK", "Frame", "PythonError", "python_errors"]

TRACEBACK = "Traceback (most recent call last):"
_GROUP = f"Exception Group {TRACEBACK}"
_MARGIN = re.compile(r"^ *[|+](?:-\+)?-* ?", re.MULTILINE)
#: A frame, and the source line below it, which Python prints if it finds the file.
_FRAME = re.compile(r'^[ \t]*File "(.+)", line (\d+), in (.+)(?:\n[ \t]+(?!File ")(\S.*))?$', re.MULTILINE)
# Frames and their source lines are indented; the first line without indentation is the error.
_ERROR = re.compile(r"^((?:\w+|<\w+>)(?:\.(?:\w+|<\w+>))*)(?:: (.*))?$", re.MULTILINE)
_LINK = re.compile(
    r"(?:The above exception was the (direct cause) of the following exception"
    r"|During handling of the above exception, another exception occurred):\s{1,4}(?:Exception Group )?$"
)
#: The line before an exception of a group, without its margin.
_MEMBER = re.compile(r"\n\d+ -{4,}\n(?:Exception Group )?$")
#: Errors whose message contains the traceback of another process, or whose exceptions follow.
_CONTAINER = re.compile(r"pyspark\..*|(?:[\w.]*\.)?(?:Py4JJavaError|PythonException|(?:Base)?ExceptionGroup)$")
#: What follows a message: Java's frames, another traceback, or the sentence between two exceptions.
_END = re.compile(r"\n[ \t]+at \S+\(|\n\n|\nTraceback |\nCaused by: ")
_LONGEST = 2_000
_RAISES = re.compile(r"(?:.*:\s*)?(?:raise|assert)\b")


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """One line of a traceback; ``source`` is "" if Python did not find the file."""

    file: str
    line: str
    function: str
    source: str

    @property
    def raises(self) -> bool:
        """Whether the line raises an exception itself, rather than by calling something."""
        return _RAISES.match(self.source) is not None


@dataclasses.dataclass(frozen=True, slots=True)
class PythonError:
    """One printed exception.

    Attributes:
        link: how it relates to the exception printed before it: ``cause`` (raised from it), ``context`` (raised while
            it was handled), ``inner`` (printed inside it), ``member`` (a further exception of its group), or "" for the
            first.
        rest: the text that follows the line of the error.
    """

    type: str
    message: str
    frames: tuple[Frame, ...]
    link: str
    rest: str

    @property
    def whole_message(self) -> str:
        """The message with its further lines, of which a client library may need one for its code; shortened."""
        more = _END.split(self.rest[:_LONGEST], maxsplit=1)[0]
        return self.message + more


def python_errors(text: str) -> list[PythonError]:
    """Return the errors of the first traceback in a text, in the order in which Python prints them.

    >>> [one.type for one in python_errors("Traceback (most recent call last):\\nKeyError: 'k'")]
    ['KeyError']
    """
    if _GROUP in text:
        # Python indents the exceptions of an exception group with a margin.
        text = _MARGIN.sub("", text)
    return list(_errors(text))


def _errors(text: str) -> Iterator[PythonError]:
    start, link = text.find(TRACEBACK), ""
    while start >= 0:
        error = _ERROR.search(text, start + len(TRACEBACK))
        if error is None:
            return
        frames = tuple(
            Frame(one[1], one[2], one[3], one[4] or "") for one in _FRAME.finditer(text, start, error.start())
        )
        yield PythonError(error[1], error[2] or "", frames, link, text[error.end() :])
        start = text.find(TRACEBACK, error.end())
        chained = None if start < 0 else _LINK.search(text, max(error.end(), start - 200), start)
        if chained is not None:
            link = "cause" if chained[1] else "context"
        elif _CONTAINER.match(error[1]):
            link = "inner"
        elif start >= 0 and _MEMBER.search(text, error.end(), start):
            link = "member"
        else:
            return
