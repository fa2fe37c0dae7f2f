"""Failure that may explain the end of an application."""

from __future__ import annotations

from spark_events.translate.failures import Diagnosis

__all__ = ["LastFailure", "same_cause"]


class LastFailure:
    """The last failure of a job, a SQL execution or a query, unless a later success cleared it.

    Spark reports the end of an application without a reason. A program that fails because Spark failed ends soon after
    that failure, so the last failure is the best explanation available.

    Attributes:
        title: the failed job, execution or query, as used in sentences; None without a failure.
        diagnosis: the analysis of the failure.
        sentence: what failed, and where: ``query 'clicks' failed at batch 1``.
    """

    def __init__(self) -> None:
        self.title: str | None = None
        self.diagnosis: Diagnosis | None = None
        self.sentence = ""

    def note(self, title: str, diagnosis: Diagnosis, sentence: str = "") -> None:
        """Store a failure."""
        self.title, self.diagnosis, self.sentence = title, diagnosis, sentence or f"{title} failed"

    def clear(self) -> None:
        """Remove the failure because a job or a SQL execution has succeeded since."""
        self.title = self.diagnosis = None
        self.sentence = ""

    def explains(self, diagnosis: Diagnosis) -> bool:
        """Return whether the diagnosis has the same root cause as the last failure."""
        return self.diagnosis is not None and same_cause(self.diagnosis.root_cause, diagnosis.root_cause)

    def named_alike(self, diagnosis: Diagnosis) -> Diagnosis:
        """Return the diagnosis with the last failure's error type, if both have the same root cause.

        A job's failure reaches its SQL execution and its query wrapped in errors with other error classes.
        """
        if self.diagnosis is None or not self.explains(diagnosis):
            return diagnosis
        return diagnosis.with_error_type(self.diagnosis.error_type)


def same_cause(one: str, other: str) -> bool:
    """Return whether two texts describe one cause; Spark omits the exception's type in some places."""
    return bool(one and other) and (one.endswith(other) or other.endswith(one))
