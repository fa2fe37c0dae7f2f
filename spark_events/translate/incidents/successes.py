"""Which commits of a streaming application close the application's incident."""

from __future__ import annotations

import math

__all__ = ["Successes"]

#: Time after which a commit closes the application's incident again, in milliseconds.
_AGAIN = 600_000


class Successes:
    """Commits of this run, as evidence that the application works again after the failure or loss of another run.

    A run does not know which other runs of its application have failed since its last commit: an earlier run may have
    been lost while this one was running. A watcher reports such a loss as an alarm only if no later run has committed
    for two heartbeat intervals. Therefore a commit closes the application's incident

    - if it is the first commit,
    - if no other commit came before it for two heartbeat intervals, or
    - every ten minutes, because a driver's own sidecar reports its loss at once.

    Closing an incident that is not open has no effect. Commits of two queries may arrive in the wrong order, and the
    driver's clock may be set, so the times are only compared by their distance.

    Args:
        heartbeat_interval: in seconds; None without heartbeats, on which a watcher depends.

    Attributes:
        has_begun: whether this run has shown success.
    """

    def __init__(self, heartbeat_interval: float | None) -> None:
        self._silence = math.inf if heartbeat_interval is None else 2_000 * heartbeat_interval
        self.has_begun = False
        self._last_at = self._closed_at = 0

    def closes(self, at: int) -> bool:
        """Record a commit; return whether it closes the incident of the application.

        Args:
            at: time of the commit, in milliseconds since the epoch.
        """
        is_rare, is_due = abs(at - self._last_at) > self._silence, abs(at - self._closed_at) >= _AGAIN
        self._last_at = at
        if self.has_begun and not is_rare and not is_due:
            return False
        self.has_begun, self._closed_at = True, at
        return True
