"""Shared fixtures of the fault tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of the module's ``DISK_BYTES``; needs root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = request.module.DISK_BYTES
    mounted = shutil.which("mount") and os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=False, capture_output=True
    ).returncode == 0  # fmt: skip
    if not mounted:
        pytest.skip("cannot mount a small file system; run as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
