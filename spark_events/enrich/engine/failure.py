"""Why a row has no answer, as plain data: it travels from the worker to the driver."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["Failure", "Kind"]

#: error: the function raised; timeout: no answer in time; throttled: the destination refuses, with 429 or Retry-After;
#: result: ``on_result`` never accepted what it returned; circuit-open: the destination is down; resource: it cannot be
#: opened; skipped: an earlier row of the same key failed; stopped: the run was cancelled.
Kind = Literal["error", "timeout", "throttled", "result", "circuit-open", "resource", "skipped", "stopped"]


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
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
