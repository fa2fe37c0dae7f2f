"""Stacks of Python functions that Spark calls in the driver, such as the function passed to ``foreachBatch``.

The shim can read only the threads of the JVM, and the sidecar does not attach to another process. Therefore the
driver's Python serves its stacks on a Unix socket, in a folder that only its user can open. The sidecar requests the
stacks when a query is overdue. Python can answer only if it can acquire the interpreter lock. A function that holds
this lock, for example in a long call to a C extension, prevents the answer.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import msgspec

from spark_events.records.types import Inspection, PythonFrame

#: PySpark's functions through which the JVM calls Python, for foreachBatch, foreach, and Python listeners.
_CALLED_BY_JVM = ("pyspark/sql/utils.py", "call")
_DEEPEST = 50
_MOST_STACKS = 20
_TIMEOUT_SECONDS = 0.5
_MOST_BYTES = 1 << 20


def stacks() -> list[list[PythonFrame]]:
    """Return the stack of each Python function that the JVM is calling in this process, innermost frame first."""
    found = [_frames(frame) for frame in sys._current_frames().values()]
    return [frames for frames in found if frames][:_MOST_STACKS]


def _frames(frame: FrameType | None) -> list[PythonFrame]:
    """Return the frames called by PySpark's callback; empty for a thread without one."""
    frames: list[PythonFrame] = []
    while frame is not None:
        code = frame.f_code
        if code.co_name == _CALLED_BY_JVM[1] and code.co_filename.replace(os.sep, "/").endswith(_CALLED_BY_JVM[0]):
            return frames
        if len(frames) < _DEEPEST:
            frames.append(PythonFrame(code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return []


def _address(pid: int) -> Path:
    return Path(tempfile.gettempdir()) / f"spark-events-{os.getuid()}" / f"python-{pid}.sock"


def _is_private(folder: Path) -> bool:
    about = folder.lstat()
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o077


def serve() -> None:
    """Serve :func:`stacks` on a daemon thread; do nothing on systems without Unix sockets."""
    if not hasattr(socket, "AF_UNIX"):
        return
    path = _address(os.getpid())
    # Ignore the error: without the socket, events lack only the line in the Python function.
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(path.parent):
            return
        path.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen(4)
        atexit.register(_remove, path, os.getpid())
        threading.Thread(target=_answer, args=(server,), name="python-stacks", daemon=True).start()


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:
        path.unlink(missing_ok=True)


def _answer(server: socket.socket, pause: Callable[[float], None] = time.sleep) -> None:
    while True:
        try:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(_TIMEOUT_SECONDS)
                connection.sendall(msgspec.json.encode(stacks()))
        except OSError:
            # The sidecar did not wait for the answer, or this process has too many open files. Pause, because the next
            # attempt would fail at once in the second case.
            pause(_TIMEOUT_SECONDS)


def amend(record: Inspection, of: Callable[[], list[list[PythonFrame]]]) -> Inspection:
    """Add Python stacks to the queries that are waiting for a Python function.

    Args:
        record: the inspection record of the shim.
        of: returns the stacks; called only if a query waits for a Python function.
    """
    if not any(query.is_in_python for query in record.queries):
        return record
    found = of()
    queries = [
        msgspec.structs.replace(query, python=found) if query.is_in_python else query for query in record.queries
    ]
    return msgspec.structs.replace(record, queries=queries)


def ask(pid: int) -> list[list[PythonFrame]]:
    """Request the stacks of another process; return an empty list if it does not answer within 0.5 s."""
    path = _address(pid)
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        if not _is_private(path.parent):
            return []
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_TIMEOUT_SECONDS)
            client.connect(str(path))
            text = b""
            while len(text) < _MOST_BYTES and (more := client.recv(1 << 16)):
                text += more
        return msgspec.json.decode(text, type=list[list[PythonFrame]])
    return []
