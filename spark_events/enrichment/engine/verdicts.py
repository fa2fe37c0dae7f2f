"""Classification of failed attempts: whether a retry may help, and whether the destination is down."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import email.utils
import errno
import math
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spark_events.enrichment.engine.client_errors import DOWN, FINAL, SILENT, Verdict, by_code, by_type, families
from spark_events.enrichment.settings import Retry

__all__ = ["InvalidAnswerError", "NotAcceptedError", "Verdict", "essence_of", "judge", "verdict_on"]


class NotAcceptedError(Exception):
    """Error: ``on_result`` rejected the result of a call."""


class InvalidAnswerError(NotAcceptedError):
    """Error: the result of a call does not fit the output, and ``on_invalid`` asks for another attempt."""

    # Type name in the failure, the same as for invalid answers that are not retried.
    __module__, __qualname__ = "builtins", "OutputError"


_TOO_MANY = 429
#: Anthropic and others use 529 for an overloaded service.
_OVERLOADED = {503, 529}
_THROTTLED = {_TOO_MANY, *_OVERLOADED}
#: With Retry-After, these statuses indicate an overloaded gateway or GitHub's secondary rate limit.
_THROTTLED_IF_ASKED = {403, 502, 504}
#: A gateway gave up waiting for a service; the service may just be slow.
_GATEWAY_TIMEOUT = 504
_TIMEOUT_STATUSES = {408, _GATEWAY_TIMEOUT}
_SERVER_ERRORS = range(500, 600)
_STATUSES = range(100, 600)
#: Upper bound of Retry-After, in seconds. A longer value is probably a mistake, and would delay all later batches of
#: the worker.
_LONGEST_PAUSE = 86_400.0
_RESETS = "x-ratelimit-reset"
#: Remaining calls and seconds of a limit in a RateLimit header, in the current draft, ``"hour";r=0;t=30``, and in
#: earlier drafts, ``limit=100, remaining=0, reset=30``.
_IETF = (re.compile(r"^r=(\d+)$|^remaining=(\d+)$"), re.compile(r"^t=(\d+)$|^reset=(\d+)$"))
#: A number of at least this value (a time in 2001) is seconds since 1970 and not a duration.
_FIRST_EPOCH = 1e9
#: Durations in Go's format: ``6m0s``, ``20ms``.
_DURATION = re.compile(r"(?=.)(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_DURATION_UNITS = (3600.0, 60.0, 1.0, 0.001)

_NETWORK_ERRNOS = {
    getattr(errno, name)
    for name in (
        "EADDRNOTAVAIL", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN", "EHOSTUNREACH", "EMFILE",
        "ENETDOWN", "ENETRESET", "ENETUNREACH", "ENOBUFS", "EPIPE", "ETIMEDOUT",
    )
    if hasattr(errno, name)
}  # fmt: skip


def verdict_on(error: BaseException, retry: Retry | None) -> tuple[BaseException, Verdict]:
    """Return the decisive exception of an attempt's error, and its verdict."""
    error = essence_of(error, retry)
    return error, judge(error, retry)


def essence_of(error: BaseException, retry: Retry | None) -> BaseException:
    """Return the decisive exception of an exception group, or any other error unchanged.

    ``asyncio.TaskGroup``, for example, raises exception groups. The decisive exception is the first permanent
    exception, otherwise the first exception with a retry time, otherwise the first exception. If the user's ``on``
    accepts the group itself for a retry, the group is returned.
    """
    if not any(kind.__name__ == "BaseExceptionGroup" for kind in type(error).__mro__):
        return error
    if retry is not None and retry.on is not None and judge(error, retry).retryable:
        return error
    parts: tuple[BaseException, ...] = error.exceptions  # type: ignore[attr-defined]
    inner = [essence_of(part, retry) for part in parts]
    verdicts = [judge(one, retry) for one in inner]
    final = (one for one, verdict in zip(inner, verdicts, strict=True) if not verdict.retryable)
    delayed = (one for one, verdict in zip(inner, verdicts, strict=True) if verdict.retry_after is not None)
    return next(final, next(delayed, inner[0]))


def judge(error: BaseException, retry: Retry | None, wall: Callable[[], float] = time.time) -> Verdict:
    """Return the verdict on an attempt's error.

    Args:
        error: the exception that the attempt raised.
        retry: the user's policy; None: no retries.
        wall: returns seconds since 1970; used if Retry-After is a date.
    """
    if isinstance(error, NotAcceptedError):
        return Verdict(retryable=True, answered=True)
    nature = _nature(error, wall)
    if retry is None or not isinstance(error, Exception):
        # CancelledError, SystemExit and KeyboardInterrupt request termination and not a retry.
        return dataclasses.replace(nature, retryable=False)
    if retry.on is None:
        return nature
    wanted = isinstance(error, tuple(retry.on)) if isinstance(retry.on, Sequence) else bool(retry.on(error))
    return dataclasses.replace(nature, retryable=wanted)


def _nature(error: BaseException, wall: Callable[[], float]) -> Verdict:
    cause, of_database = error.__cause__, getattr(error, "orig", None)
    if isinstance(cause, Exception) and ("aiohttp", "HttpProcessingError") in families(cause):
        # The response was not valid HTTP. aiohttp reports this as status 400, which the destination never sent.
        return DOWN
    if isinstance(of_database, Exception) and ("sqlalchemy", "DBAPIError") in families(error):
        return _nature(of_database, wall)
    coded = by_code(error)
    if coded is not None:
        return coded
    status = _status(error)
    if status is not None:
        delay = _asked(error, status, wall)
        throttled = status in _THROTTLED or delay is not None
        return Verdict(
            retryable=throttled or status in _TIMEOUT_STATUSES or status in _SERVER_ERRORS,
            timeout=status in _TIMEOUT_STATUSES and not throttled,
            throttled=throttled,
            crowded=throttled and status in _SERVER_ERRORS,
            outage=status in _SERVER_ERRORS and not throttled,
            answered=status not in _SERVER_ERRORS or throttled,
            retry_after=delay,
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return FINAL
    typed = by_type(error)
    if typed is not None:
        return typed
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return SILENT
    if _is_connection_error(error):
        return DOWN
    delay = getattr(error, "retry_after", None)
    if isinstance(delay, (int, float)) and delay >= 0:
        return Verdict(retryable=True, throttled=True, answered=True, retry_after=float(min(delay, _LONGEST_PAUSE)))
    return FINAL


def _is_connection_error(error: BaseException) -> bool:
    if isinstance(error, (ConnectionError, socket.gaierror, ssl.SSLError, asyncio.IncompleteReadError)):
        return True
    if not isinstance(error, OSError):
        return False
    # If a name has several addresses, asyncio joins their connection errors in one OSError without an errno.
    return error.errno in _NETWORK_ERRNOS or str(error).startswith("Multiple exceptions: [Errno")


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an exception (aiohttp, urllib) or of its response (httpx, requests, botocore)."""
    metadata = _metadata(error)
    if metadata:
        value = metadata.get("HTTPStatusCode")
        return value if isinstance(value, int) and value in _STATUSES else None
    for holder in (getattr(error, "response", None), error):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and value in _STATUSES:
                return int(value)
    return None


def _metadata(error: BaseException) -> dict[str, Any]:
    """Return botocore's data about an HTTP response, or an empty dictionary."""
    response = getattr(error, "response", None)
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _asked(error: BaseException, status: int, wall: Callable[[], float]) -> float | None:
    """Return the pause that a response requests, in seconds; None if no header contains a valid value.

    Services send rate-limit headers with every response, so these headers count only with status 429.
    """
    if status not in _THROTTLED | _THROTTLED_IF_ASKED:
        return None
    headers = _headers(error)
    delays = [_number(headers.get("retry-after-ms"), 0.001), _moment(headers.get("retry-after"), wall)]
    if status == _TOO_MANY:
        delays += [_ietf(headers), _moment(headers.get("ratelimit-reset"), wall), _reset(headers, wall)]
    delay = next((seconds for seconds in delays if seconds is not None), None)
    return None if delay is None else min(max(0.0, delay), _LONGEST_PAUSE)


def _headers(error: BaseException) -> dict[str, str]:
    """Return the response's headers by lower-case name."""
    if metadata := _metadata(error):
        return {str(name).lower(): str(value) for name, value in metadata.get("HTTPHeaders", {}).items()}
    for holder in (getattr(error, "response", None), error):
        headers: Any = getattr(holder, "headers", None)
        if hasattr(headers, "items"):
            return {str(name).lower(): str(value) for name, value in headers.items()}
    return {}


def _reset(headers: Mapping[str, str], wall: Callable[[], float]) -> float | None:
    """Return the seconds until a limit in the ``x-ratelimit-reset`` headers is reset, or None.

    A service may have several limits, for example for requests and for tokens. If some limits are exhausted according
    to their ``remaining`` header, the latest reset of these limits counts. Otherwise, the earliest reset of all limits
    counts.
    """
    exhausted: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        if name.startswith(_RESETS) and (seconds := _moment(value, wall)) is not None:
            left = _number(headers.get(name.replace("reset", "remaining")))
            (exhausted if left is not None and left <= 0 else others).append(seconds)
    return max(exhausted) if exhausted else min(others, default=None)


def _ietf(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until a limit in the ``RateLimit`` header is reset, or None.

    The latest reset of an exhausted limit counts. If no limit is exhausted, the earliest reset counts.
    """
    exhausted: list[float] = []
    others: list[float] = []
    header = headers.get("ratelimit", "")
    # Earlier drafts have a single limit, whose parts are separated by commas.
    for limit in [header.replace(",", ";")] if "reset=" in header else header.split(","):
        parts = [part.strip() for part in limit.split(";")]
        left, seconds = (
            next((float(found[1] or found[2]) for part in parts if (found := pattern.match(part))), None)
            for pattern in _IETF
        )
        if seconds is not None:
            (exhausted if left == 0 else others).append(seconds)
    return max(exhausted) if exhausted else min(others, default=None)


def _moment(value: str | None, wall: Callable[[], float]) -> float | None:
    """Return the seconds until a time; None if the string is invalid.

    The string contains seconds, a duration, a date, or seconds since 1970.
    """
    number = _number(value)
    if number is not None:
        if number < _FIRST_EPOCH:
            return number
        # Large numbers are seconds since 1970; numbers a thousand times larger are milliseconds.
        return (number if number < 1000 * _FIRST_EPOCH else number / 1000) - wall()
    if not value:
        return None
    if (duration := _DURATION.fullmatch(value)) is not None:
        parts = zip(duration.groups(default="0"), _DURATION_UNITS, strict=True)
        return sum(float(part) * unit for part, unit in parts)
    for parse in (email.utils.parsedate_to_datetime, _of_iso_date):
        with contextlib.suppress(TypeError, ValueError):
            return parse(value).timestamp() - wall()
    return None


def _of_iso_date(value: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))  # fromisoformat rejects Z before Python 3.11


def _number(value: str | None, unit: float = 1.0) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number * unit if math.isfinite(number) else None
