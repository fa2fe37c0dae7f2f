"""Failure that may explain why an application ended."""

from __future__ import annotations

from spark_events.translate.failures import Diagnosis

__all__ = ["LastFailure", "same_cause"]


class LastFailure:
    """The last failure of a job, a SQL execution or a query, unless a later success cleared it.

    Spark does not report why an application ended. If a program ends because of a failure in Spark, it usually ends
    soon after the failure. Therefore, the last failure is the best available explanation.

    Attributes:
        title: the failed job, execution or query, as used in event bodies; None without a failure.
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
        """Clear the stored failure; call this after a job or a SQL execution succeeds."""
        self.title = self.diagnosis = None
        self.sentence = ""

    def explains(self, diagnosis: Diagnosis) -> bool:
        """Return whether the diagnosis has the same root cause as the last failure."""
        return self.diagnosis is not None and same_cause(self.diagnosis.root_cause, diagnosis.root_cause)

    def named_alike(self, diagnosis: Diagnosis) -> Diagnosis:
        """Return the diagnosis with the last failure's error type, if both have the same root cause.

        Spark wraps the failure of a job in other error classes when it reports the SQL execution and the query.
        """
        if self.diagnosis is None or not self.explains(diagnosis):
            return diagnosis
        return diagnosis.with_error_type(self.diagnosis.error_type)


def same_cause(one: str, other: str) -> bool:
    """Return whether two messages describe the same cause; Spark sometimes omits the exception's type."""
    return bool(one and other) and (one.endswith(other) or other.endswith(one))
