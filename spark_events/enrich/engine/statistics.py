"""What an engine counts: plain data that can be merged over tasks and batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["merged", "summary"]


def merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The sum over tasks of what :meth:`Engine.statistics` gave: peaks are the sum of the tasks' peaks only within
    ``peak_in_flight_tasks``, everywhere else the largest."""
    raise NotImplementedError


def summary(counted: dict[str, Any]) -> dict[str, int | float]:
    """Numbers to show: rows, calls, attempts, retries, timeouts, throttled, coalesced, cached, failures, latency
    quantiles in milliseconds, peak in flight, wait for a slot in milliseconds."""
    raise NotImplementedError
