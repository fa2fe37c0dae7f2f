"""Classification of client library errors by type name and code.

All client libraries are optional, so this module imports none of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, Final

__all__ = ["BUSY", "DOWN", "FINAL", "SILENT", "Verdict", "by_code", "by_type", "families"]


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Classification of one failed attempt.

    Attributes:
        retryable: whether another attempt may succeed.
        timeout: whether no answer arrived in time.
        throttled: whether the destination rejected the call because it receives too many calls; the row is held, and
            the attempt does not count.
        crowded: whether the destination rejected the call because too many calls are in flight; otherwise too many
            arrive per second.
        outage: whether the destination is unreachable, out of order or silent; the circuit breaker counts these.
        answered: whether the destination answered, and therefore is not down.
        unreachable: whether no connection existed, or the connection broke or returned no answer.
        retry_after: pause that the destination requests, in seconds, at most one day; None if it does not request a
            pause.
    """

    retryable: bool
    timeout: bool = False
    throttled: bool = False
    crowded: bool = False
    outage: bool = False
    answered: bool = False
    unreachable: bool = False
    retry_after: float | None = None

    @property
    def exceeds_rate(self) -> bool:
        """Whether the destination rejected the call because too many calls arrive per second."""
        return self.throttled and not self.crowded


DOWN: Final = Verdict(retryable=True, outage=True, unreachable=True)
SILENT: Final = Verdict(retryable=True, timeout=True, outage=True, unreachable=True)
BUSY: Final = Verdict(retryable=True, throttled=True, answered=True)
FINAL: Final = Verdict(retryable=False)
#: The destination asks the client to repeat the call: another transaction has won, or another server has taken over.
_AGAIN = Verdict(retryable=True, answered=True)
_REJECTED = Verdict(retryable=False, answered=True)
#: The destination answered that the call took too long.
_SLOW = Verdict(retryable=True, timeout=True, answered=True)
#: The wait for the client's own connection pool took too long, which does not indicate an outage.
_POOL = Verdict(retryable=True, timeout=True)

#: Verdicts by top-level package and class name. If several classes of an error match, the most derived class decides.
_TYPES: dict[tuple[str, str], Verdict] = {
    (library, name): verdict
    for libraries, names, verdict in (
        ("httpx httpx2", "PoolTimeout", _POOL),
        ("httpx httpcore httpx2 httpcore2", "TimeoutException", SILENT),
        ("httpx httpcore httpx2 httpcore2", "NetworkError ProxyError RemoteProtocolError", DOWN),
        ("aiohttp", "ServerTimeoutError", SILENT),
        # This error has the class of a connection error, but is permanent: a retry receives the same certificate.
        ("aiohttp", "ClientConnectorCertificateError", FINAL),
        ("aiohttp", "ClientConnectionError ClientPayloadError", DOWN),
        ("requests", "ConnectTimeout Timeout", SILENT),
        ("requests botocore", "SSLError", FINAL),
        ("requests", "ConnectionError ChunkedEncodingError", DOWN),
        ("http", "IncompleteRead", DOWN),
        ("urllib3", "TimeoutError", SILENT),
        ("urllib3", "ProtocolError NewConnectionError MaxRetryError", DOWN),
        ("botocore", "ConnectTimeoutError ReadTimeoutError", SILENT),
        ("botocore", "ConnectionError HTTPClientError ResponseStreamingError IncompleteReadError", DOWN),
        ("openai anthropic", "APITimeoutError", SILENT),
        ("openai anthropic", "APIConnectionError", DOWN),
        ("redis valkey", "AuthenticationError AuthorizationError", FINAL),
        ("redis valkey", "MaxConnectionsError", _POOL),
        ("redis valkey", "TimeoutError", SILENT),
        ("redis valkey", "ConnectionError ClusterDownError", DOWN),
        ("redis valkey", "TryAgainError ReadOnlyError", _AGAIN),
        ("pymongo", "WaitQueueTimeoutError", _POOL),
        ("pymongo", "NetworkTimeout", SILENT),
        ("pymongo", "ConnectionFailure", DOWN),
        ("psycopg_pool", "PoolTimeout TooManyRequests", _POOL),
        ("psycopg", "ConnectionTimeout", SILENT),
        # Without an SQLSTATE, the client has lost the connection or could not open it.
        ("psycopg psycopg2", "OperationalError", DOWN),
    )
    for library in libraries.split()
    for name in names.split()
}

_SQL_STATES = {
    "53300": dataclasses.replace(BUSY, crowded=True),  # too many connections
    "57P01": DOWN,  # shutdown by the administrator
    "57P02": DOWN,  # shutdown after a crash
    "57P03": DOWN,  # starting up
    "25006": DOWN,  # read-only: a standby that has not taken over yet
    "40001": _AGAIN,  # serialization failure
    "40P01": _AGAIN,  # deadlock
}
_GRPC_CODES = {
    "UNAVAILABLE": DOWN,
    "RESOURCE_EXHAUSTED": BUSY,
    "DEADLINE_EXCEEDED": SILENT,
}
#: MongoDB's codes for a shutdown, an election or a lost connection between its servers.
_MONGO_CODES = {6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436}
_AWS_THROTTLING = {
    "BandwidthLimitExceeded", "EC2ThrottledException", "LimitExceededException", "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException",
    "SlowDown", "ThrottledException", "Throttling", "ThrottlingException", "TooManyRequestsException",
    "TransactionInProgressException",
}  # fmt: skip
_AWS_TIMEOUTS = {"RequestTimeout", "RequestTimeoutException"}
#: Messages of psycopg errors that have no SQLSTATE: the server refused the login, so a retry cannot succeed.
_NO_LOGIN = ("password authentication failed", "no password supplied")
#: Messages of psycopg errors that have no SQLSTATE: the server has too many connections (53300).
_FULL = ("too many clients already", "too many connections for", "remaining connection slots are reserved")
#: Message of RESOURCE_EXHAUSTED if a request or response exceeds the size limit of a client or server.
_TOO_LARGE = "message larger than max"
#: Code or type of a 429 that waiting cannot resolve, because the account has no credit.
_NO_CREDIT = "insufficient_quota"


def families(error: BaseException) -> list[tuple[str, str]]:
    """Return the top-level package and the name of each class of an error, the most derived class first."""
    return [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__]


def by_type(error: BaseException) -> Verdict | None:
    """Return the verdict for a client library's known error type, or None."""
    return next((_TYPES[family] for family in families(error) if family in _TYPES), None)


def by_code(error: BaseException) -> Verdict | None:
    """Return the verdict by a code other than an HTTP status, or None."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if isinstance(state, str):
        return DOWN if state.startswith("08") else _SQL_STATES.get(state, _REJECTED)
    for family in families(error):
        if family in _CODED:
            return _CODED[family](error)
    return None


def _of_grpc(error: Any) -> Verdict | None:
    with contextlib.suppress(Exception):  # an RpcError that gRPC itself did not raise has no code
        name = error.code().name
        is_too_large = name == "RESOURCE_EXHAUSTED" and _TOO_LARGE in (error.details() or "")
        return _REJECTED if is_too_large else _GRPC_CODES.get(name, _REJECTED)
    return None


def _of_mongo(error: Any) -> Verdict | None:
    has_label = getattr(error, "has_error_label", None)
    is_temporary = error.code in _MONGO_CODES or (has_label is not None and has_label("RetryableWriteError"))
    return _AGAIN if is_temporary else _REJECTED


def _of_aws(error: Any) -> Verdict | None:
    code = error.response.get("Error", {}).get("Code")
    if code in _AWS_TIMEOUTS:
        return _SLOW
    return BUSY if code in _AWS_THROTTLING else None


def _of_openai(error: Any) -> Verdict | None:
    return _REJECTED if _NO_CREDIT in (error.code, getattr(error, "type", None)) else None


def _of_psycopg(error: Any) -> Verdict | None:
    text = str(error)
    if any(part in text for part in _NO_LOGIN):
        return _REJECTED
    return _SQL_STATES["53300"] if any(part in text for part in _FULL) else None


def _of_asyncpg(error: Any) -> Verdict | None:
    # A connection that breaks during a query may leave its protocol in the wrong state.
    text = str(error)
    return DOWN if text.endswith("is closed") or text.startswith("cannot switch to state") else None


_CODED: dict[tuple[str, str], Callable[[Any], Verdict | None]] = {
    ("grpc", "RpcError"): _of_grpc,
    ("pymongo", "OperationFailure"): _of_mongo,
    ("botocore", "ClientError"): _of_aws,
    ("openai", "APIError"): _of_openai,
    ("asyncpg", "InterfaceError"): _of_asyncpg,
    ("asyncpg", "InternalClientError"): _of_asyncpg,
    ("sqlalchemy", "InterfaceError"): _of_asyncpg,  # SQLAlchemy's counterpart of asyncpg's error
    ("psycopg", "OperationalError"): _of_psycopg,
    ("psycopg2", "OperationalError"): _of_psycopg,
}
