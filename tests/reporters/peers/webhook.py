"""HTTP server on the loopback interface that receives webhooks, with scripted answers and optional TLS."""

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
    """Received request. ``fields`` contains all headers, including repeated headers."""

    path: str
    headers: dict[str, str]
    body: bytes
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclasses.dataclass(frozen=True)
class Answer:
    """Answer of the receiver: status, body and headers, no answer (``hang``), or a closed connection (``cut``).

    With ``more``, Content-Length announces additional bytes. With ``hang`` these bytes never arrive; with ``cut`` the
    receiver closes the connection instead.
    """

    status: int = 200
    text: str = "ok"
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    hang: bool = False
    cut: bool = False
    more: int = 0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Allow a restart on the same port.
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors caused by clients that disconnect, because some tests close connections."""


class Receiver:
    """Receiver that answers with the result of ``decide``, or with the next step of ``script``, or with 200.

    Args:
        script: answers to the first requests.
        decide: returns the answer to a request.
        context: TLS context.
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
        """Start listening; after a stop, listen on the same port again."""
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
        """Stop listening and release hanging requests."""
        self._going.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(PATIENCE)
            self._server = None

    def bodies(self) -> list[Any]:
        """Return the JSON bodies of the requests that were answered with 2xx."""
        return [request.json for request in self.taken]

    def _answer(self, request: Request) -> Answer:
        self.requests.append(request)
        if self._script:
            return self._script.pop(0)
        return Answer() if self._decide is None else self._decide(request)

    def _handler(receiver) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Use a buffer, so that headers and body are sent in one packet.
            wbufsize = -1

            def setup(self) -> None:
                receiver.connections += 1
                super().setup()

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                if len(body) < length:
                    # Do not count this request, because the client was killed while it sent the request.
                    self.close_connection = True
                    return
                request = Request(self.path, dict(self.headers), body, tuple(self.headers.items()))
                answer = receiver._answer(request)
                if receiver._going.is_set():
                    # A stopped receiver must not answer on existing connections.
                    self.close_connection = True
                    return
                if answer.more:
                    self.respond(answer, request)
                if answer.hang:
                    self.connection.settimeout(PATIENCE)
                    if not self.connection.recv(1):
                        receiver.lost.set()
                    self.close_connection = True
                    return
                if answer.cut:
                    self.close_connection = True
                    return
                self.respond(answer, request)

            def respond(self, answer: Answer, request: Request) -> None:
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
                """Suppress the access log."""

        return Handler
