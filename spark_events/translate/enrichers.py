"""Labels for failures: whose fault it is. The hook is Flink's FailureEnricher."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Protocol

__all__ = ["FailureContext", "FailureEnricher", "TypeEnricher"]


@dataclasses.dataclass(frozen=True, slots=True)
class FailureContext:
    """What an enricher may look at.

    Attributes:
        text: the whole exception text, as Java prints it.
        root_type: the type of the root cause, Python's or Java's.
        root_message: its message.
        error_class: Spark's error class, where there is one.
        in_user_code: the root cause was raised in the user's own code, Python's or the JVM's.
        sql_state: the SQLSTATE, where there is one.
    """

    text: str
    root_type: str
    root_message: str
    error_class: str | None
    in_user_code: bool
    sql_state: str | None = None


class FailureEnricher(Protocol):
    """Adds labels to a failure."""

    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        """The labels, by key; each becomes an attribute ``failure.label.<key>``."""


_RESOURCE = re.compile(
    r"OutOfMemoryError|MemoryError|No space left on device|Too many open files|ExecutorLostFailure|FetchFailed"
    r"|Container killed by YARN|exceeding memory limits|MetadataFetchFailed|OOMKilled|exit code 137"
    r"|CANNOT_ACQUIRE_MEMORY|Unable to acquire \d+ bytes of memory|UNABLE_TO_ACQUIRE_MEMORY"
)
_SYSTEM = re.compile(r"INTERNAL_ERROR|java\.lang\.(?:NoSuchMethod|NoClassDefFound|Linkage|StackOverflow)Error")
# SQLSTATE classes for what lies outside of the query: connections, resources, operators, I/O, internal errors.
_RESOURCE_STATES = ("53", "54")
_SYSTEM_STATES = ("08", "57", "58", "XX", "KD")
# SQL's data exceptions, analysis errors and the like: the query or its data is wrong.
_USER_CLASS = re.compile(r"[A-Z0-9_.]+")


class TypeEnricher:
    """``failure.label.type``: ``USER`` (code, query or data), ``RESOURCE`` (memory, disk, executors), ``SYSTEM``.

    The three are those of Flink's type enricher: who has to act, the author or the operator.
    """

    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        """One label, ``type``."""
        if failure.root_type.endswith("MemoryError") or _RESOURCE.search(failure.text):
            return {"type": "RESOURCE"}
        if failure.in_user_code:
            return {"type": "USER"}
        state = (failure.sql_state or "")[:2]
        if state in _RESOURCE_STATES:
            return {"type": "RESOURCE"}
        if state in _SYSTEM_STATES:
            return {"type": "SYSTEM"}
        if _SYSTEM.search(failure.error_class or "") or _SYSTEM.search(failure.root_type):
            return {"type": "SYSTEM"}
        if failure.error_class is not None and _USER_CLASS.fullmatch(failure.error_class):
            return {"type": "USER"}
        return {"type": "SYSTEM"}
