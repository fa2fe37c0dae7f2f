"""Classification of failed attempts: whether a retry may help, and whether the destination is down."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from spark_events.enrichment.engine.rate_headers import lower_case, moment, number, pause_in, reported_limits
from spark_events.enrichment.settings import Retry
from spark_events.failures.kinds import BUSY, DOWN, FINAL, ErrorKind, Verdict
from spark_events.failures.libraries.codes import by_status
from spark_events.failures.registry import by_code, by_type, families

__all__ = ["LONGEST_PAUSE", "InvalidAnswerError", "NotAcceptedError", "Verdict", "judge", "verdict_on"]


class NotAcceptedError(Exception):
    """Error: ``on_result`` rejected the result of a call."""


class InvalidAnswerError(NotAcceptedError):
    """Error: the result of a call does not fit the output, and ``on_invalid`` asks for another attempt."""

    # Type name in the failure, the same as for invalid answers that are not retried.
    __module__, __qualname__ = "builtins", "OutputError"


#: Errors of a function that decodes or validates an answer, by top-level package and class name.
_INVALID = {
    ("json", "JSONDecodeError"), ("simplejson", "JSONDecodeError"), ("pydantic_core", "ValidationError"),
    ("msgspec", "DecodeError"),
}  # fmt: skip
_TOO_MANY = 429
_OVERLOADED = {503, 529}
_THROTTLED = {_TOO_MANY, *_OVERLOADED}
#: With Retry-After, these statuses indicate an overloaded gateway or GitHub's secondary rate limit.
_THROTTLED_IF_ASKED = {403, 502, 504}
_SERVER_ERRORS = range(500, 600)
_STATUSES = range(100, 600)
#: Upper bound of Retry-After, in seconds. A longer value is probably a mistake, and would delay all later batches of
#: the worker process.
LONGEST_PAUSE = 86_400.0
#: The destination answered, and another attempt is useless.
_REJECTED = Verdict(retryable=False, answered=True)


def verdict_on(error: BaseException, retry: Retry | None) -> tuple[BaseException, Verdict]:
    """Return the decisive exception of an attempt's error, and its verdict.

    ``asyncio.TaskGroup``, for example, raises exception groups. The decisive exception of a group is its first
    permanent exception, otherwise the first exception with a retry time, otherwise the first exception. If the user's
    ``on`` accepts the group itself for a retry, the group decides. Any other error decides itself.
    """
    verdict = judge(error, retry)
    is_wanted = retry is not None and retry.on is not None and verdict.retryable
    if is_wanted or not any(kind.__name__ == "BaseExceptionGroup" for kind in type(error).__mro__):
        return error, verdict
    parts: tuple[BaseException, ...] = error.exceptions  # type: ignore[attr-defined]
    inner = [verdict_on(part, retry) for part in parts]
    final = (pair for pair in inner if not pair[1].retryable)
    delayed = (pair for pair in inner if pair[1].retry_after is not None)
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
    if retry is not None and retry.on_invalid and not _INVALID.isdisjoint(families(error)):
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
    cause, of_database, reason = error.__cause__, getattr(error, "orig", None), getattr(error, "reason", None)
    if isinstance(cause, Exception) and ("aiohttp", "HttpProcessingError") in families(cause):
        # The response was not valid HTTP. aiohttp reports this as status 400, which the destination never sent.
        return DOWN.verdict
    if isinstance(of_database, Exception) and ("sqlalchemy", "DBAPIError") in families(error):
        return _nature(of_database, wall)
    if isinstance(reason, Exception) and ("urllib", "URLError") in families(error):
        return _nature(reason, wall)
    coded, status = by_code(error), _status(error)
    # If the status says the same as the code, the headers may add a pause.
    if coded is not None and not (coded.verdict.throttled and status in _THROTTLED):
        return _of_answer(coded)
    if status is not None:
        delay = _asked(error, status, wall)
        if delay is None:
            return _of_answer(by_status(status))
        crowded = status in _SERVER_ERRORS
        return Verdict(retryable=True, throttled=True, crowded=crowded, answered=True, retry_after=delay)
    typed = by_type(error)
    if typed is not None:
        return typed.verdict
    delay = _own_delay(error)
    return FINAL if delay is None else dataclasses.replace(BUSY.verdict, retry_after=delay)


def _of_answer(kind: ErrorKind) -> Verdict:
    """Return the verdict of an error that contains the destination's answer."""
    return kind.verdict if kind.verdict.retryable else _REJECTED


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
    """Return the pause that a response or its exception requests, in seconds; None without a valid value.

    Services send rate-limit headers with every response, so these headers count only with status 429.
    """
    if status not in _THROTTLED | _THROTTLED_IF_ASKED:
        return None
    headers = _headers(error)
    delays = [number(headers.get("retry-after-ms"), 0.001), moment(headers.get("retry-after"), wall), _own_delay(error)]
    if status == _TOO_MANY:
        delays += [pause_in(limits) for limits in reported_limits(headers, wall)]
    delay = next((seconds for seconds in delays if seconds is not None), None)
    return None if delay is None else min(max(0.0, delay), LONGEST_PAUSE)


def _own_delay(error: BaseException) -> float | None:
    """Return the exception's own attribute ``retry_after``, limited to 0 s to a day; None if it is not a number."""
    delay = getattr(error, "retry_after", None)
    if not isinstance(delay, (int, float)) or delay != delay:  # a NaN
        return None
    return float(min(max(0, delay), LONGEST_PAUSE))


def _headers(error: BaseException) -> dict[str, str]:
    """Return the response's headers by lower-case name."""
    if metadata := _metadata(error):
        return lower_case(metadata.get("HTTPHeaders", {}))
    for holder in (getattr(error, "response", None), error):
        headers: Any = getattr(holder, "headers", None)
        if hasattr(headers, "items"):
            return lower_case(headers)
    return {}
