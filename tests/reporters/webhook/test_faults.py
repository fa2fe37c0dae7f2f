"""Tests of failures in the ``webhook`` reporter: errors are clear, and no retryable event is lost."""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
import time
from email.utils import formatdate
from pathlib import Path

import pytest
import trustme
from fakes import event
from lateness import Witness
from ports import free_port

from reporters.peers.webhook import Answer, Receiver, Request
from reporters.running import IMPATIENT, Running
from spark_events import ConfigError, PermanentError, ThrottledError
from spark_events.config import Secret, Settings
from spark_events.dispatch.pipeline import build
from spark_events.errors import TransientError
from spark_events.reporters.http.http_answers import retry_after, verdict
from spark_events.reporters.http.http_config import HttpConfig
from spark_events.reporters.http.post import post_to, trust

NOW = 1_700_000_000.0


def bodies(receiver: Receiver) -> list[int]:
    """Return the numbers of the events that the receiver accepted."""
    return [int(one["body"]) for batch in receiver.bodies() for one in (batch if isinstance(batch, list) else [batch])]


@pytest.mark.parametrize("format", ["json", "json-each"])
def test_a_restarted_receiver_gets_every_event_once_and_in_order(format: str, caplog: pytest.LogCaptureFixture) -> None:
    with Receiver() as receiver:
        settings = {"url": receiver.url, "format": format, "batch.size": "7", **IMPATIENT}
        with Running("webhook", settings) as running:
            running.deliver([event(n) for n in range(20)])
            receiver.stop()
            running.put([event(n) for n in range(20, 60)])
            running.await_failures(3)
            receiver.start()
            running.deliver([event(n) for n in range(60, 70)])
            assert running.counters.delivered == 70
        assert bodies(receiver) == list(range(70))
    assert "failed; holding its events and retrying: TransientError: localhost: " in caplog.text


def test_events_accepted_before_a_failure_are_not_sent_again() -> None:
    """With one request per event, a batch resumes at the failed event, whatever the failure."""
    with Receiver([Answer(), Answer(500), Answer(cut=True), Answer(), Answer(502)]) as receiver:
        with Running("webhook", {"url": receiver.url, "format": "json-each", **IMPATIENT}) as running:
            running.deliver([event(n) for n in range(6)])
            assert (running.counters.delivered, running.counters.failures) == (6, 3)
        assert bodies(receiver) == list(range(6))


def test_accepted_events_count_as_delivered_when_the_rest_is_dropped() -> None:
    """With one request per event, accepted events count as delivered even if a shutdown interrupts the batch."""

    def decide(_: Request) -> Answer:
        return Answer() if len(receiver.taken) < 3 else Answer(503)

    with Receiver(decide=decide) as receiver:
        with Running("webhook", {"url": receiver.url, "format": "json-each", **IMPATIENT}) as running:
            running.put([event(n) for n in range(6)])
            running.await_failures()
            running.stop(within=0.3)
            assert (running.counters.delivered, running.counters.dropped) == (3, {"shutdown": 3})
        assert bodies(receiver) == [0, 1, 2]


def test_a_timeout_closes_the_connection() -> None:
    """If an attempt times out, its connection is closed, and the events are sent again."""
    with Receiver([Answer(hang=True)]) as receiver:
        with Running("webhook", {"url": receiver.url, "timeout": "2s", **IMPATIENT}, grace=60) as running:
            running.deliver([event(1), event(2)])
            assert receiver.lost.wait(20)
            assert running.counters.hung == 0
            assert running.counters.failures == 1
        assert bodies(receiver) == [1, 2]


def test_an_attempt_cancelled_at_any_moment_releases_its_connection() -> None:
    """If an attempt is cancelled, even while connecting, the next attempt can use the pool's only connection."""

    async def given_up(after: int) -> int:
        client = post_to(HttpConfig(Secret(f"http://127.0.0.1:{receiver.port}/")), trust(None))
        attempt = asyncio.ensure_future(client.post(b"[]"))
        for _ in range(after):
            await asyncio.sleep(0)
        attempt.cancel()
        await asyncio.gather(attempt, return_exceptions=True)
        answer = await asyncio.wait_for(client.post(b"[]"), 10)
        await client.close()
        return answer.status

    with Receiver() as receiver:
        assert [asyncio.run(given_up(after)) for after in range(30)] == [200] * 30


def test_a_hanging_receiver_does_not_delay_shutdown(witness: Witness) -> None:
    """If the receiver hangs, the reporter stops by its deadline and counts unanswered events as dropped."""
    with Receiver(decide=lambda _: Answer(hang=True)) as receiver:
        running = Running("webhook", {"url": receiver.url})
        running.put([event(1)])
        assert witness.took(running.stop(within=0.5)) < 2
        assert running.counters.dropped == {"shutdown": 1}


def test_a_throttled_reporter_waits_for_the_requested_time() -> None:
    """The delay that a receiver requests, in seconds or as a date, replaces the reporter's back-off."""
    stamps: list[float] = []

    def decide(_: Request) -> Answer:
        stamps.append(time.time())
        if len(stamps) == 1:
            return Answer(429, "slow down", {"Retry-After": "1"})
        # A date has whole seconds: a date in two seconds means a delay of at least one second.
        if len(stamps) == 2:
            return Answer(503, "", {"Retry-After": formatdate(time.time() + 2, usegmt=True)})
        return Answer()

    with Receiver(decide=decide) as receiver, Running("webhook", {"url": receiver.url, **IMPATIENT}) as running:
        running.deliver([event(1)])
    assert stamps[1] - stamps[0] >= 0.99
    assert stamps[2] - stamps[1] >= 0.9


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("99999999999999", 3600.0),
        (formatdate(NOW + 30, usegmt=True), 30.0),
        (formatdate(NOW - 30, usegmt=True), 0.0),
        ("soon", None),
        ("-1", None),
        ("", None),
        ("¹²", None),
        (None, None),
    ],
)
def test_retry_after_is_read_or_ignored(asked: str | None, seconds: float | None) -> None:
    """A valid Retry-After is used, up to one hour. An invalid value is ignored."""
    assert retry_after(asked, NOW) == seconds


@pytest.mark.parametrize(
    ("status", "asked", "kind"),
    [
        (200, None, None),
        (202, None, None),
        (204, None, None),
        *((status, None, PermanentError) for status in (400, 406, 409, 413, 415, 422, 451)),
        *((status, None, TransientError) for status in (401, 403, 404, 407, 408, 410, 425)),
        *((status, None, TransientError) for status in (303, 304, 500, 502, 503, 504, 599)),
        (429, None, ThrottledError),
        (429, "soon", ThrottledError),
        (429, "7", ThrottledError),
        (503, "7", ThrottledError),
        (400, "7", PermanentError),
    ],
)
def test_every_status_is_permanent_or_transient(status: int, asked: str | None, kind: type[Exception] | None) -> None:
    """A status about the events is a permanent error; a status about connection or receiver is a transient error."""
    error = verdict(status, asked, "because", NOW)
    assert error is None if kind is None else isinstance(error, kind)
    assert error is None or str(error) == f"HTTP {status}: because"


def test_a_batch_that_is_too_large_is_split() -> None:
    """After a 413, the batch is halved. A single event that is too large is rejected and counted."""

    def decide(request: Request) -> Answer:
        return Answer(413, "at most 2,000 bytes") if len(request.body) > 2_000 else Answer()

    events = [event(n, text="x" * (5_000 if n == 13 else 10)) for n in range(40)]
    with Receiver(decide=decide) as receiver:
        with Running("webhook", {"url": receiver.url, **IMPATIENT}) as running:
            running.deliver(events)
            assert (running.counters.delivered, running.counters.dropped) == (39, {"rejected": 1})
        assert bodies(receiver) == [n for n in range(40) if n != 13]


def test_a_rejected_event_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    """The reporter halves a rejected batch until it finds the event that the receiver rejects."""

    def decide(request: Request) -> Answer:
        return Answer(422, "no\n threes") if any(one["body"].endswith("3") for one in request.json) else Answer()

    with Receiver(decide=decide) as receiver:
        with Running("webhook", {"url": receiver.url, **IMPATIENT}) as running:
            running.deliver([event(n) for n in range(30)])
            assert (running.counters.delivered, running.counters.dropped) == (27, {"rejected": 3})
        assert bodies(receiver) == [n for n in range(30) if n % 10 != 3]
    assert "events: HTTP 422: no threes" in caplog.text


def test_a_revoked_token_loses_no_events(caplog: pytest.LogCaptureFixture) -> None:
    """After a 401 or 403, events are retried until the token is valid again."""
    allowed = True

    def decide(_: Request) -> Answer:
        return Answer() if allowed else Answer(403, "token revoked")

    with Receiver(decide=decide) as receiver:
        with Running("webhook", {"url": receiver.url, **IMPATIENT}) as running:
            running.deliver([event(0)])
            allowed = False
            running.put([event(1), event(2)])
            running.await_failures(2)
            allowed = True
            running.deliver([event(3)])
        assert bodies(receiver) == [0, 1, 2, 3]
    assert caplog.text.count("HTTP 403: token revoked") == 1


def test_redirects_are_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    """The reporter sends no request to the target of a redirect. The message contains only the target's host."""
    with Receiver() as other:
        with (
            Receiver(decide=lambda _: Answer(307, "", {"Location": other.url})) as receiver,
            Running("webhook", {"url": receiver.url, "headers": "X-Token: t", **IMPATIENT}) as running,
        ):
            running.put([event(2)])
            running.await_failures()
            running.stop(within=0.5)
        assert other.requests == []
    assert f"localhost: redirected to http://localhost:{other.port}/…; configure the new address" in caplog.text


@pytest.mark.parametrize("quoted", ["{path}", "you are {authorization}", "{signature}?"])
def test_secrets_that_a_receiver_quotes_are_not_logged(quoted: str, caplog: pytest.LogCaptureFixture) -> None:
    """The reporter does not log secrets that a receiver quotes, for example the URL in a 404 page."""

    def decide(request: Request) -> Answer:
        known = {"path": request.path, "authorization": request.headers["Authorization"], "signature": "k3y-of-ours"}
        return Answer(404, f"not here: {quoted.format(**known)}") if len(receiver.requests) == 1 else Answer()

    with Receiver(decide=decide) as receiver:
        secrets = {"headers": "Authorization: Bearer T0K3N", "signature.secret": "k3y-of-ours"}
        with Running("webhook", {"url": receiver.url, **secrets, **IMPATIENT}) as running:
            running.deliver([event(1)])
    assert "HTTP 404: not here: " in caplog.text
    for secret in ("/hook", "t0psecret", "T0K3N", "k3y-of-ours"):
        assert secret not in caplog.text


def test_httpx_does_not_log_the_url(caplog: pytest.LogCaptureFixture) -> None:
    """httpx does not log the URL, even if the user's Python configures logging."""
    with caplog.at_level(logging.DEBUG), Receiver() as receiver:
        with Running("webhook", {"url": receiver.url, **IMPATIENT}) as running:
            running.deliver([event(1)])
        assert len(receiver.taken) == 1
    assert "t0psecret" not in caplog.text


def test_a_user_s_header_overrides_the_default() -> None:
    """A user's header, in upper or lower case, overrides the default header of the same name."""
    with Receiver() as receiver:
        headers = "content-type: application/x-ndjson; user-AGENT: mine"
        with Running("webhook", {"url": receiver.url, "headers": headers, **IMPATIENT}) as running:
            running.deliver([event(1)])
        sent = [(name.lower(), value) for name, value in receiver.taken[0].fields]
    assert [value for name, value in sent if name == "content-type"] == ["application/x-ndjson"]
    assert [value for name, value in sent if name == "user-agent"] == ["mine"]


def serving(*names: str) -> tuple[trustme.CA, ssl.SSLContext]:
    """Create a certificate authority, and a server's TLS context with a certificate for these names."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return authority, context


def written(authority: trustme.CA, folder: Path) -> str:
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return str(folder / "ca.pem")


def test_tls_with_a_private_authority(tmp_path: Path) -> None:
    """TLS works with a private CA whose certificate is in a file."""
    authority, context = serving("localhost")
    with Receiver(context=context) as receiver:
        settings = {"url": receiver.url, "tls.ca": written(authority, tmp_path), **IMPATIENT}
        with Running("webhook", settings) as running:
            running.deliver([event(1)])
            assert running.counters.failures == 0
        assert bodies(receiver) == [1]


def test_the_reporter_sends_its_client_certificate(tmp_path: Path) -> None:
    """The reporter sends its client certificate. If the required certificate is missing, events are held."""
    authority, context = serving("localhost")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    certificate = authority.issue_cert("driver")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))
    settings = {"tls.ca": written(authority, tmp_path), **IMPATIENT}
    with Receiver(context=context) as receiver:
        with Running("webhook", {"url": receiver.url, **settings}) as running:
            running.put([event(1)])
            running.await_failures()
            running.stop(within=0.2)
        with Running(
            "webhook", {"url": receiver.url, "tls.certificate": str(tmp_path / "client.pem"), **settings}
        ) as running:
            running.deliver([event(2)])
        assert bodies(receiver) == [2]


@pytest.mark.parametrize("wrong", ["another host", "unknown authority"])
def test_a_certificate_that_does_not_match_is_rejected(
    wrong: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the receiver's certificate does not match, the reporter sends nothing, logs the reason and keeps events."""
    authority, context = serving("elsewhere.example" if wrong == "another host" else "localhost")
    settings = {} if wrong == "unknown authority" else {"tls.ca": written(authority, tmp_path)}
    with Receiver(context=context) as receiver:
        with Running("webhook", {"url": receiver.url, **settings, **IMPATIENT}) as running:
            running.put([event(1)])
            running.await_failures()
            assert running.counters.held == 1
            running.stop(within=0.2)
        assert receiver.requests == []
    message = {"another host": "Hostname mismatch", "unknown authority": "unable to get local issuer certificate"}[
        wrong
    ]
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
    assert message in caplog.text


def test_a_proxy_is_used_and_its_password_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Requests use the proxy. The proxy's password is not logged, and an answer 407 loses no events."""
    with Receiver([Answer(407, "who are you?")]) as proxy:
        settings = {"url": "http://hooks.invalid/x", "proxy": f"http://ada:s3cret@localhost:{proxy.port}", **IMPATIENT}
        with Running("webhook", settings) as running:
            running.deliver([event(1)])
        assert [request.path for request in proxy.taken] == ["http://hooks.invalid/x"]
        assert "Proxy-Authorization" in proxy.taken[0].headers
    assert "HTTP 407: who are you?" in caplog.text
    assert "s3cret" not in caplog.text


def test_proxy_variables_of_the_environment_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy variables of the environment, including NO_PROXY, have the same effect as in curl."""
    with Receiver() as proxy, Receiver() as receiver:
        monkeypatch.setenv("HTTP_PROXY", f"http://localhost:{proxy.port}")
        # Invalid entries and all other variables have no effect.
        monkeypatch.setenv("NO_PROXY", "fd00::/8,[::1],localhost")
        monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
        for url in ("http://hooks.invalid/x", receiver.url):
            with Running("webhook", {"url": url, **IMPATIENT}) as running:
                running.deliver([event(1)])
        assert [request.path for request in proxy.taken] == ["http://hooks.invalid/x"]
        assert len(receiver.taken) == 1


def test_a_header_may_have_latin_1_characters() -> None:
    with Receiver() as receiver:
        with Running("webhook", {"url": receiver.url, "headers": "X-Who: Zoë", **IMPATIENT}) as running:
            running.deliver([event(1)])
        assert receiver.taken[0].headers["X-Who"] == "Zoë"


@pytest.mark.parametrize(
    "answer",
    [Answer(text="x" * 5_000_000), Answer(text="thank", more=100, hang=True), Answer(text="thank", more=100, cut=True)],
    ids=["megabytes", "silence", "cut"],
)
def test_an_incomplete_success_answer_is_a_success(answer: Answer) -> None:
    """A success status with an incomplete body confirms the delivery, and the connection is closed."""
    with Receiver([answer]) as receiver:
        with Running("webhook", {"url": receiver.url, **IMPATIENT}) as running:
            running.deliver([event(1)])
            running.deliver([event(2)])
            assert running.counters.failures == 0
        assert bodies(receiver) == [1, 2]
        assert receiver.connections == 2


def test_the_status_of_an_incomplete_error_answer_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """For an incomplete error response, the status is logged and determines whether the events are retried."""
    with (
        Receiver([Answer(400, "no such topic", more=100, hang=True)]) as receiver,
        Running("webhook", {"url": receiver.url, **IMPATIENT}) as running,
    ):
        running.deliver([event(1)])
        assert running.counters.dropped == {"rejected": 1}
    assert "HTTP 400: no such topic" in caplog.text


def test_an_unknown_host_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """If the host is unknown or unreachable, the log contains only the host of the URL."""
    for url in ("https://hooks.invalid/s3cret", f"http://localhost:{free_port()}/s3cret"):
        with Running("webhook", {"url": url, **IMPATIENT}) as running:
            running.put([event(1)])
            running.await_failures()
            running.stop(within=0.2)
    assert "TransientError: hooks.invalid: ConnectError:" in caplog.text
    assert "TransientError: localhost: ConnectError:" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "hook.url: required, but not set; expected a URL that begins with https:// or http://"),
        ({"url": "hooks.example/s3cret"}, "hook.url: given a value that is not shown, expected a URL that begins"),
        ({"url": "https://h:s3cret/x"}, "hook.url: given a value that is not shown, expected a URL that begins"),
        ({"format": "xml"}, "hook.format: given 'xml', expected one of json, json-each, pagerduty, alertmanager"),
        ({"headers": "s3cret"}, "hook.headers: given a value that is not shown, expected name: value, several"),
        (
            {"headers": "Content-Length: 5"},
            "hook.headers: given a value that is not shown, expected name: value, sev",
        ),
        ({"headers": "A: s3cret\r\nB: x"}, "hook.headers: given a value that is not shown, expected name: value"),
        ({"proxy": "s3cret:80"}, "hook.proxy: given a value that is not shown, expected a URL that begins"),
        (
            {"format": "template"},
            "ValueError: template: not set with format=template; this key applies only to format=template",
        ),
        ({"template": "x"}, "ValueError: template: set with format=json; this key applies only to format=template"),
        (
            {"format": "pagerduty"},
            "routing-key: not set with format=pagerduty; this key applies only to format=pagerduty",
        ),
        ({"format": "template", "template": "/nope.json"}, "template: /nope.json: No such file or directory"),
        ({"format": "template", "template": "{tmp}/bad.json"}, "bad.json is not JSON: Expecting ','"),
        (
            {"format": "template", "template": "{tmp}/typo.json"},
            "typo.json: given ${bodi}, expected name, class",
        ),
        ({"tls.ca": "/nope.pem"}, "tls.ca: /nope.pem: No such file or directory"),
        ({"tls.ca": "{tmp}/bad.json"}, "bad.json: "),
        ({"tls.certificate": "/nope.pem"}, "tls.certificate: /nope.pem: No such file or directory"),
        ({"tls.key": "/nope.pem"}, "tls.key: set without tls.certificate; set both"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_an_invalid_setting_is_rejected_before_the_first_event(
    settings: dict[str, str], message: str, tmp_path: Path
) -> None:
    """An invalid setting is rejected with the key, the allowed values, and the value unless it may be a secret."""
    (tmp_path / "bad.json").write_text('{"a": 1 "b"}')
    (tmp_path / "typo.json").write_text('{"a": "${bodi}"}')
    given = {
        "type": "webhook",
        **({"url": "https://h/"} if message.partition(":")[0] != "hook.url" else {}),
        **settings,
    }
    keys = {f"events.reporter.hook.{key}": value.replace("{tmp}", str(tmp_path)) for key, value in given.items()}
    with pytest.raises(ConfigError) as caught:
        build(Settings.of(keys, "spark-defaults.conf"))
    (problem,) = caught.value.problems
    assert problem.startswith("events.reporter.hook")
    assert message in problem
    assert "s3cret" not in problem


def test_a_missing_library_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the library is missing, the error is raised before the first event and contains the install command."""
    monkeypatch.setitem(sys.modules, "httpx", None)
    keys = {"events.reporter.hook.type": "webhook", "events.reporter.hook.url": "https://h/"}
    with pytest.raises(ConfigError, match=r"httpx is not installed; run: pip install 'spark-events\[webhook\]'"):
        build(Settings.of(keys))
