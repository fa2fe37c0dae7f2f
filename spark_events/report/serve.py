"""Serve the page on the loopback interface, and recompute the report on request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from spark_events.errors import SparkEventsError
from spark_events.report.model import EventReport
from spark_events.report.page import data_of, page_of

_HOST = "127.0.0.1"
#: Interval at which the page requests new data, and minimum age of a report before it is recomputed, in seconds.
REFRESH_SECONDS = 10
_FRESH_SECONDS = 3.0


class ReportServer(ThreadingHTTPServer):
    """HTTP server of one report.

    Args:
        compute: computes the report.
        port: TCP port on 127.0.0.1; 0: any.
        clock: seconds of a monotonic clock.
    """

    daemon_threads = True

    def __init__(
        self, compute: Callable[[], EventReport], port: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__((_HOST, port), _Handler)
        self._compute = compute
        self._clock = clock
        self._lock = threading.Lock()
        self._report: EventReport | None = None
        self._valid_until = 0.0

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{_HOST}:{self.server_port}/"

    def report(self) -> EventReport:
        """Return the report; recompute it if it is older than the minimum age.

        Raises:
            SparkEventsError: the sources cannot be read now.
        """
        with self._lock:
            if self._report is None or self._clock() >= self._valid_until:
                began = self._clock()
                self._report = self._compute()
                # Keep a report at least as long as its computation took, so that the server computes for at most half
                # of the time.
                self._valid_until = self._clock() + max(_FRESH_SECONDS, self._clock() - began)
            return self._report


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer

    def do_GET(self) -> None:
        # Reject other host names, because a web page could resolve its own name to this address (DNS rebinding).
        if self.headers.get("Host", "").partition(":")[0] not in (_HOST, "localhost"):
            self._answer(403, "text/plain", "only 127.0.0.1 and localhost are served")
        elif self.path not in ("/", "/data.json"):
            self._answer(404, "text/plain", "not found")
        else:
            try:
                report = self.server.report()
            except SparkEventsError as error:
                self._answer(503, "text/plain", str(error))
                return
            if self.path == "/":
                self._answer(200, "text/html", page_of(report, REFRESH_SECONDS))
            else:
                self._answer(200, "application/json", data_of(report))

    def _answer(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Discard the log line of a request."""


def serve(compute: Callable[[], EventReport], port: int, announce: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C.

    Raises:
        SparkEventsError: the port is in use, or the first report cannot be computed.
    """
    try:
        server = ReportServer(compute, port)
    except OSError as error:
        raise SparkEventsError(f"cannot listen on {_HOST}:{port}: {error.strerror}; choose another --port") from None
    with server:
        server.report()
        announce(f"{server.url} (stop with Ctrl-C)")
        server.serve_forever()
