"""Serve pages on the loopback interface, and recompute the reports on request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode

from spark_events.errors import SparkEventsError
from spark_events.report.page import data_of, page_of
from spark_events.report.report_model import EventReport

_HOST = "127.0.0.1"
_REPORT = "/application"
#: Interval at which the page requests new data, and minimum age of a report before it is recomputed, in seconds.
REFRESH_SECONDS = 10
_FRESH_SECONDS = 3.0


class PageServer(ThreadingHTTPServer):
    """HTTP server of pages on 127.0.0.1.

    Args:
        port: TCP port; 0: any.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__((_HOST, port), _Handler)

    @property
    def url(self) -> str:
        """Address of the first page."""
        return f"http://{_HOST}:{self.server_port}/"

    def answer(self, path: str) -> tuple[str, str] | None:
        """Return media type and text of a page; None if there is no such page.

        Raises:
            SparkEventsError: the sources cannot be read now.
        """
        raise NotImplementedError


class FleetServer(PageServer):
    """HTTP server of the overview of a fleet, and of the report on each of its applications.

    Args:
        overview: computes the page of the overview, whose links are those of :func:`link_to`.
        application: computes the page of an application's report, by the application's name.
        port: TCP port on 127.0.0.1; 0: any.
    """

    def __init__(self, overview: Callable[[], str], application: Callable[[str], str], port: int) -> None:
        super().__init__(port)
        self._overview = overview
        self._application = application
        # Compute one page after another, because each may need all cores.
        self._lock = threading.Lock()

    def answer(self, path: str) -> tuple[str, str] | None:
        """Compute a page: the overview, or a report."""
        place, _, query = path.partition("?")
        names = parse_qs(query).get("name", [])
        with self._lock:
            if path == "/":
                return "text/html", self._overview()
            return ("text/html", self._application(names[0])) if place == _REPORT and names else None


def link_to(name: str) -> str:
    """Return the link from the overview to an application's report.

    >>> link_to("etl & co")
    '/application?name=etl+%26+co'
    """
    return f"{_REPORT}?{urlencode({'name': name})}"


class ReportServer(PageServer):
    """HTTP server of one report.

    Args:
        compute: computes the report.
        port: TCP port on 127.0.0.1; 0: any.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self, compute: Callable[[], EventReport], port: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(port)
        self._compute = compute
        self._clock = clock
        self._lock = threading.Lock()
        self._report: EventReport | None = None
        self._valid_until = 0.0

    def answer(self, path: str) -> tuple[str, str] | None:
        """Return the page, or its data."""
        if path == "/":
            return "text/html", page_of(self.report(), REFRESH_SECONDS)
        return ("application/json", data_of(self.report())) if path == "/data.json" else None

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
    server: PageServer

    def do_GET(self) -> None:
        # Reject other host names, because a web page could resolve its own name to this address (DNS rebinding).
        if self.headers.get("Host", "").partition(":")[0] not in (_HOST, "localhost"):
            self._answer(403, "text/plain", "only 127.0.0.1 and localhost are served")
            return
        try:
            found = self.server.answer(self.path)
        except SparkEventsError as error:
            self._answer(503, "text/plain", str(error))
            return
        self._answer(*((404, "text/plain", "not found") if found is None else (200, *found)))

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


def serve(open_server: Callable[[], PageServer], port: int, announce: Callable[[str], None]) -> None:
    """Serve pages until Ctrl-C.

    Raises:
        SparkEventsError: the port is in use, or the first page cannot be computed.
    """
    try:
        server = open_server()
    except OSError as error:
        raise SparkEventsError(f"cannot listen on {_HOST}:{port}: {error.strerror}; choose another --port") from None
    with server:
        server.answer("/")
        announce(f"{server.url} (stop with Ctrl-C)")
        server.serve_forever()
