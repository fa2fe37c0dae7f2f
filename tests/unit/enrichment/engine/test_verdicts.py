"""Tests of the classification of exceptions raised by real clients, by type name and status."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import socket
import ssl
import time
import urllib.error
from collections.abc import Callable
from email.message import Message
from typing import Any

import aiohttp
import httpx
import pydantic
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from spark_events.enrichment.engine.verdicts import judge, verdict_on
from spark_events.enrichment.settings import Retry
from spark_events.failures.kinds import Verdict

RETRY = Retry()
REQUEST = httpx.Request("GET", "http://x")


def httpx_status(status: int, **headers: str) -> Exception:
    return httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(status, headers=headers))


def aiohttp_status(status: int, **headers: str) -> Exception:
    url = URL("http://x")
    named: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict(headers))
    info = aiohttp.RequestInfo(url, "GET", named, url)
    return aiohttp.ClientResponseError(info, (), status=status, headers=named)


def urllib_status(status: int, **headers: str) -> Exception:
    message = Message()
    for name, value in headers.items():
        message[name] = value
    return urllib.error.HTTPError("http://x", status, "x", message, None)


class BaseExceptionGroup(Exception):
    """Test double of Python 3.11's class, with the same name and attributes."""

    def __init__(self, *exceptions: BaseException) -> None:
        super().__init__(f"unhandled errors in a TaskGroup ({len(exceptions)} sub-exceptions)")
        self.exceptions = exceptions


class Group(BaseExceptionGroup):
    """Test double of ``ExceptionGroup``."""


SILENT = Verdict(retryable=True, timeout=True, outage=True, unreachable=True)
BROKEN = Verdict(retryable=True, outage=True, unreachable=True)
OUT_OF_ORDER = Verdict(retryable=True, outage=True)
MISTAKE = Verdict(retryable=False)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (TimeoutError(), SILENT),
        (asyncio.TimeoutError(), SILENT),
        (httpx.ReadTimeout("x"), SILENT),
        (httpx.ConnectTimeout("x"), SILENT),
        (aiohttp.ServerTimeoutError(), SILENT),
        (httpx.PoolTimeout("x"), Verdict(retryable=True, timeout=True)),
        (ConnectionResetError(), BROKEN),
        (BrokenPipeError(), BROKEN),
        (socket.gaierror(), BROKEN),
        (OSError(errno.EHOSTUNREACH, "no route"), BROKEN),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] Connect call failed"), BROKEN),
        (asyncio.IncompleteReadError(b"", 3), BROKEN),
        (ssl.SSLError("record layer failure"), BROKEN),
        (httpx.ConnectError("x"), BROKEN),
        (httpx.ReadError("x"), BROKEN),
        (httpx.RemoteProtocolError("x"), BROKEN),
        (aiohttp.ServerDisconnectedError(), BROKEN),
        (aiohttp.ClientPayloadError(), BROKEN),
        (aiohttp.ClientOSError(errno.ECONNRESET, "x"), BROKEN),
        (urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, "x")), BROKEN),
        (urllib.error.URLError(TimeoutError("timed out")), SILENT),
        (http.client.IncompleteRead(b"x", 9), BROKEN),
        (urllib.error.URLError(ssl.SSLCertVerificationError("x")), MISTAKE),
        (urllib.error.URLError("unknown url type: x"), MISTAKE),
        (ssl.SSLCertVerificationError("x"), MISTAKE),
        (httpx.UnsupportedProtocol("x"), MISTAKE),
        (httpx.LocalProtocolError("x"), MISTAKE),
        (httpx.InvalidURL("x"), MISTAKE),
        (FileNotFoundError(errno.ENOENT, "x"), MISTAKE),
        (PermissionError(errno.EACCES, "x"), MISTAKE),
        (json.JSONDecodeError("x", "", 0), MISTAKE),
        (KeyError("x"), MISTAKE),
        (TypeError("x"), MISTAKE),
        (AssertionError(), MISTAKE),
        (asyncio.CancelledError(), MISTAKE),
        (SystemExit(500), Verdict(retryable=False, outage=True)),
    ],
    ids=repr,
)
def test_exceptions_are_classified(error: BaseException, verdict: Verdict) -> None:
    """Connection errors and timeouts are transient; programming errors are not."""
    assert judge(error, RETRY) == verdict


@pytest.mark.parametrize("client", [httpx_status, aiohttp_status, urllib_status])
@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (400, Verdict(retryable=False, answered=True)),
        (404, Verdict(retryable=False, answered=True)),
        (408, Verdict(retryable=True, timeout=True, answered=True)),
        (429, Verdict(retryable=True, throttled=True, answered=True)),
        (500, OUT_OF_ORDER),
        (502, OUT_OF_ORDER),
        (503, Verdict(retryable=True, throttled=True, crowded=True, answered=True)),
        (504, Verdict(retryable=True, timeout=True, outage=True)),
        (529, Verdict(retryable=True, throttled=True, crowded=True, answered=True)),
        (599, OUT_OF_ORDER),
    ],
)
def test_statuses_are_classified(client: Any, status: int, verdict: Verdict) -> None:
    """Statuses are classified in every form in which clients provide them."""
    assert judge(client(status), RETRY) == verdict


@pytest.mark.parametrize("client", [httpx_status, aiohttp_status, urllib_status])
@pytest.mark.parametrize("status", [429, 503, 529])
@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("3", 3.0), ("0.5", 0.5), ("Thu, 01 Jan 1970 00:01:40 GMT", 60.0), ("soon", None), ("inf", None), ("-3", 0.0),
        ("1e300", 86_400.0), ("9" * 20, 86_400.0), ("Thu, 31 Dec 2999 00:00:00 GMT", 86_400.0),
    ],
)  # fmt: skip
def test_retry_after(client: Any, status: int, retry_after: str, seconds: float | None) -> None:
    """Retry-After may be a number or a date. Invalid values are ignored, and a delay is at most one day."""
    verdict = judge(client(status, **{"Retry-After": retry_after}), RETRY, wall=lambda: 40.0)
    assert verdict.retry_after == seconds
    assert verdict.throttled


@pytest.mark.parametrize("client", [httpx_status, aiohttp_status, urllib_status])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "Retry-After": "2"}, 1.5),
        ({"retry-after-ms": "soon", "Retry-After": "2"}, 2.0),
        ({"RateLimit-Reset": "7"}, 7.0),
        ({"Retry-After": "3", "RateLimit-Reset": "7"}, 3.0),
        ({"RateLimit": '"hour";r=0;t=30, "day";r=99;t=3600', "RateLimit-Policy": '"hour";q=100;w=3600'}, 30.0),
        ({"RateLimit": '"hour";r=0;t=30, "day";r=0;t=3600'}, 3600.0),
        ({"RateLimit": '"hour";r=5;t=30, "day";r=99;t=3600'}, 30.0),
        ({"RateLimit": "limit=100, remaining=0, reset=50"}, 50.0),
        ({"RateLimit": "nonsense", "RateLimit-Reset": "7"}, 7.0),
        ({"RateLimit-Reset": "1700000009"}, 9.0),
        ({"x-ratelimit-reset": "1700000009"}, 9.0),
        ({"x-ratelimit-reset": "1700000009000"}, 9.0),
        ({"X-RateLimit-Reset-After": "1.25"}, 1.25),
        ({"x-ratelimit-reset-requests": "20ms"}, 0.02),
        ({"x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-reset-requests": "2023-11-14T22:13:29Z"}, 9.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 1.0),
        (
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-reset-tokens": "6m0s",
                "x-ratelimit-remaining-tokens": "0",
            },
            360.0,
        ),
        ({"x-ratelimit-reset-tokens": "later"}, None),
        ({"x-ratelimit-reset": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}, None),
        ({"x-ratelimit-reset-tokens": ""}, None),
    ],
)
def test_other_rate_limit_headers(client: Any, headers: dict[str, str], seconds: float | None) -> None:
    """Other rate limit headers contain milliseconds, seconds, a time or a Go duration. Exhausted limits apply first."""
    verdict = judge(client(429, **headers), RETRY, wall=lambda: 1_700_000_000.0)
    assert verdict.retry_after == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("date", ["Tue Nov 14 22:13:29 2023", "Tue, 14 Nov 2023 22:13:29 -0000", "2023-11-14T22:13:29"])
def test_a_date_without_a_time_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch, date: str) -> None:
    """The executor's time zone does not change the delay. RFC 9110 allows the first format, which is always UTC."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        verdict = judge(httpx_status(429, **{"Retry-After": date}), RETRY, wall=lambda: 1_700_000_000.0)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert verdict.retry_after == 9.0


def test_rate_limit_headers_of_an_outage_are_ignored() -> None:
    """During an outage, rate limit headers are ignored, because services send them with every response."""
    headers = {"RateLimit-Reset": "7", "x-ratelimit-reset-tokens": "6m0s"}
    assert judge(httpx_status(502, **headers), RETRY) == OUT_OF_ORDER
    assert judge(httpx_status(503, **headers), RETRY).retry_after is None
    assert judge(httpx_status(503, **{"retry-after-ms": "1500"}), RETRY).retry_after == 1.5


@pytest.mark.parametrize("retry_after", [1e300, 10**400, float("inf")])
def test_an_exception_s_retry_after_is_limited_to_a_day(retry_after: float) -> None:
    error = RuntimeError()
    error.retry_after = retry_after  # type: ignore[attr-defined]
    assert judge(error, RETRY).retry_after == 86_400.0


@pytest.mark.parametrize("status", [None, 429, 503, 403])
@pytest.mark.parametrize(("retry_after", "seconds"), [(3, 3.0), (0, 0.0), (-0.5, 0.0)])
def test_an_exception_s_retry_after_counts_like_a_header(
    status: int | None, retry_after: float, seconds: float
) -> None:
    """The retry_after of an exception is the pause, even with a status; a negative number means no pause."""
    error = RuntimeError()
    error.status, error.retry_after = status, retry_after  # type: ignore[attr-defined]
    assert judge(error, RETRY).throttled
    assert judge(error, RETRY).retry_after == seconds


@pytest.mark.parametrize("client", [httpx_status, aiohttp_status, urllib_status])
@pytest.mark.parametrize("status", [403, 502, 504])
def test_retry_after_makes_other_statuses_overload(client: Any, status: int) -> None:
    """With a readable Retry-After, a gateway's 502 and 504, and GitHub's 403, are treated as overload."""
    overload = Verdict(retryable=True, throttled=True, crowded=status > 500, answered=True, retry_after=3.0)
    assert judge(client(status, **{"Retry-After": "3"}), RETRY) == overload
    assert not judge(client(status, **{"Retry-After": "soon"}), RETRY).throttled
    assert judge(client(404, **{"Retry-After": "3"}), RETRY) == Verdict(retryable=False, answered=True)


def test_without_a_retry_policy_failures_are_still_classified() -> None:
    assert judge(ConnectionError(), None) == Verdict(retryable=False, outage=True, unreachable=True)


def _raised_by(decode: Callable[[], Any]) -> Exception:
    try:
        decode()
    except Exception as error:
        return error
    raise AssertionError


class Answer(pydantic.BaseModel):
    """Model of an answer."""

    risk: float


@pytest.mark.parametrize(
    ("decode", "is_invalid"),
    [
        (lambda: json.loads("Sure! {"), True),
        (lambda: httpx.Response(200, text="<html>").json(), True),
        (lambda: Answer.model_validate_json('{"risk": "high"}'), True),
        (lambda: Answer.model_validate({}), True),
        (lambda: {"a": 1}["risk"], False),
        (lambda: int("x"), False),
    ],
)
def test_on_invalid_covers_errors_of_decoding(decode: Callable[[], Any], is_invalid: bool) -> None:
    """An answer that the function cannot decode is retried if the user asks for it, and is never an outage."""
    error = _raised_by(decode)
    assert judge(error, Retry(on_invalid=True)).retryable is is_invalid
    assert not judge(error, RETRY).retryable
    assert not judge(error, Retry(on_invalid=True)).outage


def test_a_permanent_exception_decides_for_its_group() -> None:
    """A permanent exception makes its group permanent. The failure reports this exception, not the group."""
    down, mistake = ConnectionResetError("down"), KeyError("name")
    assert verdict_on(down, RETRY)[0] is down
    assert verdict_on(Group(down, TimeoutError()), RETRY)[0] is down
    assert verdict_on(Group(down, Group(TimeoutError(), mistake)), RETRY)[0] is mistake
    assert verdict_on(Group(down, mistake), None)[0] is down
    busy = httpx_status(429, **{"Retry-After": "3"})
    assert verdict_on(Group(down, busy), RETRY)[0] is busy
    group = Group(down)
    assert verdict_on(group, Retry(on=(Group,)))[0] is group
    assert verdict_on(group, Retry(on=lambda error: isinstance(error, Group)))[0] is group
    assert verdict_on(group, Retry(on=(OSError,)))[0] is down


@pytest.mark.parametrize("parts", [(), ("x",), [KeyError()], (KeyError(),), 7])
def test_an_exception_named_like_a_group_is_not_a_group(parts: Any) -> None:
    """An exception that only has the name of a group is not a group, because its attributes may have any type."""
    error = ValueError("x")
    error.exceptions = parts  # type: ignore[attr-defined]
    assert verdict_on(error, RETRY)[0] is error
