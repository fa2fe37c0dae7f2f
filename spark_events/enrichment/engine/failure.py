"""Why a row has no answer, as plain data: it travels from the worker to the driver."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

__all__ = ["Kind", "RowFailure", "message_of", "type_of"]

#: error: the function raised; timeout: no answer in time; throttled: the destination refuses, with 429 or Retry-After;
#: result: ``on_result`` never accepted what it returned; circuit-open: the destination is down; resource: it cannot be
#: opened; skipped: an earlier row of the same key failed.
Kind = Literal["error", "timeout", "throttled", "result", "circuit-open", "resource", "skipped"]

_LONGEST_MESSAGE = 500
# Tokens travel in query strings and in front of hosts; a failure ends up in logs and tables. A scheme without an end
# would be looked for anew behind each of its letters.
_SECRETS = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,31}://)(?:[^\s/@'\"]*@)?(?P<place>[^\s?#'\"]*)(?:[?#][^\s'\"]*)?", re.I
)


@dataclasses.dataclass(frozen=True, slots=True)
class RowFailure:
    """A row's last failure.

    Attributes:
        kind: what became of it.
        type: the exception's type, with its module where that is not ``builtins``.
        message: what it said, cut, and without the query strings of addresses.
        attempts: how many were made; 0 when the row was never called.
        elapsed: seconds from the first attempt to the end.
        retryable: whether the failure is one that may pass.
        where: file, line and function of the user's code that raised; empty when unknown.
    """

    kind: Kind
    type: str
    message: str
    attempts: int = 0
    elapsed: float = 0.0
    retryable: bool = False
    where: str = ""

    def __post_init__(self) -> None:
        """Exceptions, and names of files, may hold lone surrogates; neither Arrow nor JSON can carry them."""
        for name in ("type", "message", "where"):
            object.__setattr__(self, name, getattr(self, name).encode("utf-8", "replace").decode())


def type_of(error: BaseException) -> str:
    """The name of an exception's type as a reader looks for it."""
    kind = type(error)
    return (
        kind.__qualname__ if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{kind.__qualname__}"
    )


def message_of(error: BaseException) -> str:
    """What an exception says, on one line, cut, and with addresses bare of user, query and fragment."""
    try:
        said = str(error)
    except BaseException as broken:
        # SystemExit would end whoever asks.
        said = f"(its __str__ raised {type(broken).__name__})"
    line = _SECRETS.sub(r"\g<scheme>\g<place>", " ".join(said[: 4 * _LONGEST_MESSAGE].split()))
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}… (cut)"
