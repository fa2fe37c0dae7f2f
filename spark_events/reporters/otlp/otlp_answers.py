"""Parsing of OTLP responses, in protobuf or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from spark_events.errors import TransientError

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"


def partial_success(body: bytes) -> tuple[int, str]:
    """Return the number of rejected records or spans, and the receiver's message."""
    try:
        # The responses for logs and traces have the same field numbers.
        partial = ExportLogsServiceResponse.FromString(body).partial_success
    except DecodeError:
        # The call succeeded, so if the body is unreadable, no record counts as rejected.
        return 0, ""
    return partial.rejected_log_records, partial.error_message


def success(content_type: str, body: bytes) -> tuple[int, str]:
    """Return the number of rejected records or spans, and the message, of a successful HTTP response.

    Raises:
        TransientError: the response does not come from an OTLP receiver.
    """
    kind = _plain(content_type)
    if not body:
        return 0, ""
    if kind == _PROTOBUF:
        return partial_success(body)
    if kind == _JSON:
        partial = _json(body).get("partialSuccess")
        if not isinstance(partial, Mapping):
            return 0, ""
        rejected = str(partial.get("rejectedLogRecords", partial.get("rejectedSpans", 0)))
        return int(rejected) if rejected.isdecimal() else 0, str(partial.get("errorMessage", ""))
    raise TransientError(f"the endpoint is not an OTLP receiver: it answered with content type {kind or 'unknown'}")


class ErrorBody(NamedTuple):
    """Body of a failed HTTP response.

    Attributes:
        message: the receiver's message, with secrets hidden.
        is_otlp: whether the body is protobuf or JSON, as the OTLP specification requires.
        is_page: whether a proxy or the HTTP server wrote the body: HTML, or a text without a content type, which Go
            sends for plain HTTP on a TLS port.
    """

    message: str
    is_otlp: bool
    is_page: bool


def failure(content_type: str, body: bytes, hide: Callable[[str], str]) -> ErrorBody:
    """Parse the body of a failed HTTP response.

    Args:
        content_type: header of the response.
        body: body of the response.
        hide: replaces secrets in a string.
    """
    kind = _plain(content_type)
    message = ""
    # Some receivers, such as Loki, write the Status before they set the content type.
    if kind in (_PROTOBUF, "application/octet-stream"):
        message = _status(body).message
    elif kind == _JSON:
        message = str(_json(body).get("message", ""))
    elif kind in ("text/plain", ""):
        message = body.decode("utf-8", "replace")
    is_page = kind == "text/html" or (not kind and bool(body))
    return ErrorBody(" ".join(hide(message).split())[:500], kind in (_PROTOBUF, _JSON), is_page)


def retry_delay(metadata: Mapping[str, str | bytes]) -> float | None:
    """Return the delay, in seconds, of a ``RetryInfo`` in the trailing metadata, or None."""
    for detail in _status(metadata.get("grpc-status-details-bin", b"")).details:
        info = RetryInfo()
        if detail.Unpack(info):
            return float(info.retry_delay.ToNanoseconds()) / 1e9
    return None


def _status(body: str | bytes) -> Status:
    try:
        return Status.FromString(body if isinstance(body, bytes) else body.encode("latin-1", "replace"))
    except DecodeError:
        return Status()


def _json(body: bytes) -> Mapping[str, object]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _plain(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
