"""Exit status of the Python process that runs the driver's program, read by the sidecar.

The JVM cannot supply this status: a py4j gateway detects only the exit, and spark-submit forwards the exit code without
notifying listeners. The kernel reports the status through a pidfd, even to processes other than the parent. Since Linux
6.15, the status is available at any time (``PIDFD_GET_INFO``); in older versions, it is available only until the parent
has reaped the process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
from pathlib import Path

import msgspec

from spark_events.records.types import ApplicationEnd, ApplicationStart, Failure, Inspection
from spark_events.sidecar import python_exceptions, python_stacks
from spark_events.sidecar.pipeline_name import UNNAMED, pipeline_name

_PROC = Path("/proc")
#: Environment variables that show which process started the other: a plain ``python app.py`` sets the first for its
#: JVM; spark-submit sets the second for its Python.
_STARTED_BY_PYTHON, _STARTED_BY_JVM = "_PYSPARK_DRIVER_CONN_INFO_PATH", "PYSPARK_GATEWAY_PORT"
#: Time to wait for the exit status, in seconds. The JVM may notice the exit before the kernel reports the status.
_PATIENCE_SECONDS = 1.0
#: First version of ``struct pidfd_info`` in linux/pidfd.h: mask, cgroup, eleven ids, exit status.
_INFO = struct.Struct("=QQ11Ii")
_PIDFD_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3
#: Indexes of fields 4 and 52 of /proc/<pid>/stat, counted from the first field after the command.
_PARENT, _EXIT_STATUS = 1, 49
#: Signals that users and resource managers send to stop a process. Any other signal means a crash or a forced kill.
_REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_DEADLY = 128


class PythonProgram:
    """Python process of a driver; the sidecar opens the pidfd while the process is running.

    Args:
        pid: the process id.
        is_parent: whether the process started the JVM; otherwise the JVM started the process.
        pidfd: refers to the process, even after its exit.
    """

    def __init__(self, pid: int, is_parent: bool, pidfd: int) -> None:
        self._pid = pid
        self._is_parent = is_parent
        self._pidfd = pidfd
        path = _variable(pid, python_exceptions.VARIABLE)
        self._exception = None if path is None else Path(path)

    @classmethod
    def of(cls, driver: int) -> PythonProgram | None:
        """Find the Python process of a driver; None if no such process exists or it cannot be watched.

        Args:
            driver: the process id of the driver's JVM.
        """
        if not hasattr(os, "pidfd_open"):
            return None
        try:
            if _variable(driver, _STARTED_BY_PYTHON) is not None:
                pid = int(_stat(driver)[_PARENT])
                # Parent id 1 means that the parent has already exited, or that it is the container's first process.
                return None if pid == 1 else cls(pid, True, os.pidfd_open(pid))
            for entry in _PROC.iterdir():
                if entry.name.isdigit() and _is_program(int(entry.name), driver):
                    return cls(int(entry.name), False, os.pidfd_open(int(entry.name)))
        except OSError:
            # The process belongs to another user, the container lacks /proc, or the kernel is too old.
            return None
        return None

    def amend(
        self, record: ApplicationStart | ApplicationEnd | Inspection
    ) -> ApplicationStart | ApplicationEnd | Inspection:
        """Add data about the process to three kinds of records.

        The record of the application's start receives the name of the pipeline that the process runs, unless the
        application has a name of its own. An inspection record receives the process's Python stacks. The record of the
        application's end receives Python's exit status if Python's exit caused the end, and the exception that Python
        has recorded for `spark-events run`.
        """
        if isinstance(record, ApplicationStart):
            name = pipeline_name(self._pid) if self._is_parent and record.app_name in UNNAMED else None
            return record if name is None else msgspec.structs.replace(record, app_name=name, pipeline=name)
        if isinstance(record, Inspection):
            return python_stacks.amend(record, lambda: python_stacks.ask(self._pid))
        return self._with_exception(self._with_exit(record))

    def _with_exception(self, end: ApplicationEnd) -> ApplicationEnd:
        code = end.exit_code or end.program_exit_code
        if self._exception is None or end.failure is not None or code != python_exceptions.UNCAUGHT:
            return end
        try:
            failure = msgspec.json.decode(self._exception.read_bytes(), type=Failure)
        except (OSError, msgspec.MsgspecError):
            return end
        return msgspec.structs.replace(end, failure=failure)

    def _with_exit(self, end: ApplicationEnd) -> ApplicationEnd:
        if end.program_exit_code is not None or end.ending not in ("GATEWAY_CLOSED", "PYTHON_DIED", "PROGRAM_FAILED"):
            return end
        status = self._exit_status()
        if status is None:
            return end
        code = os.waitstatus_to_exitcode(status)
        if not self._is_parent:
            # If Python was killed, spark-submit exits with 128 plus the signal's number, as Java reports it.
            return msgspec.structs.replace(end, program_exit_code=code if code >= 0 else _DEADLY - code)
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            ending = name if -code in _REQUESTS else "PYTHON_DIED"
            return msgspec.structs.replace(end, ending=ending, exit_signal=name)
        ending = "PROGRAM_FAILED" if code else "GATEWAY_CLOSED"
        return msgspec.structs.replace(end, ending=ending, program_exit_code=code)

    def _exit_status(self) -> int | None:
        """Wait for the process to exit, and return its status in the format of ``waitpid``."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if not poll.poll(_PATIENCE_SECONDS * 1000):
            return None
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, *rest = _stat(self._pid)
            if state == "Z":
                return int(rest[_EXIT_STATUS - 1])
        import fcntl

        info = bytearray(_INFO.size)
        _INFO.pack_into(info, 0, _PIDFD_INFO_EXIT, *[0] * 13)
        try:
            fcntl.ioctl(self._pidfd, _PIDFD_GET_INFO, info)
        except OSError:
            return None
        mask, *_, status = _INFO.unpack(info)
        return int(status) if mask & _PIDFD_INFO_EXIT else None


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat after the command, which may contain spaces and parentheses."""
    return (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _variable(pid: int, name: str) -> str | None:
    """Return a variable that the process had at its start; None if it had none, or cannot be read."""
    with contextlib.suppress(OSError):
        for variable in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            key, _, value = os.fsdecode(variable).partition("=")
            if key == name:
                return value
    return None


def _is_program(pid: int, driver: int) -> bool:
    try:
        return int(_stat(pid)[_PARENT]) == driver and _variable(pid, _STARTED_BY_JVM) is not None
    except (OSError, IndexError):
        # Ignore the error: the process has already exited.
        return False
