"""The pauses between attempts, as tenacity wants them."""

from __future__ import annotations

import tenacity

from spark_events.enrichment.plan import Retry

__all__ = ["pauses"]


def pauses(retry: Retry) -> tenacity.wait.wait_base:
    """Doubling from ``initial`` to ``max``, with jitter on top."""
    return tenacity.wait_exponential(multiplier=retry.initial, max=retry.max) + tenacity.wait_random(0, retry.jitter)
