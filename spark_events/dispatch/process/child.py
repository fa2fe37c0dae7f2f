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

from spark_events.dispatch.process import messages
from spark_events.dispatch.process.messages import Done, Failed, LogLine, Request
from spark_events.errors import ReporterProcessError

# Start a new interpreter, because a fork would copy locks that the sidecar's threads hold. Set the import path first;
# otherwise a file such as json.py in the working directory could be imported.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[3:];"
    " from spark_events.dispatch.process.program import main; main(int(sys.argv[2]))"
)
#: Errors to ignore when killing a process group: the group is empty, or its last process runs as another user.
_OUT_OF_REACH = (ProcessLookupError, PermissionError)


class Child:
    """One process of a reporter, from its start to its exit.

    The kernel kills the process when the thread that created the process ends. Therefore create the process in the
    thread of the event loop that calls it.

    Args:
        name: the reporter's name, which ``ps`` also shows.

    Raises:
        OSError: when the process cannot be started.
    """

    def __init__(self, name: str) -> None:
        self._waiting: asyncio.Future[Done | Failed] | None = None
        self._why = ""
        self._death = ""
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._socket.setblocking(False)
            command = [sys.executable, "-c", _PROGRAM, name, str(os.getpid()), *sys.path]
            try:
                # Create a session, so that killing its process group includes the reporter's own subprocesses.
                self._process = subprocess.Popen(
                    command, stdin=theirs.fileno(), stdout=theirs.fileno(), start_new_session=True
                )
            except BaseException:
                self._socket.close()
                raise
        self.pid = self._process.pid
        self._life = asyncio.ensure_future(self._live())

    async def ask(self, request: Request) -> Done:
        """Send a request and wait for its answer.

        After a cancelled call, the state of the process is unknown.

        Raises:
            PermanentError: when the reporter raised a PermanentError.
            ThrottledError: when the reporter raised a ThrottledError.
            ReporterProcessError: when the reporter raised another error, or the process has died.
        """
        if self.is_gone:
            raise ReporterProcessError(self._death)
        loop = asyncio.get_running_loop()
        awaited: asyncio.Future[Done | Failed] = loop.create_future()
        self._waiting = awaited
        # A broken pipe means that the process is dying; its end is the answer.
        with contextlib.suppress(OSError):
            await loop.sock_sendall(self._socket, messages.encode(request))
        answer = await awaited
        if isinstance(answer, Failed):
            raise messages.verdict(answer)
        return answer

    @property
    def is_gone(self) -> bool:
        """Whether the process has died and been reaped."""
        return self._life.done()

    def kill(self, why: str = "") -> None:
        """Kill the process and its process group, without waiting for their exit.

        Args:
            why: string to append to the reported cause of death.
        """
        if not self.is_gone:
            self._why = self._why or why
            self._kill_group()
            # End the wait for answers, because a subprocess outside the group may keep the other end open.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Kill the process and close its socket; no further requests are possible."""
        self.kill()
        self._life.add_done_callback(lambda _: self._socket.close())

    async def exited(self) -> None:
        """Wait until the process has died and been reaped."""
        await asyncio.wait([self._life])

    async def _live(self) -> None:
        """Receive answers and log lines until the process ends, then reap it."""
        try:
            while True:
                answer = messages.ANSWERS.decode(await self._receive_message())
                if isinstance(answer, LogLine):
                    logger = logging.getLogger(answer.logger)
                    # Apply no log level here; the reporter's process has already applied its own levels.
                    logger.handle(logger.makeRecord(logger.name, answer.level, "", 0, answer.text, (), None))
                    # sock_recv does not yield while data is available; endless lines would block the event loop.
                    await asyncio.sleep(0)
                else:
                    self._settle(answer)
        except (EOFError, OSError):
            # The process has ended.
            pass
        except ValueError as error:
            self._why = self._why or f", because its answer is invalid: {error}"
        finally:
            # Kill the group before reaping the process. Until then, the system cannot reuse the process id, which is
            # also the id of the group.
            self._kill_group()
            self._death = f"its process {_how(self._process.wait())}{self._why}"
            self._settle(Failed("transient", self._death))

    async def _receive_message(self) -> bytes:
        length = int.from_bytes(await self._receive(messages.LENGTH_BYTES), "big")
        if length > messages.MOST_ANSWER_BYTES:
            raise ValueError(f"message of {length:,} bytes exceeds the limit of {messages.MOST_ANSWER_BYTES:,} bytes")
        return await self._receive(length)

    async def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = await asyncio.get_running_loop().sock_recv(self._socket, count - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return data

    def _settle(self, answer: Done | Failed) -> None:
        # The future is already done if the waiting call was cancelled.
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)

    def _kill_group(self) -> None:
        with contextlib.suppress(*_OUT_OF_REACH):
            os.killpg(self.pid, signal.SIGKILL)


def _how(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"
