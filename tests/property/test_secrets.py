"""Property test: no output contains a secret, whatever key of a reporter contains it, and whatever the mistake is."""

from __future__ import annotations

import base64
import contextlib
import http.server
import io
import json
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import hypothesis
import pytest
from fakes import application_start, eventually, goodbye, hello
from hypothesis import strategies as st
from ports import free_port

from spark_events.cli import main
from spark_events.config import Settings, options
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.pipeline import build
from spark_events.dispatch.selection import SelectionConfig
from spark_events.errors import ConfigError
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter
from spark_events.reporters.reporter_types import BUILT_IN, factory
from spark_events.sidecar.acknowledgements import MessageWriter
from spark_events.sidecar.driver_session import DriverSession, DriverSessionOptions

PREFIX = "spark.events.reporter.peer."
NOBODY = f"http://127.0.0.1:{free_port()}"
#: Valid settings of each type; nobody listens at the addresses.
BASES: dict[str, dict[str, str]] = {
    "database": {"url": NOBODY.replace("http", "postgresql"), "timeout": "2s"},
    "email": {"host": "127.0.0.1", "port": NOBODY.rpartition(":")[2], "from": "a@b.example", "to": "c@d.example"},
    "file": {"path": "events.jsonl"},
    "heartbeat": {"url": NOBODY},
    "kafka": {"bootstrap.servers": NOBODY.removeprefix("http://"), "topic": "t"},
    "log": {},
    "memory": {},
    "openlineage": {"url": NOBODY},
    "otlp": {"endpoint": NOBODY, "protocol": "http/protobuf"},
    "otlp-traces": {"endpoint": NOBODY},
    "termination-message": {"path": "termination-log"},
    "verdict": {"path": "verdict.json"},
    "webhook": {"url": NOBODY},
}
KEYS = {
    kind: sorted(
        {one.key for section in (factory(kind).Config, DeliveryConfig, SelectionConfig) for one in options(section)}
    )
    for kind in BUILT_IN
}
#: Secret of a random token, which is searched, with characters around it that libraries encode.
TOKENS = st.text("abcdefghjkmnpqrstuvwxyz23456789", min_size=12, max_size=20).map(lambda token: f"7{token}")
FORMS = st.sampled_from(["{}", "Bearer {}", "a/{}+ä", 'x password="{}";', "user:{}", "{} {}", "\\u00e4{}"])
#: URLs with the secret, correct and incorrect; HOST is where nobody listens.
URLS = st.sampled_from(
    [
        "http://user:{}@HOST/",
        "http://{}@HOST/v1?x=1",
        "http://HOST/{}/T00?token={}&x=1#{}",
        "htp://user:{}@HOST/?token={}",
        "http://user:{}@HOST:port/",
        "http:/user:{}@HOST",
        "https://{}:a/b@HOST/",
        "user:{}@HOST",
        "HOST?token={}",
    ]
)
REFERENCES = st.sampled_from(
    ["${{env:NO_SUCH_VARIABLE}}{}", "{}${{file:/no/such/file}}", "${{env:{}}}", "http://user:{}@${{env:NO_SUCH}}/"]
)


def forms_of(token: str) -> set[str]:
    """Return what must not be in any output: the token, escaped, and in Base64."""
    inner = {base64.b64encode(b"x" * before + token.encode()).decode()[4:12] for before in range(3)}
    return {token, quote(token), json.dumps(token)[1:-1], *inner}


@st.composite
def near_keys(draw: st.DrawFn, kind: str) -> str:
    """Return an unknown key near a known one, such as ``routing_key``."""
    key = draw(st.sampled_from(KEYS[kind]))
    at = draw(st.integers(0, len(key) - 1))
    return draw(
        st.sampled_from([key[:at] + key[at + 1 :], key.replace("-", "_").replace(".", "_") + "s", f"{key}x", "uri"])
    )


@st.composite
def mistakes(draw: st.DrawFn) -> tuple[str, str, dict[str, str]]:
    """Return a reporter type, a token, and settings with this token at one place."""
    kind, token = draw(st.sampled_from(sorted(BASES))), draw(TOKENS)
    key = draw(st.one_of(st.sampled_from(KEYS[kind]), near_keys(kind)))
    value = draw(st.one_of(FORMS, URLS, REFERENCES)).replace("HOST", NOBODY[7:]).format(*[token] * 3)
    return kind, token, {**BASES[kind], key: value}


class Echo(http.server.BaseHTTPRequestHandler):
    """Server that refuses every request, and quotes all of it in its answer."""

    status = 400

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        text = f"no {self.path} for {dict(self.headers)} {base64.b64encode(self.path.encode()).decode()}"
        answer = f"{text} {body[:100]!r}".encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Other(Reporter):
    """Another reporter of the same driver, which keeps its events."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def report(self, events: Sequence[Event]) -> None:
        self.events.extend(events)


class Lines:
    """Source of a driver session: the lines, then the goodbye message once ``over`` is set."""

    closed = False

    def __init__(self, *lines: dict[str, Any]) -> None:
        self._lines = [json.dumps(line).encode() for line in lines]
        self._woken = threading.Event()
        self.is_over = False

    def read(self, timeout: float | None = None) -> list[bytes]:
        first, self._lines = self._lines, []
        if first:
            return first
        self._woken.wait(timeout)
        self._woken.clear()
        return [json.dumps(goodbye(500)).encode()] if self.is_over else []

    def wake(self) -> None:
        self._woken.set()

    def end(self) -> None:
        self.is_over = True
        self.wake()


@contextlib.contextmanager
def outputs() -> Iterator[io.StringIO]:
    """Collect the log, standard output and standard error."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logging.getLogger().addHandler(handler)
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            yield text
    finally:
        logging.getLogger().removeHandler(handler)


def command(name: str, settings: dict[str, str], folder: Path, *arguments: str) -> None:
    """Run a command of ``spark-events`` with the settings in a file."""
    path = folder / "spark-defaults.conf"
    lines = {f"{PREFIX}{key}": value.replace("\\", "\\\\") for key, value in settings.items()}
    path.write_text("".join(f"{key} {value}\n" for key, value in lines.items()), "utf-8")
    main([name, "--conf", str(path), *arguments])


def drive(settings: dict[str, str], until: str) -> str:
    """Run a driver session with the settings and another reporter; return the other reporter's events."""
    other = Other()
    given = {f"{PREFIX}{key}": value for key, value in settings.items()}
    lines = Lines(hello(given), {**application_start(), "seq": 1})
    options = DriverSessionOptions(own={"other": lambda: other})
    session = DriverSession.open(lines, MessageWriter(lambda _: None), lambda _: False, options)
    assert session is not None
    running = threading.Thread(target=session.run)
    running.start()
    try:
        eventually(lambda: any(until in event.name for event in other.events))
    finally:
        lines.end()
        running.join(20)
    assert not running.is_alive()
    return repr([(event.body, dict(event.attributes)) for event in other.events])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_every_type_is_tested() -> None:
    assert set(BASES) == set(BUILT_IN)


FEW = hypothesis.settings(
    max_examples=12, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)


@hypothesis.settings(FEW, max_examples=400)
@hypothesis.given(mistakes())
def test_no_message_about_a_setting_contains_a_secret(folder: Path, made: tuple[str, str, dict[str, str]]) -> None:
    """Neither the exception nor the output of ``check``."""
    kind, token, settings = made
    settings = {"type": kind, **settings}
    with outputs() as found:
        try:
            build(Settings.of({f"{PREFIX}{key}": value for key, value in settings.items()}), strict=True)
        except ConfigError as error:
            found.write(repr(error))
        command("check", settings, folder)
    for form in forms_of(token):
        assert form not in found.getvalue(), found.getvalue()


def test_a_disabled_reporter_s_event_contains_no_secret(folder: Path) -> None:
    token = "7hq2kd83nf4t"
    for kind, base in BASES.items():
        settings = {
            "type": kind,
            **base,
            "routing_key": token,
            "uri": f"http://u:{token}@h/?t={token}",
            "time-out": token,
        }
        with outputs() as found:
            events = drive(settings, "ReporterStatusChangeEvent")
        assert "unknown key" in events
        assert token not in events + found.getvalue()


MAIL = {"from": "a@b.example", "to": "c@d.example"}
#: Settings of each type that send the token to a real library; {} is an address, <> the token.
SENT = [
    ("webhook", {"url": "http://user:<>@{}/hooks/<>?token=<>", "headers": "X-Key: <>; Authorization: Basic <>"}),
    ("webhook", {"url": "http://{}/<>", "format": "pagerduty", "routing-key": "<>", "signature.secret": "<>"}),
    ("webhook", {"url": "https://<>@{}/", "proxy": "http://ada:<>@{}"}),
    ("webhook", {"url": "http://{}/", "tls.ca": "<>", "tls.certificate": "<>"}),
    ("heartbeat", {"url": "http://ada:<>@{}/ping/<>?key=<>"}),
    ("otlp", {"endpoint": "http://{}/<>", "protocol": "http/protobuf", "headers": "api-key=<>"}),
    ("otlp", {"endpoint": "http://{}", "headers": "authorization=Bearer%20<>"}),
    ("otlp-traces", {"endpoint": "http://{}/<>", "headers": "api-key=<>"}),
    ("openlineage", {"url": "http://{}/<>/api", "api-key": "<>"}),
    ("database", {"url": "postgresql://<>:<>@{}/<>?application_name=<>", "timeout": "2s"}),
    ("database", {"url": "postgresql://{}/x?password=<>&passfile=<>", "timeout": "2s"}),
    ("database", {"url": "sqlite:////no/such/folder/x.db?key=<>"}),
    ("kafka", {"bootstrap.servers": "{}", "topic": "<>", "properties": "sasl.jaas.config=x password='<>'"}),
    ("kafka", {"bootstrap.servers": "{}", "topic": "<>", "properties": "acks=<>; debug=<>"}),
    (
        "kafka",
        {
            "bootstrap.servers": "user:<>@{}",
            "topic": "<>",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "<>",
            "sasl.password": "<>",
        },
    ),
    ("email", {"host": "127.0.0.1", "port": NOBODY.rpartition(":")[2], "username": "<>", "password": "<>", **MAIL}),
    ("email", {"host": "<>", "tls": "none", "tls.ca": "<>", **MAIL}),
    ("file", {"path": "/no/such/folder/events.jsonl", "scope.variables.additional": "k:<>"}),
]


@pytest.mark.parametrize("is_refused", [False, True], ids=["unreachable", "refused"])
@pytest.mark.parametrize(("kind", "settings"), SENT, ids=[f"{number}-{kind}" for number, (kind, _) in enumerate(SENT)])
def test_no_error_of_a_library_contains_a_secret(
    kind: str, settings: dict[str, str], is_refused: bool, folder: Path, echo: str
) -> None:
    """Neither the output of ``send-test``, nor the log, nor the event that goes to other reporters."""
    where = echo if is_refused else NOBODY[7:]
    token = "7hq2kd83nf4t-9xv"
    given = {"type": kind, **{key: value.replace("{}", where).replace("<>", token) for key, value in settings.items()}}
    with outputs() as found:
        command("send-test", given, folder, "--timeout", "3s")
    assert "peer" in found.getvalue()
    with outputs() as log:
        breaking = {"circuit-breaker.failures": "1", "retry.initial": "10ms", "timeout": "3s", **given}
        # A refused event opens no circuit breaker; spans and alerts do not begin with the start of an application.
        sends_nothing = kind in ("otlp-traces", "email") or "format" in settings
        events = drive(breaking, "JobStatusChange" if is_refused or sends_nothing else "ReporterStatusChange")
    for form in forms_of(token):
        assert form not in found.getvalue(), found.getvalue()
        assert form not in log.getvalue(), log.getvalue()
        assert form not in events
