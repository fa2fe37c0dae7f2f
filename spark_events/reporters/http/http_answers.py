"""Classification of HTTP responses: delivered, refused, throttled, or to be retried."""

from __future__ import annotations

from datetime import timezone
from email.utils import parsedate_to_datetime

from spark_events.errors import ThrottledError, TransientError
from spark_events.reporters.batch_progress import RefusedError, TooLargeError

#: 4xx statuses that concern the URL, the credentials or the timing, not the events: unauthorized, forbidden, not
#: found, proxy authentication, timeout, gone, misdirected, locked, too early. The events are retried.
_RETRIED_STATUSES = frozenset({401, 402, 403, 404, 405, 407, 408, 410, 421, 423, 425, 429})
_TOO_LARGE = 413
_THROTTLED = 429
#: Throttling only with the header ``Retry-After``; otherwise an outage.
_THROTTLED_WITH_PAUSE = 503
#: Longest accepted Retry-After, in seconds.
_MOST_PATIENCE = 3600.0


def verdict(status: int, asked: str | None, excerpt: str, now: float) -> Exception | None:
    """Return the error to raise for a response, or None if the events are delivered.

    Args:
        status: HTTP status.
        asked: header ``Retry-After``.
        excerpt: beginning of the response's body.
        now: seconds since the epoch.
    """
    if 200 <= status < 300:
        return None
    message = f"HTTP {status}: {excerpt}" if excerpt else f"HTTP {status}"
    pause = retry_after(asked, now)
    if status == _THROTTLED or (status == _THROTTLED_WITH_PAUSE and pause is not None):
        return ThrottledError(message, pause or 0.0)
    if status == _TOO_LARGE:
        return TooLargeError(message)
    if 400 <= status < 500 and status not in _RETRIED_STATUSES:
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
