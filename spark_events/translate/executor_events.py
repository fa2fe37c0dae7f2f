"""Events for added, lost and excluded executors; the event of a loss explains the reason."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping

from spark_events.event import AttributeValue, Severity
from spark_events.failures.exit_codes import killed_by
from spark_events.records.types import Exclusion, ExecutorAdded, ExecutorRemoved, Unschedulable
from spark_events.translate.bounded import put
from spark_events.translate.clients import client_attributes, with_client
from spark_events.translate.draft import Draft, counted, present

__all__ = ["ExecutorEvents", "loss_of"]

_INTERVAL_MILLIS = 60_000
#: Maximum number of removed executors to remember.
_REMEMBERED = 4_096
_WAS = ("was", "were")
_CODE = re.compile(
    r"exit(?:ed)?[ _]?(?:with )?(?:code|status)?(?: from container \S+)?(?: is)?\s*(?::\s*)?(-?\d{1,3})\b"
    r"|\bcode:? (-?\d{1,3})\b",
    re.IGNORECASE,
)
#: Patterns of Spark's reasons for a loss, each with a label for the cause and a clause for the event's body. The first
#: match decides. The reasons come from Spark's schedulers for YARN, Kubernetes and standalone clusters.
_CAUSES = (
    (r"\bspot\b|preempt|reclaim|NodeShutdown|node is shutting down", "RECLAIMED", "its machine was reclaimed"),
    (r"decommission", "DECOMMISSIONED", "it was decommissioned"),
    (r"killed by driver|explicit termination request", "RELEASED", "the driver released it"),
    (r"heartbeat timed out", "HEARTBEAT_TIMEOUT", "it sent no heartbeat in time"),
    (r"memory limits|OOMKilled", "MEMORY_LIMIT", "it was killed for exceeding its container's memory limit"),
    (r"worker (?:lost|shutting down|removed)|lost worker", "WORKER_LOST", "its worker was lost"),
    (r"disassociated|connection (?:reset|closed)", "DISCONNECTED", "its connection was closed"),
)
_CODES = {
    52: ("OUT_OF_MEMORY", "it ran out of heap memory (OutOfMemoryError, exit code 52)"),
    137: ("KILLED", f"it was {killed_by(137)}"),
    143: ("TERMINATED", f"it was {killed_by(143)}"),
}
_RELEASED = "RELEASED"
_EXCLUSION = "EXCLUSION"


def loss_of(reason: str | None) -> tuple[str, str, int | None]:
    """Return the label of a loss, a clause that explains it, and the exit code if known."""
    text = reason or ""
    found = _CODE.search(text)
    code = None if found is None else int(found[1] or found[2])
    for pattern, label, clause in _CAUSES:
        if re.search(pattern, text, re.IGNORECASE):
            return label, clause if code is None else f"{clause} (exit code {code})", code
    if code in _CODES:
        return *_CODES[code], code
    if code is not None:
        killed = killed_by(code)
        return "EXITED", f"it was {killed}" if killed else f"it ended with exit code {code}", code
    return "UNKNOWN", f"Spark reports: {' '.join(text.split())[:200]}" if text else "Spark reports no reason", None


class ExecutorEvents:
    """Events of executors, limited per minute; a summary counts the suppressed events.

    Args:
        most: events per minute; 0: no events.
        of_stage: returns the attributes of a running stage attempt, by stage id and attempt; empty if unknown.

    Attributes:
        next_due: time at which the summary of suppressed events is due, in milliseconds since the epoch; None if
            no event is suppressed.
    """

    def __init__(self, most: int, of_stage: Callable[[int, int], Mapping[str, AttributeValue]]) -> None:
        self.next_due: int | None = None
        self._most = most
        self._of_stage = of_stage
        self._began = 0
        self._count = 0
        # Keys of this minute's events; a repeated record produces no second event.
        self._reported: set[tuple[object, ...]] = set()
        self._more: Counter[str] = Counter()
        self._removed: OrderedDict[str, None] = OrderedDict()

    def added(self, record: ExecutorAdded) -> Iterator[Draft]:
        """Report a new executor."""
        body = f"Executor {record.executor_id} was added on {record.host} with {counted(record.cores, 'core')}"
        details: dict[str, AttributeValue | None] = {
            "spark.executor.host": record.host,
            "spark.executor.cores": record.cores,
        }
        key = ("executor", record.executor_id, "ADDED", record.time)
        details["spark.executor.id"], details["spark.status.new"] = record.executor_id, "ADDED"
        yield from self._report(record.time, key, "ADDED", body, Severity.DEBUG, details)

    def removed(self, record: ExecutorRemoved) -> Iterator[Draft]:
        """Report an executor that was lost or that the driver released.

        Spark never uses the id of an executor again.
        """
        # Spark's DriverEndpoint.removeExecutor (3.5, 4.0, 4.3) reports an executor when its connection closes, and when
        # the cluster manager reports the end of its process, although the executor is removed by then.
        if record.executor_id in self._removed:
            return
        put(self._removed, record.executor_id, None, _REMEMBERED)
        label, clause, code = loss_of(record.reason)
        is_lost = label != _RELEASED
        body = f"Executor {record.executor_id}{f' on {record.host}' if record.host else ''} was "
        body += "lost" if is_lost else "removed"
        if record.tasks:
            noun = "stage" if len(record.stages) == 1 else "stages"
            stages = ", ".join(map(str, record.stages[:10]))
            body += f" with {counted(record.tasks, 'running task')} of {noun} {stages}"
        severity = Severity.WARN if is_lost else Severity.DEBUG
        status = "LOST" if is_lost else "REMOVED"
        details: dict[str, AttributeValue | None] = {
            "spark.executor.id": record.executor_id,
            "spark.status.old": "ADDED",
            "spark.status.new": status,
            "spark.executor.host": record.host,
            "spark.executor.loss": label,
            "spark.executor.reason": record.reason,
            "spark.executor.exit_code": code,
            "spark.executor.tasks_lost": record.tasks,
            "spark.executor.stages": ",".join(map(str, record.stages)) or None,
        }
        key = ("executor", record.executor_id, status, record.time)
        yield from self._report(record.time, key, label, f"{body}: {clause}", severity, details)

    def exclusion(self, record: Exclusion) -> Iterator[Draft]:
        """Report that Spark excludes an executor or a node after failures, or includes it again."""
        is_node = record.executor_id is None
        who = f"Node {record.host}" if is_node else f"Executor {record.executor_id}"
        failed = "executor" if is_node else "task"
        scope = "application" if record.stage_id is None else "stage"
        old, status = ("INCLUDED", "EXCLUDED") if record.excluded else ("EXCLUDED", "INCLUDED")
        stage, about = self._stage(record)
        if record.excluded:
            where = stage or "the application"
            body = f"{who} was excluded from {where} after {counted(record.failures, f'failed {failed}')}"
        else:
            body = f"{who} is no longer excluded"
        details: dict[str, AttributeValue | None] = {
            "spark.executor.id": record.executor_id,
            "spark.executor.host": record.host,
            "spark.status.old": old,
            "spark.status.new": status,
            "spark.executor.scope": scope,
            "spark.executor.failures": record.failures if record.excluded else None,
            **about,
        }
        key = ("exclusion", who, status, scope, record.stage_id or 0, record.attempt, record.time)
        severity = Severity.WARN if record.excluded else Severity.INFO
        yield from self._report(record.time, key, _EXCLUSION, body, severity, details)

    def unschedulable(self, record: Unschedulable) -> Iterator[Draft]:
        """Report that exclusions leave no executor for a task of a stage, or that this has ended."""
        status = "UNSCHEDULABLE" if record.unschedulable else "SCHEDULABLE"
        old = "SCHEDULABLE" if record.unschedulable else "UNSCHEDULABLE"
        stage, about = self._stage(record)
        body = f"S{stage[1:]} can be scheduled again"
        if record.unschedulable:
            # Spark posts this event only with dynamic allocation. Otherwise, it aborts the stage at once.
            body = f"S{stage[1:]} cannot be scheduled: all executors are excluded for one of its tasks; dynamic "
            body += "allocation requests another executor, and Spark aborts the stage if the task cannot start in time"
        details: dict[str, AttributeValue | None] = {"spark.status.old": old, "spark.status.new": status}
        key = ("unschedulable", record.stage_id, record.attempt, status, record.time)
        severity = Severity.WARN if record.unschedulable else Severity.INFO
        yield from self._report(record.time, key, _EXCLUSION, body, severity, {**details, **about})

    def _stage(self, record: Exclusion | Unschedulable) -> tuple[str, dict[str, AttributeValue | None]]:
        """Return the stage's name with its client, and its attributes; both are empty for the whole application."""
        if record.stage_id is None:
            return "", {}
        client = client_attributes(self._of_stage(record.stage_id, record.attempt))
        about: dict[str, AttributeValue | None] = {
            "spark.stage.id": record.stage_id,
            "spark.stage.attempt": record.attempt,
            **client,
        }
        return with_client(f"stage {record.stage_id}", client), about

    def flush(self, now: int | None = None) -> Iterator[Draft]:
        """Report the number of suppressed events if the minute has ended.

        Args:
            now: milliseconds since the epoch; None: the application ends.
        """
        if self.next_due is None or (now is not None and now < self.next_due):
            return
        counts, self._more, self.next_due = self._more, Counter(), None
        added, excluded = counts.pop("ADDED", 0), counts.pop(_EXCLUSION, 0)
        lost = sum(counts.values()) - counts.get(_RELEASED, 0)
        parts = [f"{counted(added, 'more executor', _WAS)} added"] if added else []
        if counts:
            causes = ", ".join(f"{number} {label}" for label, number in counts.most_common())
            parts.append(f"{counted(sum(counts.values()), 'more executor', _WAS)} removed ({causes})")
        if excluded:
            parts.append(f"{counted(excluded, 'more exclusion', ('has', 'have'))} changed")
        yield Draft(
            name="ExecutorStatusChangeEvent",
            class_scope="spark.executor",
            key=("executors", self._began),
            body=f"Within one minute, {' and '.join(parts)}",
            severity=Severity.WARN if lost or excluded else Severity.DEBUG,
            observed_ts_millis=self._began + _INTERVAL_MILLIS if now is not None else self._began,
            attributes={
                "spark.executor.more_added": added,
                "spark.executor.more_removed": sum(counts.values()),
                "spark.executor.more_excluded": excluded,
            },
        )

    def _report(
        self,
        time: int,
        key: tuple[str | int, ...],
        label: str,
        body: str,
        severity: Severity,
        details: dict[str, AttributeValue | None],
    ) -> Iterator[Draft]:
        if not self._most:
            return
        yield from self.flush(time)
        if time >= self._began + _INTERVAL_MILLIS:
            self._began, self._count = time, 0
            self._reported.clear()
        if key in self._reported:
            return
        self._count += 1
        if self._count > self._most:
            self._more[label] += 1
            self.next_due = self._began + _INTERVAL_MILLIS
            return
        self._reported.add(key)
        yield Draft(
            name="ExecutorStatusChangeEvent",
            class_scope="spark.executor",
            key=key,
            body=body,
            severity=severity,
            observed_ts_millis=time,
            attributes=present(details),
        )
