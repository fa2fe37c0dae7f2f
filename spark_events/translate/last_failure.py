"""The failure that stands: the last failure of a job, a SQL execution or a query that no success has followed."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import msgspec

from spark_events.translate.failures import Diagnosis

__all__ = ["LastFailure", "StandingFailure", "same_cause"]

#: Attributes of a diagnosis that are too long for the memory of a restarted sidecar, which does not need them.
_LONG = ("exception.message", "exception.stacktrace")


class _Memory(msgspec.Struct, array_like=True):
    """What a restarted sidecar must know: the failure, and the newest job and SQL execution at its time."""

    failure: StandingFailure | None = None
    job: int = -1
    execution: int = -1


@dataclasses.dataclass(frozen=True, slots=True)
class StandingFailure:
    """One failure.

    Attributes:
        title: the failed job, execution or query, as used in event bodies.
        sentence: what failed, and where: ``query 'clicks' failed at batch 1``.
        diagnosis: the analysis of the failure.
        at: time of the failure, in milliseconds since the epoch.
        run_id: id of the failed run, if a query failed.
        is_of_end: whether the work failed because the program had ended.
    """

    title: str
    sentence: str
    diagnosis: Diagnosis
    at: int
    run_id: str | None = None
    is_of_end: bool = False


class LastFailure:
    """The last failure, unless work that started later has succeeded.

    Spark does not report why an application ended. The last failure is a fact about time: it shows what failed before
    the end, not what caused it.

    Only the success of work that started after the failure shows that the program survived the failure. In a program
    with several threads, work of other threads that ran during the failure may still succeed. Spark numbers jobs and
    SQL executions in the order of their starts, so their ids show which work started first.

    Attributes:
        standing: the failure; None if nothing failed, or if success followed.
        is_new: whether the failure has changed since the last call of :meth:`take_memory`.
    """

    def __init__(self) -> None:
        self.standing: StandingFailure | None = None
        self._newest_job = self._newest_execution = -1
        # The newest job and SQL execution at the time of the failure.
        self._job = self._execution = -1
        self.is_new = False
        self._is_loaded = False

    def take_memory(self) -> str:
        """Return the failure as a string, for the next sidecar."""
        self.is_new = False
        failure = self.standing
        if failure is not None:
            kept = {name: value for name, value in failure.diagnosis.attributes.items() if name not in _LONG}
            failure = dataclasses.replace(failure, diagnosis=dataclasses.replace(failure.diagnosis, attributes=kept))
        return msgspec.json.encode(_Memory(failure, self._job, self._execution)).decode()

    def load_memory(self, memory: str) -> None:
        """Load the failure that the preceding sidecar knew."""
        known = msgspec.json.decode(memory, type=_Memory) if memory else _Memory()
        self._is_loaded = bool(memory)
        self.standing, self._job, self._execution = known.failure, known.job, known.execution
        self.started(known.job, known.execution)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Run the block; keep the failure that stands, if it is that of a memory, which is newer."""
        before = self.standing, self._job, self._execution, self.is_new
        yield
        if self._is_loaded:
            self.standing, self._job, self._execution, self.is_new = before

    def started(self, job: int | None = None, execution: int | None = None) -> None:
        """Note that a job, a SQL execution, or a job of a SQL execution has started."""
        if job is not None and job > self._newest_job:
            self._newest_job = job
        if execution is not None and execution > self._newest_execution:
            self._newest_execution = execution

    def succeeded(self, job: int | None = None, execution: int | None = None) -> None:
        """Clear the failure if the successful work started after it.

        Args:
            job: id of the successful job; None for a SQL execution.
            execution: id of the successful SQL execution, or of the job's execution; None for a job outside SQL.
        """
        if (job is None or job > self._job) and (execution is None or execution > self._execution):
            self._clear()

    def committed(self, began: int) -> None:
        """Clear the failure if a query has committed a batch whose trigger began after it.

        Args:
            began: time of the trigger, in milliseconds since the epoch.
        """
        if self.standing is not None and began > self.standing.at:
            self._clear()

    def _clear(self) -> None:
        self.is_new |= self.standing is not None
        self.standing = None

    def note(self, failure: StandingFailure) -> None:
        """Store a failure."""
        self._job, self._execution = self._newest_job, self._newest_execution
        self.standing, self.is_new = failure, True

    def named_alike(self, diagnosis: Diagnosis) -> Diagnosis:
        """Return the diagnosis with the last failure's error type, if both have the same root cause.

        Spark wraps the failure of a job in other error classes when it reports the SQL execution and the query.
        """
        known = self.standing
        if known is None or not same_cause(known.diagnosis.root_cause, diagnosis.root_cause):
            return diagnosis
        return diagnosis.with_error_type(known.diagnosis.error_type)


def same_cause(one: str, other: str) -> bool:
    """Return whether two messages describe the same cause; Spark sometimes omits the exception's type."""
    return bool(one and other) and (one.endswith(other) or other.endswith(one))
