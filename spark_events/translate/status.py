"""Statuses and the allowed transitions between them.

======================  ==========================================================
application             RUNNING -> FINISHED, FAILED, CANCELLED, ENDED, LOST
streaming query         RUNNING -> FINISHED, FAILED; both -> RUNNING with a new run
job                     RUNNING -> FINISHED, FAILED, CANCELLED
stage attempt           NOT_ALL_RUNNING_OR_FINISHED <-> ALL_RUNNING_OR_FINISHED -> ALL_FINISHED
watermark               ACTIVE <-> IDLE
======================  ==========================================================

Any status may also be the first known status, if earlier records were lost or the sidecar started later.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["APPLICATION", "JOB", "QUERY", "STAGE", "Status", "Transitions"]

Transitions = Mapping[str, frozenset[str]]

_OVER: frozenset[str] = frozenset()

APPLICATION: Transitions = {
    "RUNNING": frozenset({"FINISHED", "FAILED", "CANCELLED", "ENDED", "LOST"}),
    "FINISHED": _OVER,
    "FAILED": _OVER,
    "CANCELLED": _OVER,
    "ENDED": _OVER,
    "LOST": _OVER,
}
QUERY: Transitions = {
    "RUNNING": frozenset({"FINISHED", "FAILED"}),
    "FINISHED": _OVER,
    "FAILED": _OVER,
}
JOB: Transitions = {
    "RUNNING": frozenset({"FINISHED", "FAILED", "CANCELLED"}),
    "FINISHED": _OVER,
    "FAILED": _OVER,
    "CANCELLED": _OVER,
}
STAGE: Transitions = {
    "NOT_ALL_RUNNING_OR_FINISHED": frozenset({"ALL_RUNNING_OR_FINISHED", "ALL_FINISHED"}),
    "ALL_RUNNING_OR_FINISHED": frozenset({"NOT_ALL_RUNNING_OR_FINISHED", "ALL_FINISHED"}),
    # If an executor is lost, the output of finished tasks may be lost too; such tasks run again.
    "ALL_FINISHED": frozenset({"NOT_ALL_RUNNING_OR_FINISHED", "ALL_RUNNING_OR_FINISHED"}),
}


class Status:
    """Status of an application, query, job, stage attempt or watermark.

    Args:
        transitions: the allowed next statuses of each status.
        value: the current status; None while it is unknown.
    """

    __slots__ = ("_transitions", "value")

    def __init__(self, transitions: Transitions, value: str | None = None) -> None:
        self._transitions = transitions
        self.value = value

    @property
    def is_over(self) -> bool:
        """Whether the status is final."""
        return self.value is not None and not self._transitions[self.value]

    def become(self, new: str) -> bool:
        """Set a new status; if the transition is not allowed, keep the current status and return False."""
        if self.value is not None and new not in self._transitions[self.value]:
            return False
        self.value = new
        return True
