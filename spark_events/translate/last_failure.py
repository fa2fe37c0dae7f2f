"""Failure that may explain why an application ended."""

from __future__ import annotations

from spark_events.translate.failures import Diagnosis

__all__ = ["LastFailure", "same_cause"]


class LastFailure:
    """The last failure of a job, a SQL execution or a query, unless work that started later has succeeded.

    Spark does not report why an application ended. If a program ends because of a failure in Spark, it usually ends
    soon after the failure. Therefore, the last failure is the best available explanation.

    Only the success of work that started after the failure shows that the program survived the failure. In a program
    with several threads, work of other threads that ran during the failure may still succeed. Spark numbers jobs and
    SQL executions in the order of their starts, so their ids show which work started first.

    Attributes:
        title: the failed job, execution or query, as used in event bodies; None without a failure.
        diagnosis: the analysis of the failure.
        sentence: what failed, and where: ``query 'clicks' failed at batch 1``.
    """

    def __init__(self) -> None:
        self.title: str | None = None
        self.diagnosis: Diagnosis | None = None
        self.sentence = ""
        self._newest_job = self._newest_execution = -1
        # The newest job and SQL execution at the time of the failure.
        self._job = self._execution = -1

    def started(self, job: int | None = None, execution: int | None = None) -> None:
        """Note that a job, a SQL execution, or a job of a SQL execution has started."""
        if job is not None and job > self._newest_job:
            self._newest_job = job
        if execution is not None and execution > self._newest_execution:
            self._newest_execution = execution

    def succeeded(self, job: int | None = None, execution: int | None = None) -> bool:
        """Clear the failure if the successful work started after it; return False if the work started before.

        Args:
            job: id of the successful job; None for a SQL execution.
            execution: id of the successful SQL execution, or of the job's execution; None for a job outside SQL.
        """
        if (job is not None and job <= self._job) or (execution is not None and execution <= self._execution):
            return False
        self.title = self.diagnosis = None
        self.sentence = ""
        return True

    def note(self, title: str, diagnosis: Diagnosis, sentence: str = "") -> None:
        """Store a failure."""
        self._job, self._execution = self._newest_job, self._newest_execution
        self.title, self.diagnosis, self.sentence = title, diagnosis, sentence or f"{title} failed"

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
