"""Render the pictures of the documentation: ``make screenshots``.

The report shows sample events of the tests (``tests/report/stories.py``). The terminal shows real jobs (``make demo``).
The script writes the site's pictures to build/screenshots, and README.md's pictures to docs/images.
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from spark_events.event import encode_lines

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT / "tests"))
_COLUMNS = 118
_CLI = "import sys; from spark_events.cli import main; sys.exit(main())"
_TERMINAL = """<pre id="terminal" style="display: inline-block; margin: 0; padding: 16px 20px; background: #1e2430;
color: #d8dee9; font: 13px/1.45 'DejaVu Sans Mono', monospace">$ {command}
{output}</pre>"""


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Open Chromium, which ``make browser`` installs."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


def generated_day(target: Path) -> None:
    """Write the sample events of one day, the last of which are new."""
    from report.stories import busy_day

    # Queries of the story commit although one is overdue.
    events = [event for event in busy_day().events if event.name != "DeadlineStatusChangeEvent"]
    later = time.time_ns() // 1_000_000 - max(event.observed_ts_millis for event in events)
    moved = [
        msgspec.structs.replace(
            event,
            observed_ts_millis=event.observed_ts_millis + later,
            attributes={
                key: value + later if key.endswith("_millis") and isinstance(value, int) else value
                for key, value in event.attributes.items()
            },
        )
        for event in events
    ]
    target.write_bytes(encode_lines(moved))


def page_picture(
    chromium: Any, events: Path, target: Path, height: int, *, width: int = 1200, scheme: str = "light"
) -> None:
    """Take a screenshot of the report's page. The height 0 means the whole page."""
    page = events.with_suffix(".html")
    command = [sys.executable, "-c", _CLI, "report", events.name, "--sla", "60s", "--html", page.name]
    subprocess.run(command, cwd=events.parent, check=True, stdout=subprocess.DEVNULL)
    shown = chromium.new_page(viewport={"width": width, "height": height or 800}, color_scheme=scheme)
    shown.goto(page.as_uri())
    shown.screenshot(path=target, full_page=not height)
    shown.close()
    # A palette makes the file three times smaller.
    Image.open(target).convert("RGB").quantize(256).save(target, optimize=True)


def terminal_picture(
    chromium: Any, words: list[str], folder: Path, target: Path, lines: int, scale: float = 1.5
) -> None:
    """Take a screenshot of a terminal with the first lines that a ``spark-events`` command prints."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(_COLUMNS), "TERM": "xterm-256color", "TZ": "UTC"}
    command = [sys.executable, "-c", _CLI, *words]
    with subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=subprocess.DEVNULL, env=environment):
        os.close(theirs)
        output = b""
        with contextlib.suppress(OSError):  # EIO means that the command has ended
            while some := os.read(ours, 65_536):
                output += some
    os.close(ours)
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), legacy_windows=False)
    for line in output.decode().splitlines()[:lines]:
        console.print(Text.from_ansi(line), soft_wrap=True)
    html = console.export_html(inline_styles=True, theme=MONOKAI, code_format="{code}")
    shown = chromium.new_page(viewport={"width": 1280, "height": 720}, device_scale_factor=scale)
    shown.set_content(_TERMINAL.format(command=" ".join(["spark-events", *words]), output=html))
    shown.locator("#terminal").screenshot(path=target)
    shown.close()


def main() -> int:
    """Create all pictures."""
    target = _ROOT / "build" / "screenshots"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, browser() as chromium:
        folder = Path(scratch)
        shutil.copytree(_ROOT / "examples", folder / "jobs")  # events contain the path of a job
        demo = [sys.executable, str(folder / "jobs" / "run_demo.py"), "--dir", str(folder / "demo")]
        subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
        shutil.copy(folder / "demo" / "events.jsonl", folder / "events.jsonl")
        generated_day(folder / "day.jsonl")
        page_picture(chromium, folder / "day.jsonl", target / "report.png", 1_000)
        page_picture(chromium, folder / "day.jsonl", target / "report-dark.png", 1_000, scheme="dark")
        page_picture(chromium, folder / "day.jsonl", target / "report-narrow.png", 0, width=360)
        page_picture(chromium, folder / "day.jsonl", _ROOT / "docs" / "images" / "report.png", 960)
        terminal_picture(chromium, ["tail", "--min-severity", "info", "events.jsonl"], folder, target / "tail.png", 60)
        terminal_picture(chromium, ["report", "day.jsonl", "--sla", "60s"], folder, target / "report-terminal.png", 45)
        subprocess.run([*demo[:3], str(folder / "logs"), "--logs"], check=True, stdout=subprocess.DEVNULL)
        shutil.copytree(folder / "logs" / "event-logs", folder / "spark-logs")
        terminal_picture(
            chromium, ["report", "spark-logs"], folder, _ROOT / "docs" / "images" / "event-logs.png", 20, scale=1.0
        )
        conf = folder / "spark-defaults.conf"
        shutil.copy(folder / "demo" / "conf" / "spark-defaults.conf", conf)
        terminal_picture(chromium, ["check", "--conf", conf.name], folder, target / "check.png", 30)
    print(f"wrote the pictures of the site to {target}, and README's to docs/images")
    return 0


if __name__ == "__main__":
    sys.exit(main())
