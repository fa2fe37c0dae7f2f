"""Start, call, kill and reap the process of one reporter; this code runs in the sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future, InvalidStateError

import msgspec

from spark_events.dispatch.process import messages
from spark_events.dispatch.process.messages import Answer, Done, Failed, LogLine, Request
from spark_events.errors import ReporterProcessError

# Start a new interpreter, because a fork would copy locks that the sidecar's threads hold. Set the import path first;
# otherwise a file such as json.py in the working directory could be imported.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[3:];"
    " from spark_events.dispatch.process.program import main; main(int(sys.argv[2]))"
)
#: Time limit for reading the last answers of a dead process, in seconds.
_DRAIN_SECONDS = 1.0
#: Errors to ignore when killing a process group: the group is empty, or its last process runs as another user.
_OUT_OF_REACH = (ProcessLookupError, PermissionError)


class Child:
    """One process of a reporter, from its start to its exit.

    The kernel kills the process when the thread that created the process ends. Therefore create the process in a thread
    that outlives it.

    Args:
        name: the reporter's name, which ``ps`` also shows.

    Raises:
        OSError: when the process cannot be started.
        RuntimeError: when the system cannot start another thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: Future[Done | Failed] | None = None
        self._exited: Future[str] = Future()
        # Shield the future: cancelling this wait must not cancel the future.
        self._exited.set_running_or_notify_cancel()
        self._reaped = False
        self._why = ""
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._socket.setblocking(False)
            command = [sys.executable, "-c", _PROGRAM, name, str(os.getpid()), *sys.path]
            try:
                # Create a session, so that killing its process group includes the reporter's own subprocesses.
                self._process = subprocess.Popen(
                    command, stdin=theirs.fileno(), stdout=subprocess.PIPE, bufsize=0, start_new_session=True
                )
            except BaseException:
                self._socket.close()
                raise
        self.pid = self._process.pid
        reader = threading.Thread(target=self._listen, name=f"spark-events-{name}-answers", daemon=True)
        keeper = threading.Thread(target=self._keep, args=[reader], name=f"spark-events-{name}-keeper", daemon=True)
        try:
            # The reader thread ends with the process, even if the keeper thread cannot start.
            reader.start()
            keeper.start()
        except RuntimeError:
            # Without the keeper thread, no thread would reap the process, so kill it here.
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            self._socket.close()
            raise

    async def ask(self, request: Request) -> Done:
        """Send a request and wait for its answer.

        After a cancelled call, the state of the process is unknown.

        Raises:
            PermanentError: when the reporter raised a PermanentError.
            ThrottledError: when the reporter raised a ThrottledError.
            ReporterProcessError: when the reporter raised another error, or the process has died.
        """
        awaited: Future[Done | Failed] = Future()
        with self._lock:
            if self._exited.done():
                raise ReporterProcessError(self._exited.result())
            self._waiting = awaited
        # A broken pipe means that the process is dying; the keeper thread will answer with the reason.
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self._socket, messages.encode(request))
        answer = await asyncio.wrap_future(awaited)
        if isinstance(answer, Failed):
            raise messages.verdict(answer)
        return answer

    @property
    def is_gone(self) -> bool:
        """Whether the process has died and been reaped."""
        return self._exited.done()

    def kill(self, why: str = "") -> None:
        """Kill the process and its process group, without waiting for their exit.

        Args:
            why: string to append to the reported cause of death.
        """
        with self._lock:
            if not self._reaped:
                self._why = self._why or why
                with contextlib.suppress(*_OUT_OF_REACH):
                    os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process and close its socket; no further requests are possible."""
        self.kill()
        # Close the socket here and not in the keeper thread, because the event loop may still watch the file
        # descriptor.
        self._socket.close()

    async def exited(self) -> None:
        """Wait until the process has died and been reaped."""
        await asyncio.wrap_future(self._exited)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            while (data := messages.read(self._process.stdout.fileno(), messages.MOST_ANSWER_BYTES)) is not None:
                answer: Answer = messages.ANSWERS.decode(data)
                if isinstance(answer, LogLine):
                    logger = logging.getLogger(answer.logger)
                    # Apply no log level here; the reporter's process has already applied its own levels.
                    logger.handle(logger.makeRecord(logger.name, answer.level, "", 0, answer.text, (), None))
                else:
                    self._settle(answer)
        except (msgspec.MsgspecError, ValueError, OSError) as error:
            self.kill(f", because its answer is invalid: {error}")

    def _settle(self, answer: Done | Failed) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            # The future is already done if the waiting call was cancelled.
            with contextlib.suppress(InvalidStateError):
                waiting.set_result(answer)

    def _keep(self, reader: threading.Thread) -> None:
        # Kill the group before reaping the process. Until then, the system cannot reuse the process id, which is also
        # the id of the group.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            with contextlib.suppress(*_OUT_OF_REACH):
                os.killpg(self.pid, signal.SIGKILL)
            code = self._process.wait()
            self._reaped = True
        # Limit the time for the last answers: a subprocess outside the group may keep the pipe open.
        reader.join(_DRAIN_SECONDS)
        death = f"its process {_how(code)}{self._why}"
        with self._lock:
            self._exited.set_result(death)
        self._settle(Failed("transient", death))
        if self._process.stdout is not None and not reader.is_alive():
            self._process.stdout.close()


def _how(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"
