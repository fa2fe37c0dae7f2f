"""The failures that stand: those of jobs, SQL executions and queries without a later success of the same work."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import OrderedDict
from collections.abc import Iterator, Mapping

import msgspec

from spark_events.event import AttributeValue
from spark_events.translate.bounded import put
from spark_events.translate.failures import Diagnosis
from spark_events.translate.incidents.incident_keys import is_generated, query_of

__all__ = ["StandingFailure", "StandingFailures", "same_cause", "work_of"]

#: Attributes of a diagnosis that are too long for the memory of a restarted sidecar, which does not need them.
_LONG = ("exception.message", "exception.stacktrace")
#: Maximum number of failures; the oldest are forgotten beyond it.
_MOST = 100


@dataclasses.dataclass(frozen=True, slots=True)
class StandingFailure:
    """One failure.

    Attributes:
        title: the failed job, execution or query, as used in event bodies.
        sentence: what failed, and where: ``query 'clicks' failed at batch 1``.
        diagnosis: the analysis of the failure.
        at: time of the failure, in milliseconds since the epoch.
        work: the work that must succeed after the failure, see :func:`work_of`.
        run_id: id of the failed run, if a query failed.
        is_of_end: whether the work failed because the program had ended.
        is_followed: whether other work that started later has succeeded.
    """

    title: str
    sentence: str
    diagnosis: Diagnosis
    at: int
    work: str = ""
    run_id: str | None = None
    is_of_end: bool = False
    is_followed: bool = False


class _Noted(msgspec.Struct, array_like=True):
    """A failure, and the newest job and SQL execution at its time."""

    failure: StandingFailure
    job: int
    execution: int


def work_of(attributes: Mapping[str, AttributeValue]) -> str:
    """Return the query or the job group that the attributes of a job or a SQL execution name; otherwise "".

    A generated job group is different for each statement, so it never succeeds later.

    >>> work_of({"spark.job.group": "nightly"})
    'job=nightly'
    """
    if query := query_of(attributes):
        return f"query={query}"
    group = str(attributes.get("spark.job.group", ""))
    return f"job={group}" if group and not is_generated(group) else ""


class StandingFailures:
    """The last failure of each query and of each job group, unless the same work, started later, has succeeded.

    Failures of jobs without a group share one entry, which any later success ends: the program has survived them.

    Spark does not report why an application ended. The last failure is a fact about time: it shows what failed before
    the end, not what caused it.

    Only the success of work that started after the failure shows that the program survived the failure. In a program
    with several threads, work of other threads that ran during the failure may still succeed. Spark numbers jobs and
    SQL executions in the order of their starts, so their ids show which work started first.

    Attributes:
        last: the last failure; None if nothing failed, or if success followed each failure.
        is_new: whether the failures have changed since the last call of :meth:`take_memory`.
    """

    def __init__(self) -> None:
        # By work, the last failure at the end.
        self._noted: OrderedDict[str, _Noted] = OrderedDict()
        self._newest_job = self._newest_execution = -1
        self.last: StandingFailure | None = None
        self.is_new = False
        self._is_loaded = False

    def take_memory(self) -> str:
        """Return the failures as a string, for the next sidecar."""
        self.is_new = False
        return msgspec.json.encode([_shortened(noted) for noted in self._noted.values()]).decode()

    def load_memory(self, memory: str) -> None:
        """Load the failures that the preceding sidecar knew."""
        known: list[_Noted] = []
        # A sidecar of another version may have written the memory, if the package was updated under a running driver.
        with contextlib.suppress(msgspec.DecodeError):
            known = msgspec.json.decode(memory or "[]", type=list[_Noted])
        self._is_loaded = bool(memory)
        self._change(OrderedDict((noted.failure.work, noted) for noted in known))
        self.is_new = False
        for noted in known:
            self.started(noted.job, noted.execution)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Run the block; keep the failures that stand, if they are those of a memory, which is newer."""
        before = self._noted.copy(), self.is_new
        yield
        if self._is_loaded:
            self._change(before[0])
            self.is_new = before[1]

    def started(self, job: int | None = None, execution: int | None = None) -> None:
        """Note that a job, a SQL execution, or a job of a SQL execution has started."""
        if job is not None and job > self._newest_job:
            self._newest_job = job
        if execution is not None and execution > self._newest_execution:
            self._newest_execution = execution

    def succeeded(self, work: str, job: int | None = None, execution: int | None = None) -> None:
        """Clear the failure of the same work if the successful job or SQL execution started after it.

        The success of a job does not clear the failure of a query, which has to commit.

        Args:
            work: the successful work, see :func:`work_of`.
            job: id of the successful job; None for a SQL execution.
            execution: id of the successful SQL execution, or of the job's execution; None for a job outside SQL.
        """
        for noted in list(self._noted.values()):
            if (job is None or job > noted.job) and (execution is None or execution > noted.execution):
                self._followed(noted, noted.failure.run_id is None and noted.failure.work in ("", work))

    def committed(self, work: str, began: int) -> None:
        """Clear the failure of a query that has committed a batch whose trigger began after the failure.

        A commit also clears the failures of jobs in the same query, which its batch has survived.

        Args:
            work: the query, see :func:`work_of`.
            began: time of the trigger, in milliseconds since the epoch.
        """
        for noted in list(self._noted.values()):
            failure = noted.failure
            is_own = failure.work == work
            if began > failure.at or (is_own and failure.run_id is None):
                self._followed(noted, is_own or not failure.work)

    def _followed(self, noted: _Noted, is_over: bool) -> None:
        """Note a success after a failure; it ends the failure, or is of other work."""
        failure = noted.failure
        if is_over:
            del self._noted[failure.work]
            self._change(self._noted)
        elif not failure.is_followed:
            noted = _Noted(dataclasses.replace(failure, is_followed=True), noted.job, noted.execution)
            self._noted[failure.work] = noted
            self._change(self._noted)

    def note(self, failure: StandingFailure) -> None:
        """Store a failure."""
        self._noted.pop(failure.work, None)
        put(self._noted, failure.work, _Noted(failure, self._newest_job, self._newest_execution), _MOST)
        self._change(self._noted)

    def _change(self, noted: OrderedDict[str, _Noted]) -> None:
        self._noted, self.is_new = noted, True
        self.last = next((one.failure for one in reversed(noted.values())), None)

    def named_alike(self, diagnosis: Diagnosis) -> Diagnosis:
        """Return the diagnosis with the error type of the last failure that has the same root cause.

        Spark wraps the failure of a job in other error classes when it reports the SQL execution and the query.
        """
        for noted in reversed(self._noted.values()):
            known = noted.failure.diagnosis
            if same_cause(known.root_cause, diagnosis.root_cause):
                return diagnosis.with_error_type(known.error_type)
        return diagnosis


def _shortened(noted: _Noted) -> _Noted:
    known = noted.failure.diagnosis
    kept = {name: value for name, value in known.attributes.items() if name not in _LONG}
    failure = dataclasses.replace(noted.failure, diagnosis=dataclasses.replace(known, attributes=kept))
    return _Noted(failure, noted.job, noted.execution)


def same_cause(one: str, other: str) -> bool:
    """Return whether two messages describe the same cause; Spark sometimes omits the exception's type."""
    return bool(one and other) and (one.endswith(other) or other.endswith(one))
