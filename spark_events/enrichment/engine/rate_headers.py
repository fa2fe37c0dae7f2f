"""Parsing of the headers in which services report their rate limits."""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ["ReportedLimit", "lower_case", "moment", "number", "pause_in", "reported_limits"]

_X_RESET = "x-ratelimit-reset"
#: Remaining calls and seconds of a limit in a RateLimit header, in the current draft, ``"hour";r=0;t=30``, and in
#: earlier drafts, ``limit=100, remaining=0, reset=30``.
_IETF = (re.compile(r"^r=(\d+)$|^remaining=(\d+)$"), re.compile(r"^t=(\d+)$|^reset=(\d+)$"))
#: A number of at least this value (a time in 2001) is seconds since 1970 and not a duration.
_FIRST_EPOCH = 1e9
#: Durations in Go's format: ``6m0s``, ``20ms``.
_DURATION = re.compile(r"(?=.)(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_DURATION_UNITS = (3600.0, 60.0, 1.0, 0.001)


class ReportedLimit(NamedTuple):
    """Limit that a service has reported.

    Attributes:
        name: the name of the limit, or its unit, such as ``-tokens``; "" if it has none.
        left: the number of remaining calls, or of another unit; None if unknown.
        seconds: seconds until the limit is reset.
    """

    name: str
    left: float | None
    seconds: float

    @property
    def counts_calls(self) -> bool:
        """Whether the unit of the limit is calls."""
        return not self.name.startswith("-") or self.name.startswith("-requests")


def lower_case(headers: Any) -> dict[str, str]:
    """Return headers by lower-case name; a list in several ``RateLimit`` headers becomes one list."""
    found: dict[str, str] = {}
    for given, value in headers.items():
        name = str(given).lower()
        found[name] = f"{found[name]}, {value}" if name == "ratelimit" and name in found else str(value)
    return found


def reported_limits(headers: Mapping[str, str], wall: Callable[[], float]) -> Iterator[list[ReportedLimit]]:
    """Yield the limits in each kind of rate limit headers, the most precise kind first.

    Args:
        headers: the headers by lower-case name.
        wall: returns seconds since 1970; used if a reset is a time.
    """
    yield list(_in_rate_limit(headers.get("ratelimit", "")))
    for prefix in ("ratelimit-reset", _X_RESET):
        names = [name for name in headers if name.startswith(prefix)]
        found = ((name, headers.get(name.replace("reset", "remaining")), moment(headers[name], wall)) for name in names)
        yield [
            ReportedLimit(name.removeprefix(prefix), number(left), seconds)
            for name, left, seconds in found
            if seconds is not None
        ]


def pause_in(limits: list[ReportedLimit]) -> float | None:
    """Return the seconds that a rejected call must wait, or None if no limit is known.

    A service may have several limits, for example for requests and for tokens. If some limits are exhausted, the latest
    reset of these limits counts. Otherwise, the earliest reset of all limits counts.
    """
    exhausted = [limit.seconds for limit in limits if limit.left is not None and limit.left <= 0]
    return max(exhausted) if exhausted else min((limit.seconds for limit in limits), default=None)


def _in_rate_limit(header: str) -> Iterator[ReportedLimit]:
    # Earlier drafts have a single limit, whose parts are separated by commas.
    for limit in [header.replace(",", ";")] if "reset=" in header else header.split(","):
        parts = [part.strip() for part in limit.split(";")]
        left, seconds = (
            next((float(found[1] or found[2]) for part in parts if (found := pattern.match(part))), None)
            for pattern in _IETF
        )
        if seconds is not None:
            yield ReportedLimit(parts[0] if parts[0].startswith('"') else "", left, seconds)


def moment(value: str | None, wall: Callable[[], float]) -> float | None:
    """Return the seconds until a time; None if the string is invalid.

    The string contains seconds, a duration, a date, or seconds since 1970.
    """
    given = number(value)
    if given is not None:
        if given < _FIRST_EPOCH:
            return given
        # Large numbers are seconds since 1970; numbers a thousand times larger are milliseconds.
        return (given if given < 1000 * _FIRST_EPOCH else given / 1000) - wall()
    if not value:
        return None
    if (duration := _DURATION.fullmatch(value)) is not None:
        parts = zip(duration.groups(default="0"), _DURATION_UNITS, strict=True)
        return sum(float(part) * unit for part, unit in parts)
    for parse in (email.utils.parsedate_to_datetime, _of_iso_date):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            found = parse(value)
            # As in HTTP, a date without a time zone is in UTC, not in the executor's time zone.
            return found.replace(tzinfo=found.tzinfo or datetime.timezone.utc).timestamp() - wall()
    return None


def _of_iso_date(value: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))  # fromisoformat rejects Z before Python 3.11


def number(value: str | None, unit: float = 1.0) -> float | None:
    """Return a number times its unit; None if the string contains no finite number."""
    try:
        found = float(value or "")
    except ValueError:
        return None
    return found * unit if math.isfinite(found) else None
