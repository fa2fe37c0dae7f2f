"""How often the processes of a job report to the parts of its state."""

from __future__ import annotations

import dataclasses

__all__ = ["ReportTuning"]


@dataclasses.dataclass(frozen=True, slots=True)
class ReportTuning:
    """Times of the reports.

    Attributes:
        min_interval: minimum time between two reports, in seconds.
        max_interval: maximum time between two reports, in seconds.
        silent_seconds: time without a report after which a process no longer counts, and its leases expire.
    """

    min_interval: float = 0.05
    max_interval: float = 0.1
    silent_seconds: float = 5.0
