"""Takes this package to executors that do not have it: once for each Spark application, or Connect session."""

from __future__ import annotations

import hashlib
import io
import tempfile
import threading
import weakref
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_events._version import __version__
from spark_events.enrichment.driver.micro_batch import is_connect, is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["archive", "ship"]

_PACKAGE = Path(__file__).parents[2]
_lock = threading.Lock()
#: To whom it has been shipped. Weakly held: a session that is stopped is nobody's any more.
_shipped: weakref.WeakSet[Any] = weakref.WeakSet()
_folder: tempfile.TemporaryDirectory[str] | None = None
_archive: Path | None = None


def ship(df: DataFrame) -> None:
    """Before the enrichment of a DataFrame is planned, for the plan says which files a worker needs.

    The version that the driver runs wins over one that the executors have.
    """
    if not _PACKAGE.is_dir():
        return  # this driver itself has it from an archive, which --py-files took to the executors as well
    session = df.sparkSession
    if is_connect(df):
        with _lock:
            if session not in _shipped:
                session.addArtifacts(str(archive()), pyfile=True)
                _shipped.add(session)
        return
    if is_local(df):
        return  # the workers are this machine's, with this environment
    context = session.sparkContext
    with _lock:
        if context not in _shipped:
            context.addPyFile(str(archive()))
            _shipped.add(context)


def archive() -> Path:
    """This package's Python files, as one zip; made once a process.

    Other files have another name: in a Connect session its client and the Python that the server starts for
    foreachBatch both ship theirs, and Spark refuses a name that has other content already.
    """
    global _folder, _archive  # noqa: PLW0603
    if _archive is None or not _archive.exists():
        content = _zipped(_PACKAGE)
        if _folder is None or not Path(_folder.name).is_dir():
            _folder = tempfile.TemporaryDirectory(prefix="spark-events-")
        made = Path(_folder.name) / f"spark_events-{__version__}-{_digest(content)}.zip"
        made.write_bytes(content)
        # Not before: a disk that is full now must not have half of it shipped later.
        _archive = made
    return _archive


def _zipped(package: Path) -> bytes:
    """Of the same files the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        _add(made, package, "spark_events")
    return content.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=4).hexdigest()


def _add(made: zipfile.ZipFile, folder: Path, name: str) -> None:
    for file in sorted(folder.rglob("*.py")):
        # Without its time: it says when it was installed.
        entry = zipfile.ZipInfo(f"{name}/{file.relative_to(folder).as_posix()}")
        made.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
