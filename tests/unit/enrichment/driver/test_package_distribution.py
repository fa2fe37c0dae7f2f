"""Tests of the package archive for executors, which needs only pyarrow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spark_events.enrichment.driver import package_distribution as shipping
from spark_events.enrichment.driver.package_distribution import archive


def test_the_archive_has_only_the_package_s_sources() -> None:
    """The archive contains only the package's sources and works on a Python path like any zip file."""
    names = zipfile.ZipFile(archive()).namelist()
    assert {f"spark_events/enrichment/worker/{name}.py" for name in ("map_in_arrow", "task", "partition")} <= set(names)
    assert all(name.startswith("spark_events/") and name.endswith(".py") for name in names)
    assert archive() == archive()


def test_the_engine_imports_from_the_archive_alone() -> None:
    """The engine can be imported from the archive without site-packages, and therefore without msgspec and tenacity."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import spark_events.enrichment.engine.engine as engine\n"
        "print(engine.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", program, str(archive())], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(archive()))


def test_the_archive_does_not_depend_on_the_installation_time(tmp_path: Path) -> None:
    """Two installations build the same archive, because a Connect session rejects a changed file of the same name."""
    package = Path(shipping.__file__).parents[2]
    one, another = tmp_path / "one", tmp_path / "another"
    for copy in (one, another):
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("*.jar", "__pycache__"))
    for file in another.rglob("*.py"):
        os.utime(file, (1, 1))
    content = shipping._zipped(package)
    assert shipping._zipped(one) == shipping._zipped(another) == content
    assert shipping._digest(content) in archive().name
    (another / "_version.py").write_text('__version__ = "another"\n', "utf-8")
    assert shipping._digest(shipping._zipped(another)) not in archive().name


def test_an_incomplete_archive_is_never_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full, the incomplete archive is not shipped. The next query writes the archive again."""
    monkeypatch.setattr(shipping, "_archive", None)
    monkeypatch.setattr(shipping, "_folder", None)
    write = Path.write_bytes

    def half(path: Path, content: bytes) -> int:
        write(path, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", half)
        with pytest.raises(OSError, match="No space"):
            archive()
    assert zipfile.ZipFile(archive()).testzip() is None
    folder = shipping._folder
    assert folder is not None
    folder.cleanup()
