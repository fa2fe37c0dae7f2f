"""Status of an application or of a run of a streaming query."""

from __future__ import annotations

__all__ = ["Status"]


class Status:
    """Status that begins with RUNNING and ends with one final status.

    Any status may be the first known status, if earlier records were lost or the sidecar started later.

    Attributes:
        value: the current status; None while it is unknown.
        is_over: whether the status is final.
    """

    __slots__ = ("is_over", "value")

    def __init__(self) -> None:
        self.value: str | None = None
        self.is_over = False

    def become(self, new: str) -> bool:
        """Set a new status; if the status is final or does not change, return False."""
        if self.is_over or new == self.value:
            return False
        self.value, self.is_over = new, new != "RUNNING"
        return True
