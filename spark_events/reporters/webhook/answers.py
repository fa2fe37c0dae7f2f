"""What the answer of a receiver means for the events that it was sent."""

from __future__ import annotations

from datetime import timezone
from email.utils import parsedate_to_datetime

from spark_events.errors import PermanentError, ThrottledError, TransientError

__all__ = ["RefusedError", "TooLargeError", "retry_after", "verdict"]

#: 4xx that are not about what was sent, but about where, by whom or when: somebody can put that right, so the events
#: are kept. Unauthorized, forbidden, not found, proxy authentication, timeout, gone, misdirected, locked, too early.
_NOT_THEIR_FAULT = frozenset({401, 402, 403, 404, 405, 407, 408, 410, 421, 423, 425, 429})
_TOO_LARGE = 413
_THROTTLED = (429, 503)
#: Nobody is left alone for longer than this, whatever is asked for, in seconds.
_MOST_PATIENCE = 3600.0


class RefusedError(PermanentError):
    """The receiver does not want what it was sent; a part of it, perhaps."""


class TooLargeError(RefusedError):
    """The receiver does not want as much at once."""


def verdict(status: int, asked: str | None, said: str, now: float) -> Exception | None:
    """What to raise for an answer; None when the events are delivered.

    Args:
        status: of HTTP.
        asked: the header ``Retry-After``.
        said: the beginning of what the receiver said.
        now: seconds since the epoch.
    """
    if 200 <= status < 300:
        return None
    message = f"HTTP {status}: {said}" if said else f"HTTP {status}"
    if status in _THROTTLED and (pause := retry_after(asked, now)) is not None:
        return ThrottledError(message, pause)
    if status == _TOO_LARGE:
        return TooLargeError(message)
    if 400 <= status < 500 and status not in _NOT_THEIR_FAULT:
        return RefusedError(message)
    return TransientError(message)


def retry_after(asked: str | None, now: float) -> float | None:
    """Seconds to wait, of a header that has them or a date; None when there is none, or nobody can read it."""
    if asked is None:
        return None
    asked = asked.strip()
    try:
        if asked.isascii() and asked.isdigit():
            seconds = float(asked)
        else:
            date = parsedate_to_datetime(asked)
            seconds = (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp() - now
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, seconds), _MOST_PATIENCE)
