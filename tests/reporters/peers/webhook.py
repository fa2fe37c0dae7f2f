"""A receiver of webhooks: a real HTTP server on loopback, with TLS if it is to have it, that answers as it is told."""

from __future__ import annotations

import dataclasses
import json
import ssl
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fakes import PATIENCE

__all__ = ["Answer", "Receiver", "Request"]


@dataclasses.dataclass(frozen=True)
class Request:
    """One request as it came; ``fields`` are its headers, those that came twice as well."""

    path: str
    headers: dict[str, str]
    body: bytes
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclasses.dataclass(frozen=True)
class Answer:
    """What is answered: a status, a text and headers; or nothing at all (``hang``), or a connection cut (``cut``).

    With ``more`` the text is announced as longer than it is; what is missing never comes (with ``hang``), or instead of
    it the connection is cut (with ``cut``).
    """

    status: int = 200
    text: str = "ok"
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    hang: bool = False
    cut: bool = False
    more: int = 0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A port that was just closed is used again.
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is what some tests are about."""


class Receiver:
    """Answers each request by ``decide``, or by the next step of a script, else with 200. A context manager.

    Args:
        script: answers to the first requests.
        decide: what is answered, by what was asked.
        context: for TLS.
    """

    def __init__(
        self,
        script: Iterable[Answer] = (),
        *,
        decide: Callable[[Request], Answer] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._script = list(script)
        self._decide = decide
        self._context = context
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._going = threading.Event()
        self.requests: list[Request] = []
        self.taken: list[Request] = []
        self.connections = 0
        self.lost = threading.Event()
        self.port = 0

    def __enter__(self) -> Receiver:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"{'http' if self._context is None else 'https'}://localhost:{self.port}/hook?token=t0psecret"

    def start(self) -> None:
        """Listens; after a stop, on the same port again."""
        self._going.clear()
        self._server = _Server(("127.0.0.1", self.port), self._handler())
        self.port = self._server.server_address[1]
        if self._context is not None:
            self._server.socket = self._context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listens no more; what hangs is let go."""
        self._going.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(PATIENCE)
            self._server = None

    def bodies(self) -> list[Any]:
        """The JSON of the requests that were answered with 2xx."""
        return [request.json for request in self.taken]

    def _answer(self, request: Request) -> Answer:
        self.requests.append(request)
        if self._script:
            return self._script.pop(0)
        return Answer() if self._decide is None else self._decide(request)

    def _handler(receiver) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Headers and text in one piece.
            wbufsize = -1

            def setup(self) -> None:
                receiver.connections += 1
                super().setup()

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                if len(body) < length:
                    # Who sent it was killed: it is no request.
                    self.close_connection = True
                    return
                request = Request(self.path, dict(self.headers), body, tuple(self.headers.items()))
                answer = receiver._answer(request)
                if receiver._going.is_set():
                    # A stopped receiver takes nothing, on connections that are still there either.
                    self.close_connection = True
                    return
                if answer.more:
                    self.say(answer, request)
                if answer.hang:
                    self.connection.settimeout(PATIENCE)
                    if not self.connection.recv(1):
                        receiver.lost.set()
                    self.close_connection = True
                    return
                if answer.cut:
                    self.close_connection = True
                    return
                self.say(answer, request)

            def say(self, answer: Answer, request: Request) -> None:
                if 200 <= answer.status < 300:
                    receiver.taken.append(request)
                data = answer.text.encode()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data) + answer.more))
                self.end_headers()
                self.wfile.write(data)
                self.wfile.flush()

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        return Handler
