"""Tests of the classification of errors raised by databases and SDKs, with test doubles of missing libraries."""

from __future__ import annotations

import dataclasses
from typing import Any

import grpc
import psycopg
import pytest
import sqlalchemy.exc
from grpc.aio import AioRpcError, Metadata

from spark_events.enrichment.engine.verdicts import judge
from spark_events.enrichment.settings import Retry
from spark_events.failures.kinds import Verdict


def double(path: str, text: str = "x", **attributes: Any) -> Exception:
    """Return an exception whose class has the module and name in ``path``.

    If ``path`` contains several names, they name the class, its base class, and so on.
    """
    kind: type[Exception] = Exception
    for one in reversed(path.split()):
        module, _, name = one.rpartition(".")
        kind = type(name, (kind,), {"__module__": module})
    error: Exception = kind(text)
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def of_postgres(state: str) -> Exception:
    return double("asyncpg.exceptions.PostgresError", sqlstate=state)


def of_sqlalchemy(text: str) -> Exception:
    return double("sqlalchemy.dialects.postgresql.asyncpg.InterfaceError", text)


def of_aws(code: str, status: int) -> Exception:
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": "3"}}
    response = {"Error": {"Code": code}, "ResponseMetadata": metadata}
    return double("botocore.exceptions.ClientError", response=response)


def of_grpc(code: grpc.StatusCode, details: str | None = None) -> Any:
    return AioRpcError(code, Metadata(), Metadata(), details)


def of_openai(code: str | None, kind: str | None = None) -> Exception:
    return double("openai.RateLimitError openai.APIError", code=code, type=kind, status_code=429)


def of_mongo(label: str) -> Exception:
    return double("pymongo.errors.OperationFailure", code=500, has_error_label=label.__eq__)


SILENT = Verdict(retryable=True, timeout=True, outage=True, unreachable=True)
DOWN = Verdict(retryable=True, outage=True, unreachable=True)
BUSY = Verdict(retryable=True, throttled=True, answered=True)
CROWDED = Verdict(retryable=True, throttled=True, crowded=True, answered=True)
AGAIN = Verdict(retryable=True, answered=True)
REJECTED = Verdict(retryable=False, answered=True)
SLOW = Verdict(retryable=True, timeout=True, answered=True)
MISTAKE = Verdict(retryable=False)
POOL = Verdict(retryable=True, timeout=True)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        *((of_postgres(state), DOWN) for state in ("08000", "08006", "57P01", "57P02", "57P03")),
        (of_postgres("25006"), DOWN),
        (of_postgres("28P01"), REJECTED),
        (of_postgres("53300"), CROWDED),
        *((of_postgres(state), AGAIN) for state in ("40001", "40P01")),
        (of_postgres("42P01"), REJECTED),
        (double("asyncpg.exceptions._base.InterfaceError", "cannot perform operation: connection is closed"), DOWN),
        (double("asyncpg.exceptions._base.InterfaceError", "another operation is in progress"), MISTAKE),
        (
            double(
                "asyncpg.exceptions._base.InternalClientError", "cannot switch to state 11; another operation (2) …"
            ),
            DOWN,
        ),
        (double("asyncpg.exceptions._base.InternalClientError", "another mistake"), MISTAKE),
        (psycopg.OperationalError("server closed the connection unexpectedly"), DOWN),
        (psycopg.OperationalError('connection failed: FATAL:  password authentication failed for user "a"'), REJECTED),
        (psycopg.OperationalError("connection failed: FATAL:  sorry, too many clients already"), CROWDED),
        (psycopg.OperationalError('connection failed: FATAL:  too many connections for role "a"'), CROWDED),
        (psycopg.OperationalError("FATAL:  remaining connection slots are reserved for roles with …"), CROWDED),
        (psycopg.errors.InvalidPassword("x"), REJECTED),
        (double("psycopg2.OperationalError", "fe_sendauth: no password supplied"), REJECTED),
        (psycopg.errors.AdminShutdown("x"), DOWN),
        (psycopg.errors.SerializationFailure("x"), AGAIN),
        (psycopg.errors.ConnectionTimeout("x"), SILENT),
        (psycopg.errors.UndefinedTable("x"), REJECTED),
        (psycopg.ProgrammingError("x"), MISTAKE),
        (double("psycopg2.OperationalError", pgcode="57P01"), DOWN),
        (double("psycopg_pool.PoolTimeout psycopg.OperationalError", sqlstate=None), POOL),
        (sqlalchemy.exc.OperationalError("select", {}, psycopg.errors.AdminShutdown("x")), DOWN),
        (sqlalchemy.exc.InterfaceError("select", {}, of_sqlalchemy("connection is closed")), DOWN),
        (sqlalchemy.exc.InterfaceError("select", {}, of_sqlalchemy("another operation is in progress")), MISTAKE),
        (sqlalchemy.exc.ProgrammingError("select", {}, psycopg.errors.UndefinedTable("x")), REJECTED),
        (double("redis.exceptions.ConnectionError"), DOWN),
        (double("redis.exceptions.TimeoutError"), SILENT),
        (double("redis.exceptions.BusyLoadingError redis.exceptions.ConnectionError"), DOWN),
        (double("redis.exceptions.AuthenticationError redis.exceptions.ConnectionError"), MISTAKE),
        (double("redis.exceptions.MaxConnectionsError redis.exceptions.ConnectionError"), POOL),
        (double("redis.exceptions.ResponseError"), MISTAKE),
        (double("pymongo.errors.AutoReconnect pymongo.errors.ConnectionFailure"), DOWN),
        (double("pymongo.errors.NetworkTimeout pymongo.errors.ConnectionFailure"), SILENT),
        (double("pymongo.errors.OperationFailure", code=189), AGAIN),
        (double("pymongo.errors.OperationFailure", code=500), REJECTED),
        (of_mongo("RetryableWriteError"), AGAIN),
        (of_mongo("UnknownTransactionCommitResult"), REJECTED),
        (of_grpc(grpc.StatusCode.UNAVAILABLE), DOWN),
        (of_grpc(grpc.StatusCode.RESOURCE_EXHAUSTED), BUSY),
        (of_grpc(grpc.StatusCode.RESOURCE_EXHAUSTED, "quota exceeded"), BUSY),
        (of_grpc(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 4)"), REJECTED),
        (of_grpc(grpc.StatusCode.DEADLINE_EXCEEDED), SILENT),
        (of_grpc(grpc.StatusCode.INVALID_ARGUMENT), REJECTED),
        (grpc.RpcError("without a code"), MISTAKE),
        (of_aws("ThrottlingException", 400), BUSY),
        (of_aws("ProvisionedThroughputExceededException", 400), BUSY),
        (of_aws("TooManyRequestsException", 429), dataclasses.replace(BUSY, retry_after=3.0)),
        (of_aws("Unavailable", 503), dataclasses.replace(CROWDED, retry_after=3.0)),
        (of_aws("InternalServerError", 500), Verdict(retryable=True, outage=True)),
        (of_aws("RequestTimeout", 400), SLOW),
        (of_aws("ValidationException", 400), REJECTED),
        (double("botocore.exceptions.EndpointConnectionError botocore.exceptions.ConnectionError"), DOWN),
        (double("botocore.exceptions.ReadTimeoutError botocore.exceptions.HTTPClientError"), SILENT),
        (double("botocore.exceptions.NoCredentialsError"), MISTAKE),
        (double("openai.APIConnectionError openai.APIError", code=None), DOWN),
        (double("openai.APITimeoutError openai.APIConnectionError openai.APIError", code=None), SILENT),
        (of_openai("rate_limit_exceeded"), BUSY),
        (of_openai("insufficient_quota"), REJECTED),
        (of_openai(None, "insufficient_quota"), REJECTED),
        (of_openai(None, "tokens"), BUSY),
    ],
    ids=lambda one: f"{type(one).__name__}-{one}" if isinstance(one, Exception) else "",
)
def test_errors_are_classified_by_type_and_code(error: Exception, verdict: Verdict) -> None:
    """Errors are retried if their type and code indicate a temporary failure. A rejection counts as an answer."""
    assert judge(error, Retry()) == verdict
