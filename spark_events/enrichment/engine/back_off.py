"""Pause between two attempts of a call."""

from __future__ import annotations

import dataclasses
import random

from spark_events.enrichment.settings import Retry

__all__ = ["BackOffTuning", "back_off", "doubled", "spread"]

#: Bound of the exponent, so that no number of attempts overflows a float.
_MOST_DOUBLINGS = 64


@dataclasses.dataclass(frozen=True, slots=True)
class BackOffTuning:
    """Constants of the pauses.

    Attributes:
        overtaking_attempts: after this number of attempts, a call that was rejected because of the rate no longer
            overtakes first attempts. Otherwise a call that the destination always rejects would take their turns.
        suspicious_attempts: after this number of attempts, a rejected call may itself be the reason for its rejections.
        busy_seconds: longest pause of a row whose destination is busy with other rows, if the latency is unknown.
        busy_jitter: a pause for the latency of a call is longer or shorter by at most this fraction, at random.
        give_up_ratio: part of ``total_timeout`` after which a destination that has only rejected calls counts as down.
            Pauses double, so the last pause may take up to half of the available time.
    """

    overtaking_attempts: int = 2
    suspicious_attempts: int = 3
    busy_seconds: float = 1.0
    busy_jitter: float = 0.5
    give_up_ratio: float = 0.4


def doubled(seconds: float, attempt: int) -> float:
    """Return the pause after an attempt (from 1), which doubles with each attempt."""
    return seconds * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS)


def spread(seconds: float, jitter: float) -> float:
    """Return a time that differs at random by at most this fraction, so that calls do not end together."""
    return seconds * random.uniform(1 - jitter, 1 + jitter)


def back_off(retry: Retry, attempt: int) -> float:
    """Return the pause in seconds after an attempt (from 1).

    The pause doubles from ``initial`` to ``max``, plus jitter.
    """
    return min(doubled(retry.initial, attempt), retry.max) + random.uniform(0, retry.jitter)
