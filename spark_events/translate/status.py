"""The statuses there are, and which may follow which.

======================  ==========================================================
application             RUNNING -> FINISHED, FAILED, CANCELLED, ENDED, LOST
streaming query         RUNNING -> FINISHED, FAILED; both -> RUNNING with a new run
job                     RUNNING -> FINISHED, FAILED, CANCELLED
stage attempt           NOT_ALL_RUNNING_OR_FINISHED <-> ALL_RUNNING_OR_FINISHED -> ALL_FINISHED
watermark               ACTIVE <-> IDLE
======================  ==========================================================

A status may also be reached from nowhere: the records before were lost, or the sidecar came later.
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
    # An executor that is lost takes finished output with it.
    "ALL_FINISHED": frozenset({"NOT_ALL_RUNNING_OR_FINISHED", "ALL_RUNNING_OR_FINISHED"}),
}


class Status:
    """The status of one thing.

    Args:
        transitions: which status may follow which.
        value: the status it has; None where nothing is known of it.
    """

    __slots__ = ("_transitions", "value")

    def __init__(self, transitions: Transitions, value: str | None = None) -> None:
        self._transitions = transitions
        self.value = value

    @property
    def is_over(self) -> bool:
        """Whether no status can follow."""
        return self.value is not None and not self._transitions[self.value]

    def become(self, new: str) -> bool:
        """Takes the new status; False, and nothing happens, where it may not follow."""
        if self.value is not None and new not in self._transitions[self.value]:
            return False
        self.value = new
        return True
