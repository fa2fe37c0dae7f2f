"""Tests of the documentation's pictures. ``make browser`` downloads Chromium."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from missing import missing

from website import screenshots


def size_of(picture: Path) -> tuple[int, int]:
    """Return the width and height of a PNG."""
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height


def test_pictures_of_page_and_terminal(tmp_path: Path) -> None:
    """The picture of the page has the requested size. More lines make the picture of the terminal taller."""
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        missing("no Chromium: run `make browser`")
    day = tmp_path / "day.jsonl"
    screenshots.generated_day(day)
    with screenshots.browser() as chromium:
        screenshots.page_picture(chromium, day, tmp_path / "page.png", 620)
        screenshots.page_picture(chromium, day, tmp_path / "narrow.png", 0, width=360, scheme="dark")
        for lines in (3, 20):
            words = ["tail", "-n", "30", day.name]
            screenshots.terminal_picture(chromium, words, tmp_path, tmp_path / f"{lines}.png", lines)
    assert size_of(tmp_path / "page.png") == (1200, 620)
    width, height = size_of(tmp_path / "narrow.png")
    assert width == 360  # a wider page would have a horizontal scroll bar
    assert height > 2_000
    assert size_of(tmp_path / "20.png")[1] > 2 * size_of(tmp_path / "3.png")[1]
