"""Test of the example reporter in docs/reporters.md."""

from __future__ import annotations

import http.server
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import ROOT, FakeDriver, application_start, goodbye, query_started, query_terminated

_DOC = (ROOT / "docs" / "reporters.md").read_text()


@pytest.fixture
def received() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Run a server, and yield its URL and the bodies of the requests that it receives."""
    bodies: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", bodies
        server.shutdown()
        thread.join()


def test_the_documented_reporter_pages_on_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: tuple[str, list[dict[str, str]]]
) -> None:
    """In a real sidecar with the documented code and settings, the example reporter posts only errors."""
    url, bodies = received
    code = re.search(r"```python\n(# paging\.py\n.*?)```", _DOC, re.DOTALL)
    keys = dict(re.findall(r"^spark\.(events\.reporter\.page\.\w+)\s+(\S+)$", _DOC, re.MULTILINE))
    assert code is not None
    assert len([line for line in code[1].splitlines() if line.strip()]) <= 15
    (tmp_path / "paging.py").write_text(code[1])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = {**keys, "events.reporter.page.url": url}
    assert set(settings) == set(keys)
    with FakeDriver(tmp_path / "errors", settings) as driver:
        driver.await_answer("ready")
        driver.send_records(
            application_start(),
            query_started(),
            query_terminated(exception="java.lang.IllegalStateException: out of stock"),
        )
        driver.send(goodbye())
        assert driver.await_exit() == 0
    assert [body["text"] for body in bodies] == [
        "shop: query 'clicks' failed: java.lang.IllegalStateException: out of stock"
    ]


def test_the_documented_test_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: tuple[str, list[dict[str, str]]]
) -> None:
    code, test = (
        re.search(r"```python\n(# paging\.py\n.*?)```", _DOC, re.DOTALL),
        re.search(r"```python\n(from paging import .*?)```", _DOC, re.DOTALL),
    )
    assert code is not None
    assert test is not None
    (tmp_path / "paging.py").write_text(code[1])
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, Any] = {}
    try:
        exec(test[1], names)
        names["test_an_error_is_posted"](SimpleNamespace(url=received[0], bodies=received[1]))
    finally:
        sys.modules.pop("paging", None)
    assert len(received[1]) == 1
