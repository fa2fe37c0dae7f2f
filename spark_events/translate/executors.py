"""Executor losses that explain later failures."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict, deque

from spark_events.event import AttributeValue
from spark_events.records.types import ExecutorAdded, ExecutorRemoved, StageCompleted
from spark_events.translate.bounded import put
from spark_events.translate.executor_events import loss_of
from spark_events.translate.failure_classes import Decision
from spark_events.translate.failures import Diagnosis

__all__ = ["FETCH_FAILED", "Executors"]

_REMEMBERED = 4_096
#: Causes of executor loss that recur if the work is retried without a change.
_MEMORY = ("KILLED", "MEMORY_LIMIT", "OUT_OF_MEMORY")
_LOST = re.compile(r"ExecutorLostFailure \(executor (\S+) exited|[Ee]xecutor (?:ID )?(\S+) (?:is )?lost")
#: Beginning of the failure reason of a stage that could not fetch its input.
FETCH_FAILED = re.compile(r"\S*FetchFailed")
#: In a job's failure message: the number of the stage whose input could not be fetched.
_STAGE = re.compile(r"(?:ShuffleMapStage|ResultStage) (\d+)\b")


@dataclasses.dataclass(frozen=True, slots=True)
class _Lost:
    executor: str
    host: str | None
    reason: str | None


class Executors:
    """Removed executors with the reasons for their removal, and fetch failures by stage."""

    def __init__(self) -> None:
        self.removed_count = 0
        self._present: dict[str, int] | None = {}
        # History of the total number of cores: the time of each change, and the new number.
        self._cores: deque[tuple[int, int]] = deque([(0, 0)], maxlen=_REMEMBERED)
        self._removed: OrderedDict[str, ExecutorRemoved] = OrderedDict()
        self._behind_stages: OrderedDict[int, _Lost] = OrderedDict()

    @property
    def number(self) -> int | None:
        """Current number of executors; None if it is unknown, for example after a restart of the sidecar."""
        return None if self._present is None else len(self._present)

    def core_ms(self, start: int, end: int) -> int | None:
        """Return the available core time of a period, in core-milliseconds; None if it is partly unknown.

        Args:
            start: milliseconds since the epoch.
            end: milliseconds since the epoch.
        """
        if self._present is None:
            return None
        total, until = 0, end
        for since, cores in reversed(self._cores):
            total += cores * max(0, until - max(since, start))
            until = min(until, since)
            if since <= start:
                return total
        return None

    def without_cores_ms(self, start: int, end: int) -> int:
        """Return the time in a period during which no executor existed, as far as it is known."""
        total, until = 0, end
        for since, cores in reversed(self._cores):
            total += max(0, until - max(since, start)) if cores == 0 else 0
            until = min(until, since)
        return total

    def _count_cores(self, at: int) -> None:
        self._cores.append((max(at, self._cores[-1][0]), sum((self._present or {}).values())))

    def forget_number(self) -> None:
        """Mark the number of executors as unknown, after a restart of the sidecar."""
        self._present = None

    def added(self, record: ExecutorAdded) -> None:
        """Count an executor; emit no event."""
        if self._present is not None:
            self._present[record.executor_id] = record.cores
            self._count_cores(record.time)

    def removed(self, record: ExecutorRemoved) -> None:
        """Remember why an executor was removed; emit no event."""
        if self._present is not None:
            self._present.pop(record.executor_id, None)
            self._count_cores(record.time)
        self.removed_count += record.executor_id not in self._removed
        put(self._removed, record.executor_id, record, _REMEMBERED)

    def explain_stage(self, record: StageCompleted, submitted: int, diagnosis: Diagnosis) -> Diagnosis:
        """Add the lost executor to the failure of a stage, if the loss caused the failure.

        Args:
            submitted: start of the stage attempt, 0 if unknown; executors that were removed earlier are not the cause.
        """
        reason = record.failure_reason or ""
        match = _LOST.search(reason)
        if match is not None:
            return _with_executor(diagnosis, self._lost(match[1] or match[2], None))
        if not FETCH_FAILED.match(reason):
            return diagnosis
        lost = None
        if record.lost_executor:
            lost = self._lost(record.lost_executor, record.lost_host)
        elif self._removed:
            # If the map output is missing, Spark names no executor. Assume the executor that was removed last. If
            # the start of the attempt is unknown, the removal may be unrelated.
            latest = self._removed[next(reversed(self._removed))]
            lost = self._lost(latest.executor_id, None) if latest.time >= submitted > 0 else None
        if lost is None:
            return diagnosis
        put(self._behind_stages, record.stage_id, lost, _REMEMBERED)
        return _fetch_failure(diagnosis, lost)

    def explain_job(self, diagnosis: Diagnosis) -> Diagnosis:
        """Add the lost executor to the failure of a job, if a stage of the job could not fetch its input."""
        if not diagnosis.is_fetch_failure:
            return diagnosis
        stage = _STAGE.search(str(diagnosis.attributes["exception.message"]))
        lost = self._behind_stages.get(int(stage[1])) if stage else None
        return diagnosis if lost is None else _fetch_failure(diagnosis, lost)

    def _lost(self, executor: str, host: str | None) -> _Lost:
        removed = self._removed.get(executor)
        return _Lost(executor, host, None if removed is None else removed.reason)


def _fetch_failure(diagnosis: Diagnosis, lost: _Lost) -> Diagnosis:
    """Describe the lost executor as the cause; its loss explains more than the missing shuffle output."""
    where = f"executor {lost.executor}" + (f" on {lost.host}" if lost.host else "")
    if lost.reason:
        summary = f"the shuffle output of {where} is lost: {lost.reason}"
    else:
        summary = f"cannot fetch the shuffle output of {where}: {diagnosis.summary}"
    found = _with_executor(dataclasses.replace(diagnosis, summary=" ".join(summary.split())), lost)
    if lost.reason:
        found.attributes["failure.root_cause"] = f"{diagnosis.attributes['error.type']}: {summary}"
    return found


def _with_executor(diagnosis: Diagnosis, lost: _Lost) -> Diagnosis:
    about: dict[str, AttributeValue] = {"failure.executor.id": lost.executor}
    if lost.reason is not None:
        about["failure.executor.reason"] = lost.reason
    if loss_of(lost.reason)[0] in _MEMORY:
        memory = Decision("EXECUTOR_OUT_OF_MEMORY", "exit-code")
        about |= {"failure.class": memory.failure_class, "failure.evidence": "exit-code", "failure.retry_useful": False}
        if "failure.label.type" in diagnosis.attributes and memory.label:
            about["failure.label.type"] = memory.label
    return dataclasses.replace(diagnosis, attributes={**diagnosis.attributes, **about})
