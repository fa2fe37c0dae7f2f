"""Tests of the registry of client libraries: events and enrichment ask the same entries."""

from __future__ import annotations

import asyncio
import errno
import json
import pickle
import socket
import sqlite3
import ssl
import urllib.error
from collections import Counter
from typing import Any

import httpx
import psycopg
import pytest
import redis
import requests
import sqlalchemy.exc

from spark_events.enrichment.engine.verdicts import judge
from spark_events.enrichment.settings import Retry
from spark_events.errors import ConfigError, InvalidChoiceError, InvalidPlanError, MissingExtraError
from spark_events.failures import kinds
from spark_events.failures.classes import CLASSES
from spark_events.failures.kinds import LOCAL_LIMIT, ErrorKind
from spark_events.failures.registry import LIBRARIES, of_exception_text, same_error

KINDS = [kind for kind in vars(kinds).values() if isinstance(kind, ErrorKind)]


def test_no_two_libraries_share_a_module() -> None:
    modules = Counter(module for library in LIBRARIES for module in library.modules.split())
    assert [module for module, number in modules.items() if number > 1] == []


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_another_attempt_and_a_rerun_have_the_same_answer(kind: ErrorKind) -> None:
    """Events advise a rerun for exactly those errors that enrichment retries; the exceptions are documented."""
    facts = CLASSES.get(kind.failure_class or "")
    if kind.rerun and kind is not LOCAL_LIMIT:
        assert kind.verdict.retryable == bool(facts and facts.retry)


def status(number: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code, response.reason, response.url = number, "x", "https://api/x"
    return requests.HTTPError(f"{number} Server Error: x for url: https://api/x", response=response)


@pytest.mark.parametrize(
    ("error", "failure_class"),
    [
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "EXTERNAL_SYSTEM"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "EXTERNAL_SYSTEM"),
        (OSError(errno.ENOSPC, "No space left on device"), "DISK_FULL"),
        (PermissionError(errno.EACCES, "Permission denied"), "PERMISSION"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "MISSING_FILE_OR_TABLE"),
        (OSError("odd"), None),
        (socket.gaierror(-2, "Name or service not known"), "EXTERNAL_SYSTEM"),
        (TimeoutError("timed out"), "EXTERNAL_SYSTEM"),
        (asyncio.IncompleteReadError(b"", 3), "EXTERNAL_SYSTEM"),
        (ssl.SSLCertVerificationError("certificate verify failed"), "CONFIGURATION"),
        (urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")), "EXTERNAL_SYSTEM"),
        (json.JSONDecodeError("x", "", 0), "DATA_ERROR"),
        (pickle.PicklingError("x"), "USER_CODE"),
        (KeyError("x"), "USER_CODE"),
        (InvalidPlanError("output is 3; allowed: a name"), "USER_CODE"),
        (InvalidChoiceError("scope is 3; allowed: a scope"), "USER_CODE"),
        (ConfigError(["x"]), "CONFIGURATION"),
        (MissingExtraError("x"), "MISSING_DEPENDENCY"),
        (ValueError("x"), None),
        (httpx.ConnectError("All connection attempts failed"), "EXTERNAL_SYSTEM"),
        (httpx.PoolTimeout(""), "EXTERNAL_SYSTEM"),
        (httpx.UnsupportedProtocol("x"), "USER_CODE"),
        (status(503), "EXTERNAL_SYSTEM"),
        (status(403), "PERMISSION"),
        (status(400), None),
        (requests.exceptions.SSLError("x"), "CONFIGURATION"),
        (psycopg.OperationalError("server closed the connection unexpectedly"), "EXTERNAL_SYSTEM"),
        (psycopg.OperationalError("FATAL:  password authentication failed for user"), "PERMISSION"),
        (psycopg.errors.UndefinedTable("x"), "MISSING_FILE_OR_TABLE"),
        (psycopg.errors.UniqueViolation("x"), "DATA_ERROR"),
        (psycopg.errors.DeadlockDetected("x"), "EXTERNAL_SYSTEM"),
        (sqlalchemy.exc.OperationalError("select", {}, psycopg.OperationalError("timeout expired")), "EXTERNAL_SYSTEM"),
        (sqlalchemy.exc.TimeoutError("QueuePool limit"), "EXTERNAL_SYSTEM"),
        (redis.exceptions.AuthenticationError("x"), "PERMISSION"),
        (redis.exceptions.ReadOnlyError("x"), "EXTERNAL_SYSTEM"),
        (redis.exceptions.ResponseError("OOM command not allowed when used memory > 'maxmemory'."), "EXTERNAL_SYSTEM"),
        (redis.exceptions.ResponseError("WRONGPASS invalid username-password pair"), "PERMISSION"),
        (redis.exceptions.ResponseError("unknown command"), None),
        (sqlite3.OperationalError("database is locked"), "EXTERNAL_SYSTEM"),
        (sqlite3.OperationalError("no such function"), None),
    ],
    ids=repr,
)
def test_events_and_enrichment_agree_on_an_error(error: Exception, failure_class: str | None) -> None:
    """The printed error has the class, and the exception object the verdict, of the same entry."""
    kind = same_error(error)
    assert (None if kind is None else kind.failure_class) == failure_class
    facts = CLASSES.get(failure_class or "")
    assert judge(error, Retry()).retryable == bool(facts and facts.retry)


@pytest.mark.parametrize(
    ("printed", "failure_class"),
    [
        ("java.net.ConnectException: Connection refused (Connection refused)", "EXTERNAL_SYSTEM"),
        ("java.sql.SQLTransientConnectionException: HikariPool-1 - Connection is not available", "EXTERNAL_SYSTEM"),
        ("java.sql.SQLException: ORA-01017: invalid username/password; logon denied", "PERMISSION"),
        ("java.sql.SQLException: ORA-12541: TNS:no listener", "EXTERNAL_SYSTEM"),
        ("org.postgresql.util.PSQLException: FATAL: sorry, too many clients already", "EXTERNAL_SYSTEM"),
        ('org.postgresql.util.PSQLException: ERROR: relation "x" does not exist', "MISSING_FILE_OR_TABLE"),
        ("com.mysql.cj.jdbc.exceptions.CommunicationsException: Communications link failure", "EXTERNAL_SYSTEM"),
        ("org.apache.kafka.common.errors.TimeoutException: Topic t not present in metadata", "EXTERNAL_SYSTEM"),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed", "PERMISSION"),
        ("com.amazonaws.services.s3.model.AmazonS3Exception: Slow Down (Service: Amazon S3; Status Code: 503; Error "
         "Code: SlowDown; Request ID: x)", "EXTERNAL_SYSTEM"),
        ("com.amazonaws.services.s3.model.AmazonS3Exception: Forbidden (Service: Amazon S3; Status Code: 403; Error "
         "Code: AccessDenied)", "PERMISSION"),
        ("java.nio.file.AccessDeniedException: s3a://b/k: getFileStatus on s3a://b/k", "PERMISSION"),
        ("io.grpc.StatusRuntimeException: UNAVAILABLE: io exception", "EXTERNAL_SYSTEM"),
        ("org.rocksdb.RocksDBException: Mismatch in unique ID on table file 000012. Expected: {1,2} Actual {3,4}",
         "DATA_ERROR"),
        ("org.apache.uniffle.common.exception.RssFetchFailedException: Blocks read inconsistent", "FETCH_FAILURE"),
        ("org.apache.iceberg.exceptions.CommitFailedException: Cannot commit", "EXTERNAL_SYSTEM"),
        ("mysql.connector.errors.OperationalError: 2013 (HY000): Lost connection to MySQL server", "EXTERNAL_SYSTEM"),
        ("pyodbc.OperationalError: ('08S01', '[08S01] Communication link failure')", "EXTERNAL_SYSTEM"),
        ("pyodbc.ProgrammingError: ('42S02', \"[42S02] Invalid object name 'x'\")", "MISSING_FILE_OR_TABLE"),
        ("aiohttp.client_exceptions.ClientResponseError: 503, message='Service Unavailable'", "EXTERNAL_SYSTEM"),
        ("httpx.HTTPStatusError: Server error '502 Bad Gateway' for url 'https://api/x'", "EXTERNAL_SYSTEM"),
        ("urllib.error.HTTPError: HTTP Error 429: Too Many Requests", "EXTERNAL_SYSTEM"),
        ("openai.RateLimitError: Error code: 429 - {'error': {'code': 'insufficient_quota'}}", "PERMISSION"),
        ("azure.core.exceptions.HttpResponseError: (ServerBusy) The server is busy.", "EXTERNAL_SYSTEM"),
        ("botocore.errorfactory.NoSuchKey: An error occurred (NoSuchKey) when calling x", "MISSING_FILE_OR_TABLE"),
        ("snowflake.connector.errors.ProgrammingError: 002003 (42S02): Object 'X' does not exist or not authorized.",
         "MISSING_FILE_OR_TABLE"),
        ("com.acme.repackaged.io.grpc.StatusRuntimeException: UNAVAILABLE: io exception", "EXTERNAL_SYSTEM"),
        ("shaded.databricks.org.apache.hadoop.fs.s3a.AWSNoResponseException: x", "EXTERNAL_SYSTEM"),
        ("java.lang.RuntimeException: com.amazonaws.services.s3.model.AmazonS3Exception: Denied (Service: Amazon S3; "
         "Status Code: 403; Error Code: AccessDenied)", "PERMISSION"),
        ("com.acme.Odd: com.acme.Odder: odd", None),
        # Only Java copies the text of a cause into its wrapper.
        ("acme.errors.Odd: requests.exceptions.HTTPError: 503 Server Error", None),
        ("django.db.utils.OperationalError: FATAL:  sorry, too many clients already", "EXTERNAL_SYSTEM"),
        ("django.db.utils.IntegrityError: duplicate key value violates unique constraint", "DATA_ERROR"),
        ("peewee.OperationalError: (2013, 'Lost connection to MySQL server during query')", "EXTERNAL_SYSTEM"),
        ("peewee.OperationalError: no such column: x", None),
        ("clickhouse_connect.driver.exceptions.OperationalError: Error HTTPConnectionPool(host='h', port=8123): Max "
         "retries exceeded with url: /", "EXTERNAL_SYSTEM"),
        ("OSError: [Errno 12] Cannot allocate memory", "PYTHON_OUT_OF_MEMORY"),
        ("java.lang.RuntimeException: Executor is not registered (appId=app-1, execId=5)", "FETCH_FAILURE"),
        ("java.lang.RuntimeException: odd", None),
        ("spark_events.errors.InvalidPlanError: output is 3; allowed: a name", "USER_CODE"),
        ("spark_events.errors.InvalidPlanError: Replay.store is 's3://b', which cannot be used (OSError: x)", None),
        ("spark_events.errors.EnrichmentError: 3 of 9 rows failed", None),
        ("__main__.NoCurrency: payment 3", None),
        ("acme.pay.PaymentError: 503 coins", None),
    ],
)  # fmt: skip
def test_printed_errors_are_classified(printed: str, failure_class: str | None) -> None:
    name, _, message = printed.partition(": ")
    kind = of_exception_text(name, message)
    assert (None if kind is None else kind.failure_class) == failure_class


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.modules.partition(" ")[0])
def test_any_text_is_accepted(library: Any) -> None:
    """No message makes the registry raise, and names of the entry are found under each of its modules."""
    for module in library.modules.split():
        names = [name for some in library.types for name in some.split()]
        assert [name for name in names if of_exception_text(f"{module}.{name}", "") is None] == []
        for name in (*names, "Odd"):
            for message in ("x" * 10_000, "(psycopg.Error) x", "[Errno 999999999999] x", "999 x"):
                of_exception_text(f"{module}.{name}", message)
