"""Labels of failures, for example whether the author or the operator has to act.

The interface follows Flink's FailureEnricher.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from spark_events.failures.classes import CLASSES, UNKNOWN

__all__ = ["FailureContext", "FailureEnricher", "TypeEnricher"]


@dataclasses.dataclass(frozen=True, slots=True)
class FailureContext:
    """Failure, as passed to enrichers.

    Attributes:
        text: the whole exception, as Java prints it.
        root_type: the type of the root cause, a Python or Java exception.
        root_message: the message of the root cause.
        error_class: Spark's error class, or None.
        in_user_code: whether the user's code, in Python or in the JVM, raised the root cause.
        sql_state: the SQLSTATE, or None.
        cancelled: whether the job was cancelled; a cancellation needs no action.
        raised_by_user: whether the user's own code raised the root cause with its own ``raise``.
        failure_class: the class of the failure.
        evidence: what decided the class, or None.
    """

    text: str
    root_type: str
    root_message: str
    error_class: str | None
    in_user_code: bool
    sql_state: str | None = None
    cancelled: bool = False
    raised_by_user: bool = False
    failure_class: str = UNKNOWN
    evidence: str | None = None


class FailureEnricher(Protocol):
    """Interface of failure enrichers."""

    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        """Return labels by key; each becomes an attribute ``failure.label.<key>``."""


class TypeEnricher:
    """Enricher for ``failure.label.type``: whether the program's author or the operator has to act.

    The label follows from the class of the failure, by :data:`spark_events.failures.classes.CLASSES`: ``USER`` (code,
    query, data, settings) or ``SYSTEM`` (memory, disks, executors, other systems). A cancelled job needs no action and
    has no label, like a failure of an unknown class.
    """

    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        """Return the label ``type``, if the class has one."""
        facts = CLASSES.get(failure.failure_class)
        return {"type": facts.label} if facts and facts.label else {}
