"""Executors that were lost, as the cause of what fails next."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from collections.abc import Iterator

from spark_events.bridge.records import ExecutorRemoved, StageCompleted
from spark_events.event import AttributeValue
from spark_events.translate.draft import Draft
from spark_events.translate.failures import Diagnosis

__all__ = ["Executors"]

_REMEMBERED = 4_096
_LOST = re.compile(r"ExecutorLostFailure \(executor (\S+) exited|[Ee]xecutor (?:ID )?(\S+) (?:is )?lost")
_FETCH_FAILED = re.compile(r"\S*FetchFailed")
#: A job that fails because one of its stages could not fetch its input names that stage.
_STAGE = re.compile(r"(?:ShuffleMapStage|ResultStage) (\d+)\b")


@dataclasses.dataclass(frozen=True, slots=True)
class _Lost:
    executor: str
    host: str | None
    reason: str | None


class Executors:
    """Which executors are gone, and why; whose shuffle output could not be fetched, by stage."""

    def __init__(self) -> None:
        self._removed: OrderedDict[str, ExecutorRemoved] = OrderedDict()
        self._behind_stages: OrderedDict[int, _Lost] = OrderedDict()

    def removed(self, record: ExecutorRemoved) -> Iterator[Draft]:
        """An executor is gone: no event by itself."""
        self._removed[record.executor_id] = record
        if len(self._removed) > _REMEMBERED:
            self._removed.popitem(last=False)
        yield from ()

    def explain_stage(self, record: StageCompleted, submitted: int, diagnosis: Diagnosis) -> Diagnosis:
        """Name the executor whose loss failed a stage attempt, if it was that.

        Args:
            submitted: when the attempt began; an executor that was removed before is not the cause.
        """
        reason = record.failure_reason or ""
        match = _LOST.search(reason)
        if match is not None:
            return _with_executor(diagnosis, self._lost(match[1] or match[2], None))
        if not _FETCH_FAILED.match(reason):
            return diagnosis
        lost = None
        if record.lost_executor:
            lost = self._lost(record.lost_executor, record.lost_host)
        elif self._removed:
            # Where the map output itself is missing, Spark names no executor; it went with the latest one.
            latest = self._removed[next(reversed(self._removed))]
            lost = self._lost(latest.executor_id, None) if latest.time >= submitted else None
        if lost is None:
            return diagnosis
        self._behind_stages[record.stage_id] = lost
        if len(self._behind_stages) > _REMEMBERED:
            self._behind_stages.popitem(last=False)
        return _fetch_failure(diagnosis, lost)

    def explain_job(self, diagnosis: Diagnosis) -> Diagnosis:
        """Name the executor whose loss failed a job, if a stage of it could not fetch its input."""
        if not diagnosis.is_fetch_failure:
            return diagnosis
        stage = _STAGE.search(str(diagnosis.attributes["exception.message"]))
        lost = self._behind_stages.get(int(stage[1])) if stage else None
        return diagnosis if lost is None else _fetch_failure(diagnosis, lost)

    def _lost(self, executor: str, host: str | None) -> _Lost:
        removed = self._removed.get(executor)
        return _Lost(executor, host, None if removed is None else removed.reason)


def _fetch_failure(diagnosis: Diagnosis, lost: _Lost) -> Diagnosis:
    """Which output is missing says less than why: its executor is gone."""
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
    return dataclasses.replace(diagnosis, attributes={**diagnosis.attributes, **about})
