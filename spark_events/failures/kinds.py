"""Kinds of errors: what an error means for the work that failed (its class), and for one call (its verdict)."""

from __future__ import annotations

import dataclasses
from typing import Final

__all__ = [
    "AGAIN", "BROKEN", "BUSY", "COMMIT_UNKNOWN", "CROWDED", "DATA", "DENIED", "DOWN", "FETCH", "FINAL", "FULL",
    "GATEWAY", "LIBRARY", "LOCAL_LIMIT", "LOST", "MEMORY", "MISSING", "MISTAKE", "OUT_OF_MEMORY", "POOL",
    "PYTHON_MEMORY", "REJECTED", "SCHEMA", "SETUP", "SILENT", "SLOW", "ErrorKind", "Verdict",
]  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Classification of one failed attempt.

    Attributes:
        retryable: whether another attempt may succeed.
        timeout: whether no answer arrived in time.
        throttled: whether the destination rejected the call because it receives too many calls; the row is held, and
            the attempt does not count.
        crowded: whether the destination rejected the call because too many calls are in flight; otherwise too many
            arrive per second.
        outage: whether the destination is unreachable, out of order or silent; the circuit breaker counts these.
        answered: whether the destination answered, and therefore is not down.
        unreachable: whether no connection existed, or the connection broke or returned no answer.
        retry_after: pause that the destination requests, in seconds, at most one day; None if it does not request a
            pause.
    """

    retryable: bool
    timeout: bool = False
    throttled: bool = False
    crowded: bool = False
    outage: bool = False
    answered: bool = False
    unreachable: bool = False
    retry_after: float | None = None

    @property
    def exceeds_rate(self) -> bool:
        """Whether the destination rejected the call because too many calls arrive per second."""
        return self.throttled and not self.crowded


FINAL: Final = Verdict(retryable=False)


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorKind:
    """Meaning of an error.

    Attributes:
        failure_class: the class of the failed work; None if the error alone does not tell.
        verdict: the classification of the attempt.
        rerun: whether a rerun of the work may be advised for or against; False if a rerun may do harm.
    """

    failure_class: str | None
    verdict: Verdict = FINAL
    rerun: bool = True


_EXTERNAL = "EXTERNAL_SYSTEM"
DOWN: Final = ErrorKind(_EXTERNAL, Verdict(retryable=True, outage=True, unreachable=True))
SILENT: Final = ErrorKind(_EXTERNAL, Verdict(retryable=True, timeout=True, outage=True, unreachable=True))
BUSY: Final = ErrorKind(_EXTERNAL, Verdict(retryable=True, throttled=True, answered=True))
CROWDED: Final = ErrorKind(_EXTERNAL, Verdict(retryable=True, throttled=True, crowded=True, answered=True))
#: The destination answers with a server error.
BROKEN: Final = ErrorKind(_EXTERNAL, Verdict(retryable=True, outage=True))
#: A gateway gave up waiting for a service; the service may just be slow.
GATEWAY: Final = ErrorKind(_EXTERNAL, Verdict(retryable=True, timeout=True, outage=True))
#: The destination asks the client to repeat the call: another transaction has won, or another server has taken over.
AGAIN: Final = ErrorKind(_EXTERNAL, Verdict(retryable=True, answered=True))
#: The destination answered that the call took too long.
SLOW: Final = ErrorKind(_EXTERNAL, Verdict(retryable=True, timeout=True, answered=True))
#: The wait for the client's own connection pool took too long, which does not indicate an outage.
POOL: Final = ErrorKind(_EXTERNAL, Verdict(retryable=True, timeout=True))
#: It is unknown whether the commit succeeded: a rerun may write the rows a second time.
COMMIT_UNKNOWN: Final = ErrorKind(_EXTERNAL, rerun=False)
#: The process has used up its own sockets or file descriptors: another attempt may succeed after other calls have
#: ended, but a rerun of the work reaches the same limit.
LOCAL_LIMIT: Final = ErrorKind("CONFIGURATION", Verdict(retryable=True, outage=True, unreachable=True))

DENIED: Final = ErrorKind("PERMISSION")
MISSING: Final = ErrorKind("MISSING_FILE_OR_TABLE")
SCHEMA: Final = ErrorKind("SCHEMA_MISMATCH")
DATA: Final = ErrorKind("DATA_ERROR")
SETUP: Final = ErrorKind("CONFIGURATION")
LIBRARY: Final = ErrorKind("MISSING_DEPENDENCY")
MISTAKE: Final = ErrorKind("USER_CODE")
FULL: Final = ErrorKind("DISK_FULL")
PYTHON_MEMORY: Final = ErrorKind("PYTHON_OUT_OF_MEMORY")
#: The driver or an executor, depending on where the error occurred.
OUT_OF_MEMORY: Final = "OUT_OF_MEMORY"
MEMORY: Final = ErrorKind(OUT_OF_MEMORY)
FETCH: Final = ErrorKind("FETCH_FAILURE", Verdict(retryable=True))
LOST: Final = ErrorKind("EXECUTOR_LOST", Verdict(retryable=True))
#: The destination rejects this call for a reason that the error does not tell.
REJECTED: Final = ErrorKind(None)
