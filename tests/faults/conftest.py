"""Fixtures of the fault tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from missing import missing


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Mount a file system whose size is ``DISK_BYTES`` of the test module. Mounting requires root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = request.module.DISK_BYTES
    mounted = shutil.which("mount") and os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=False, capture_output=True
    ).returncode == 0  # fmt: skip
    if not mounted:
        missing("cannot mount a small file system; run as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def freezing_disk(tmp_path: Path) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """Mount an ext4 file system. Return the path, and a function that freezes (``-f``) or thaws (``-u``) the mount.

    Writes to a frozen file system hang.
    """
    folder, image = tmp_path / "disk", tmp_path / "image"
    folder.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 16 << 20)

    def does(*command: str) -> bool:
        has_it = shutil.which(command[0]) is not None and os.geteuid() == 0
        return has_it and subprocess.run(command, check=False, capture_output=True).returncode == 0

    def freeze(how: str) -> None:
        subprocess.run(["fsfreeze", how, str(folder)], check=True)

    mounted = does("mkfs.ext4", "-q", str(image)) and does("mount", "-o", "loop", str(image), str(folder))
    if not mounted or shutil.which("fsfreeze") is None:
        missing("a file system that can be frozen cannot be mounted here")
    try:
        yield folder, freeze
    finally:
        does("fsfreeze", "-u", str(folder))
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
