"""The failure that an application may end with."""

from __future__ import annotations

from spark_events.translate.failures import Diagnosis

__all__ = ["LastFailure"]


class LastFailure:
    """The last failure of a job, a SQL execution or a query that no success has followed.

    Spark reports the end of an application without its reason. A program that fails because Spark failed ends next, so
    this failure is the best reason there is.

    Attributes:
        title: what failed, for a sentence; None where nothing did.
        diagnosis: why.
    """

    def __init__(self) -> None:
        self.title: str | None = None
        self.diagnosis: Diagnosis | None = None

    def note(self, title: str, diagnosis: Diagnosis) -> None:
        """Remember a failure."""
        self.title, self.diagnosis = title, diagnosis

    def clear(self) -> None:
        """Forget the failure: something has succeeded since."""
        self.title = self.diagnosis = None

    def explains(self, diagnosis: Diagnosis) -> bool:
        """Whether the diagnosis has the root cause of the last failure."""
        return self.diagnosis is not None and _is_same(self.diagnosis.root_cause, diagnosis.root_cause)

    def named_alike(self, diagnosis: Diagnosis) -> Diagnosis:
        """Return the diagnosis with the error type of the last failure, where both have one root cause.

        A job's failure reaches its SQL execution and its query in wrappers that have error classes of their own.
        """
        if self.diagnosis is None or not self.explains(diagnosis):
            return diagnosis
        return diagnosis.with_error_type(self.diagnosis.error_type)


def _is_same(one: str, other: str) -> bool:
    """Whether two texts name one cause; Spark leaves out the type in some places."""
    return bool(one and other) and (one.endswith(other) or other.endswith(one))
