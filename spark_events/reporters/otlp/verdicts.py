"""What a receiver's answer means for the events of a request.

The tables are those of the OTLP specification ("Failures", "OTLP/gRPC Throttling", "OTLP/HTTP Response"). It
says what must not be retried *as it is*; that is no reason to lose events. So there are two kinds of that: the
receiver has judged these events (:class:`Refused`), or it takes nothing from us, whatever it is: wrong
credentials, a wrong path (:class:`UnavailableError`, whose events are held until somebody has put it right).
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping

from spark_events.errors import SparkEventsError, ThrottledError

__all__ = ["Refused", "TooLarge", "UnavailableError", "of_grpc", "of_http"]

#: Characters of an address.
_MOST_QUOTED = 200
#: A receiver that asks for more than this is asked again before.
_LONGEST_PAUSE = 300.0
_TRANSIENT_CODES = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
_CONFIGURATION_CODES = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "NOT_FOUND"})
_TOO_LARGE = re.compile(r"larger than max|exceeds (the )?max|too large", re.IGNORECASE)
#: What gRPC itself says where a connection broke; the receiver has judged nothing.
_BROKEN = re.compile(r"RST_STREAM|[Ss]tream removed|[Cc]onnection|[Ss]ocket")
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 502, 503, 504})


class Refused(Exception):
    """The receiver has judged the events of a request; whether all of them are at fault, it does not say."""


class TooLarge(Refused):
    """The request is larger than the receiver takes."""


class UnavailableError(SparkEventsError):
    """The receiver cannot take anything, or nothing from us."""


def of_grpc(code: str, details: str, retry_delay: float | None) -> Exception:
    """The verdict of a status.

    Args:
        code: the name of the status code.
        details: what the receiver said.
        retry_delay: seconds, of its ``RetryInfo``.
    """
    said = f"{code}: {details}" if details else code
    if code == "RESOURCE_EXHAUSTED" and _TOO_LARGE.search(details):
        return TooLarge(said)
    if retry_delay is not None and (code == "RESOURCE_EXHAUSTED" or code in _TRANSIENT_CODES):
        return ThrottledError(said, min(retry_delay, _LONGEST_PAUSE))
    # Exhausted without a word on when to come again: the specification gives up here; we ask again.
    if code in _TRANSIENT_CODES or code in _CONFIGURATION_CODES or code == "RESOURCE_EXHAUSTED":
        return UnavailableError(said)
    if code in ("INTERNAL", "UNKNOWN") and _BROKEN.search(details):
        return UnavailableError(said)
    return Refused(said)


def of_http(status: int, headers: Mapping[str, str], message: str, is_otlp: bool) -> Exception:
    """The verdict of a response that is no success.

    Args:
        status: its code.
        headers: found in any case.
        message: what its body says.
        is_otlp: whether the body is one that an OTLP receiver writes.
    """
    said = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    if location := headers.get("location"):
        said = f"{said}, it says to go to {location.partition('?')[0][:_MOST_QUOTED]}"
    if status == 413:
        return TooLarge(said)
    if status in _TRANSIENT_STATUSES:
        pause = _retry_after(headers.get("retry-after"))
        return UnavailableError(said) if pause is None else ThrottledError(said, min(pause, _LONGEST_PAUSE))
    # A proxy's page of errors is no verdict of the receiver behind it.
    if (status == 400 or status >= 500) and is_otlp:
        return Refused(said)
    return UnavailableError(said)


def _retry_after(value: str | None) -> float | None:
    """Seconds, of either form that RFC 9110 has; None where it is neither."""
    if value is None:
        return None
    if re.fullmatch(r"\d{1,9}", value.strip()):
        return float(value)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())
