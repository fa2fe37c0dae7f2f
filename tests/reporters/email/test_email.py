"""Tests of the reporter ``email`` with a real mail server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from fakes import event, eventually

from reporters.peers.mail import MailReceiver
from reporters.webhook.sending import NOW, Sending, alert, recovery
from spark_events import Event, Severity
from spark_events.config import Secret, Settings
from spark_events.dispatch.pipeline import build
from spark_events.errors import ConfigError, PermanentError
from spark_events.reporters.email.email_config import EmailConfig
from spark_events.reporters.email.email_reporter import EmailReporter
from spark_events.reporters.email.message import EMAIL, digest_of

PASSWORD = "kf83-Hdk2"
TRACEBACK = 'Traceback (most recent call last):\n  File "pay.py", line 7\nValueError: no currency'
CAUSE = {
    "failure.root_cause": "ValueError: no currency",
    "exception.stacktrace": f"a.SparkException: {TRACEBACK}\nCaused by: a.PythonException: {TRACEBACK}",
}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server(authority: trustme.CA) -> Iterator[MailReceiver]:
    with MailReceiver("starttls", authority, ("spark", PASSWORD)) as running:
        yield running


def config(server: MailReceiver, authority: trustme.CA, folder: Path, **changes: Any) -> EmailConfig:
    trusted = folder / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    given: dict[str, Any] = {
        "host": "localhost",
        "port": server.port,
        "sender": "spark@example.com",
        "to": ("ops@example.com", "ada@example.com"),
        "username": "spark",
        "password": Secret(PASSWORD),
        "tls_ca": str(trusted),
        "alerts_directory": str(folder / "alerts"),
    }
    return EmailConfig(**{**given, **changes})


async def deliver(reporter: EmailReporter, *batches: list[Event]) -> None:
    reporter.open()
    for batch in batches:
        await reporter.report(batch)
    await reporter.close()


@pytest.mark.parametrize("tls", ["starttls", "tls", "none"])
def test_an_alert_and_its_recovery_are_one_mail_each(tls: str, authority: trustme.CA, tmp_path: Path) -> None:
    login = None if tls == "none" else ("spark", PASSWORD)
    with MailReceiver(tls, authority, login) as server:
        changes: dict[str, Any] = {"tls": tls} | ({"username": None, "password": None} if login is None else {})
        failure = msgspec.structs.replace(
            alert(NOW, **CAUSE), body="shop: query 'clicks' failed: ValueError: no currency"
        )
        asyncio.run(
            deliver(EmailReporter(config(server, authority, tmp_path, **changes)), [failure], [recovery(NOW + 60)])
        )
    one, other = server.mails
    assert one["Subject"] == "ERROR: ValueError: no currency – shop: query 'clicks' failed"
    assert (one["To"], one["From"]) == ("ops@example.com, ada@example.com", "spark@example.com")
    text = one.get_content().replace("\r\n", "\n")
    assert text.startswith("Application: shop\n")
    assert text.endswith(f"\n\na.SparkException: {TRACEBACK}\nCaused by: a.PythonException: the traceback above\n")
    assert other["Subject"].startswith("Recovered: shop: ")


def test_a_recovery_of_a_failure_that_no_mail_reported_is_not_sent(
    server: MailReceiver, authority: trustme.CA, tmp_path: Path
) -> None:
    """The first commit of each run is a recovery, whether or not an earlier run has failed."""
    asyncio.run(deliver(EmailReporter(config(server, authority, tmp_path)), [recovery()], [recovery(NOW + 60)]))
    assert server.mails == []


def test_alerts_that_wait_together_are_one_mail(server: MailReceiver, authority: trustme.CA, tmp_path: Path) -> None:
    events = [alert(NOW, f"shop/query=q{n}/failure") for n in range(3)]
    asyncio.run(deliver(EmailReporter(config(server, authority, tmp_path)), events))
    (mail,) = server.mails
    assert mail["Subject"] == "ERROR: 3 failures"
    assert [line.startswith("- ERROR: ") for line in mail.get_content().splitlines()] == [True] * 3


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("451 try later", ConnectionError),
        ("421 busy", ConnectionError),
        ("554 spam", PermanentError),
        ("552 too large", PermanentError),
    ],
)
def test_a_refused_mail_is_dropped_and_a_deferred_one_is_sent_again(
    reply: str, error: type[Exception], server: MailReceiver, authority: trustme.CA, tmp_path: Path
) -> None:
    async def run() -> None:
        reporter = EmailReporter(config(server, authority, tmp_path))
        reporter.open()
        with pytest.raises(error, match=reply[:3]):
            await reporter.report([alert()])
        await reporter.report([alert()])
        await reporter.close()

    server.answers = [reply]
    asyncio.run(run())
    assert len(server.mails) == 1


def test_one_refused_receiver_does_not_repeat_the_mail_for_the_others(
    server: MailReceiver, authority: trustme.CA, tmp_path: Path
) -> None:
    server.refuses = {"ada@example.com": "550 no such user"}
    with pytest.raises(PermanentError, match="1 of 2 receivers: SMTP 550: no such user"):
        asyncio.run(deliver(EmailReporter(config(server, authority, tmp_path)), [alert()]))
    assert len(server.mails) == 1


def test_a_wrong_password_is_an_outage_and_never_shown(
    server: MailReceiver, authority: trustme.CA, tmp_path: Path
) -> None:
    wrong = config(server, authority, tmp_path, password=Secret("wrong-7"))
    with pytest.raises(ConnectionError, match="SMTP 535") as raised:
        asyncio.run(deliver(EmailReporter(wrong), [alert()]))
    assert "wrong-7" not in repr(raised.value)


def test_an_untrusted_certificate_is_not_accepted(server: MailReceiver, authority: trustme.CA, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="certificate verify failed"):
        asyncio.run(deliver(EmailReporter(config(server, authority, tmp_path, tls_ca=None)), [alert()]))
    assert server.mails == []


def test_a_digest_has_one_line_per_event(server: MailReceiver, authority: trustme.CA, tmp_path: Path) -> None:
    """Old events of a long digest are only counted; a digest that fails is sent at the end."""
    others = [msgspec.structs.replace(event(n, Severity.WARN), event_id=f"e{n}") for n in range(501)]

    async def run() -> None:
        reporter = EmailReporter(config(server, authority, tmp_path, digest=0.05))
        reporter.open()
        await reporter.report(others[:1])
        await asyncio.to_thread(eventually, lambda: not server.answers)
        await reporter.report(others[1:])
        await reporter.report(others[-2:])
        await reporter.close()

    server.answers = ["451 later"]
    asyncio.run(run())
    assert sum(mail.get_content().count(" WARN ") for mail in server.mails) in (500, 501)
    subjects = [mail["Subject"] for mail in server.mails]
    assert subjects in (["Digest: 501 events"], ["Digest: 1 event", "Digest: 500 events"])


def test_times_are_utc_whatever_the_time_zone_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        with Sending(EMAIL) as run:
            run.fail()
        assert "Time: 2027-01-15 08:00:00 UTC" in run.bodies[0]["text"]
        assert "\n2027-01-15 08:00:00 " in digest_of([alert(NOW)])["text"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_without_a_digest_other_events_are_not_sent(
    server: MailReceiver, authority: trustme.CA, tmp_path: Path
) -> None:
    asyncio.run(deliver(EmailReporter(config(server, authority, tmp_path)), [event(0, Severity.ERROR)]))
    assert server.mails == []


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("to", "ops", "expected e-mail addresses"),
        ("from", "a@b, c@d", "expected one e-mail address"),
        ("tls", "maybe", "expected one of"),
        ("username", "ada", "set both or none"),
    ],
)
def test_a_wrong_setting_has_one_clear_message(key: str, value: str, reason: str) -> None:
    prefix = "events.reporter.mail"
    good = {"type": "email", "host": "h", "from": "a@b", "to": "c@d"}
    settings = Settings.of({f"{prefix}.{name}": text for name, text in {**good, key: value}.items()})
    try:
        (problem,) = build(settings).disabled["mail"]
    except ConfigError as error:
        (problem,) = error.problems
    assert reason in problem
