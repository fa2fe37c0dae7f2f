"""Ship this package to executors on which it is missing, once per Spark application or Connect session."""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_events._version import __version__
from spark_events.enrichment.driver.micro_batch import is_connect, is_local
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PACKAGE = Path(__file__).parents[2]
#: Error of a worker that unpickles a task without this package.
_NOT_FOUND = "No module named 'spark_events'"
_lock = threading.Lock()
#: Applications and sessions that have received the package. The references are weak, so stopped sessions disappear.
_shipped: weakref.WeakSet[Any] = weakref.WeakSet()
_folder: tempfile.TemporaryDirectory[str] | None = None
_archive: Path | None = None


def ship(df: DataFrame) -> None:
    """Ship the package before Spark plans the enrichment, because the plan lists the files that a worker needs.

    The driver's version of the package overrides the version that is installed on the executors.
    """
    if not _PACKAGE.is_dir():
        return  # the driver imports the package from an archive that --py-files has also shipped to the executors
    session = df.sparkSession
    if is_connect(df):
        with _lock:
            if session not in _shipped:
                session.addArtifacts(str(archive()), pyfile=True)
                _shipped.add(session)
        return
    if is_local(df):
        return  # the workers run on this machine, usually in this environment (see :func:`explained`)
    context = session.sparkContext
    with _lock:
        if context not in _shipped:
            context.addPyFile(str(archive()))
            _shipped.add(context)


@contextlib.contextmanager
def explained(df: DataFrame) -> Iterator[None]:
    """Explain the failure of a job whose workers run a Python without this package.

    Raises:
        InvalidPlanError: when a worker cannot import the package.
    """
    try:
        yield
    except Exception as error:
        if _NOT_FOUND not in str(error) or is_connect(df):
            raise
        python = df.sparkSession.sparkContext.pythonExec
        raise InvalidPlanError(
            f"the tasks run {python!r}, which lacks spark_events; the driver runs {sys.executable}: activate the "
            "driver's environment, or set PYSPARK_PYTHON to a Python with pyarrow and the function's libraries"
        ) from error


def archive() -> Path:
    """Return the path of a zip of this package's Python files, built once per process.

    The name contains a digest of the content, because Spark rejects an existing name with different content. In a
    Connect session, both the client and the server's foreachBatch process ship their files.
    """
    global _folder, _archive  # noqa: PLW0603
    if _archive is None or not _archive.exists():
        content = _zipped(_PACKAGE)
        if _folder is None or not Path(_folder.name).is_dir():
            _folder = tempfile.TemporaryDirectory(prefix="spark-events-")
        made = Path(_folder.name) / f"spark_events-{__version__}-{_digest(content)}.zip"
        made.write_bytes(content)
        # Assign the path last, so that an incomplete file (for example after a full disk) is never shipped.
        _archive = made
    return _archive


def _zipped(package: Path) -> bytes:
    """Return the zip of the package; identical files produce identical bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        for file in sorted(package.rglob("*.py")):
            # Omit the file's modification time, because it depends on the installation.
            entry = zipfile.ZipInfo(f"spark_events/{file.relative_to(package).as_posix()}")
            made.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=4).hexdigest()
