"""Accessibility of the documentation site, on every page."""

from __future__ import annotations

import functools
import http.server
import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from fakes import ROOT

_PARTS = 8


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Build and serve the site; return its folder and its address."""
    tmp_path = tmp_path_factory.mktemp("site")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "-q",
        "-f",
        ROOT / "mkdocs.yml",
        "-d",
        tmp_path,
    ]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    handler = functools.partial(_Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield tmp_path, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("part", range(_PARTS))
def test_axe_finds_nothing_on_any_page(browser: Any, site: tuple[Path, str], part: int) -> None:
    """The pages are shown in the light and the dark theme by turns, because the check of one takes a second."""
    folder, address = site
    pages = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))[part::_PARTS]
    assert len(pages) > 5
    axe, found = Axe(), []
    contexts = [browser.new_context(color_scheme=scheme) for scheme in ("light", "dark")]
    shown = [context.new_page() for context in contexts]
    for page, path in zip(itertools.cycle(shown), pages):
        page.goto(f"{address}/{path}")
        for one in axe.run(page).response["violations"]:
            found += [(path, one["id"], node["html"][:200]) for node in one["nodes"]]
    for context in contexts:
        context.close()
    assert found == []
