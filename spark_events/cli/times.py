"""Times on the command line."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from spark_events.cli.arguments import UsageError
from spark_events.config import positive_duration

TIME = "a time such as 2026-01-31T10:00, with or without an offset (none: UTC), 'now', or a duration before now (24h)"
_RELATIVE = re.compile(r"\d+\s*(ms|s|m|min|h|d)")


def millis_of(option: str, given: str, now: int) -> int:
    """Return a time in milliseconds.

    Args:
        option: the option, for the message.
        given: its argument.
        now: the current time in milliseconds.

    Raises:
        UsageError: the argument is not a valid time.
    """
    if given == "now":
        return now
    try:
        if _RELATIVE.fullmatch(given):
            return max(0, now - round(positive_duration.parse(given) * 1000))
        # Python 3.10 does not accept the suffix Z.
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", given))
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(f"{option}: given {given!r}, expected {TIME}") from None
