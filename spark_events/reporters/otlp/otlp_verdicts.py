"""Classification of OTLP responses: refused, throttled, or unavailable.

The tables follow the OTLP specification ("Failures", "OTLP/gRPC Throttling", "OTLP/HTTP Response"). The specification
forbids retries after some errors, but a wrong configuration must not lose events. Therefore this module has two classes
of errors. ``RefusedError`` means that the events are the cause, so they are dropped. ``TransientError`` means that
credentials, address or receiver are the cause, so the events are retried until the cause is fixed.
"""

from __future__ import annotations

import re
import time

from spark_events.errors import ThrottledError, TransientError
from spark_events.reporters.batch_progress import RefusedError, TooLargeError
from spark_events.reporters.http.http_answers import retry_after

#: Longest accepted pause that a receiver requests, in seconds.
_LONGEST_PAUSE = 300.0
_TRANSIENT_CODES = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
_CONFIGURATION_CODES = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "NOT_FOUND"})
_TOO_LARGE = re.compile(r"larger than max|exceeds (the )?max|too large", re.IGNORECASE)
#: gRPC's error messages for a broken connection; the receiver has neither accepted nor rejected the events.
_BROKEN = re.compile(r"RST_STREAM|[Ss]tream removed|[Cc]onnection|[Ss]ocket|No status received")
#: gRPC's error message for an HTTP error without a gRPC status, which an ingress or a proxy sends.
_PROXY = re.compile(r"Received http2 header with status: (\d+)")
#: 4xx statuses that concern the events. All others, such as 404, 405, 415 and 431, concern the configuration.
_REFUSALS = frozenset({400, 422})
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 502, 503, 504})


def of_grpc(code: str, details: str, retry_delay: float | None) -> Exception:
    """Return the error for a gRPC status.

    Args:
        code: name of the status code.
        details: message from the receiver.
        retry_delay: delay in the status's ``RetryInfo``, in seconds, or None.
    """
    message = f"{code}: {details}" if details else code
    if proxy := _PROXY.search(details):
        return of_http(int(proxy[1]), None, message, is_otlp=False, is_page=True)
    if code == "RESOURCE_EXHAUSTED" and _TOO_LARGE.search(details):
        return TooLargeError(message)
    # Retry the events, although the specification drops them after RESOURCE_EXHAUSTED without RetryInfo.
    if code == "RESOURCE_EXHAUSTED" or (retry_delay is not None and code in _TRANSIENT_CODES):
        return ThrottledError(message, min(retry_delay or 0.0, _LONGEST_PAUSE))
    if code in _TRANSIENT_CODES or code in _CONFIGURATION_CODES:
        return TransientError(message)
    if code in ("INTERNAL", "UNKNOWN") and _BROKEN.search(details):
        return TransientError(message)
    return RefusedError(message)


def of_http(status: int, asked: str | None, message: str, is_otlp: bool, is_page: bool) -> Exception:
    """Return the error for a failed HTTP response.

    Args:
        status: HTTP status.
        asked: header ``Retry-After``.
        message: message in the body.
        is_otlp: whether the body is protobuf or JSON.
        is_page: whether a proxy or the HTTP server, not the receiver's code, wrote the body.
    """
    message = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    if status == 413:
        return TooLargeError(message)
    if status in _TRANSIENT_STATUSES:
        pause = retry_after(asked, time.time())
        if pause is None and status != 429:
            return TransientError(message)
        return ThrottledError(message, min(pause or 0.0, _LONGEST_PAUSE))
    # The error page of a proxy does not mean that the receiver refuses the events. Several receivers refuse events with
    # a plain text instead of protobuf or JSON, but a 5xx in plain text is an outage.
    if (status in _REFUSALS and not is_page) or (status >= 500 and is_otlp):
        return RefusedError(message)
    return TransientError(message)
