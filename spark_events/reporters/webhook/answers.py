"""Classification of HTTP responses: delivered, retry, or refuse."""

from __future__ import annotations

from datetime import timezone
from email.utils import parsedate_to_datetime

from spark_events.errors import PermanentError, ThrottledError, TransientError

__all__ = ["RefusedError", "TooLargeError", "retry_after", "verdict"]

#: 4xx statuses that blame the address, the credentials or the time, not the events: unauthorized, forbidden, not found,
#: proxy authentication, timeout, gone, misdirected, locked, too early. The events are kept and retried.
_NOT_THEIR_FAULT = frozenset({401, 402, 403, 404, 405, 407, 408, 410, 421, 423, 425, 429})
_TOO_LARGE = 413
_THROTTLED = (429, 503)
#: Longest accepted Retry-After, in seconds.
_MOST_PATIENCE = 3600.0


class RefusedError(PermanentError):
    """The receiver refuses the request, or some of its events."""


class TooLargeError(RefusedError):
    """The request is larger than the receiver accepts."""


def verdict(status: int, asked: str | None, said: str, now: float) -> Exception | None:
    """Return the error to raise for a response, or None if the events are delivered.

    Args:
        status: HTTP status.
        asked: header ``Retry-After``.
        said: beginning of the response's text.
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
    """Return the seconds to wait, from a number or a date; None if the header is absent or invalid."""
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
