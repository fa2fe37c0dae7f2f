"""A reporter's process as the sidecar sees it: started, asked, killed, and never left behind as a zombie."""

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
from spark_events.dispatch.process.messages import Done, Failed, Request, Said
from spark_events.errors import ReporterProcessError

__all__ = ["Child"]

# A fresh interpreter and not a fork: the sidecar has threads, and a fork would copy the locks they hold.
# Before its path is the sidecar's it imports nothing: a file json.py in the driver's folder is not meant for us.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[3:];"
    " from spark_events.dispatch.process.program import main; main(int(sys.argv[2]))"
)
#: How long the last answers of a process that is dead already may take.
_DRAIN_SECONDS = 1.0
#: Nobody is left in its group; or one that has become another user's, and is out of reach.
_OUT_OF_REACH = (ProcessLookupError, PermissionError)


class Child:
    """One process, from its start to its death. To be started in the thread that is to outlive it.

    Args:
        name: the reporter's name; it stands in the list of processes, too.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: Future[Done | Failed] | None = None
        self._gone: Future[str] = Future()
        # Whoever stops waiting for the end does not stop the end.
        self._gone.set_running_or_notify_cancel()
        self._reaped = False
        self._why = ""
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._socket.setblocking(False)
            command = [sys.executable, "-c", _PROGRAM, name, str(os.getpid()), *sys.path]
            try:
                # A session of its own, so that what the reporter starts can be ended together with it.
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
            # The reader ends with the process, whatever happens to the keeper.
            reader.start()
            keeper.start()
        except RuntimeError:
            # No thread left to look after it.
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            self._socket.close()
            raise

    async def ask(self, request: Request) -> Done:
        """Sends a request and waits until it is done. Cancelled, it leaves the process in an unknown state.

        Raises:
            PermanentError: the reporter's verdict.
            ThrottledError: the reporter's verdict.
            ReporterProcessError: the reporter raised something else, or the process has died.
        """
        awaited: Future[Done | Failed] = Future()
        with self._lock:
            if self._gone.done():
                raise ReporterProcessError(self._gone.result())
            self._waiting = awaited
        # A pipe that is broken means that the process dies: why, the keeper will say.
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self._socket, messages.encode(request))
        answer = await asyncio.wrap_future(awaited)
        if isinstance(answer, Failed):
            raise messages.verdict(answer)
        return answer

    @property
    def is_gone(self) -> bool:
        """Whether it has died and was reaped."""
        return self._gone.done()

    def kill(self, why: str = "") -> None:
        """Ends it, and whatever it has started; returns at once. ``why`` is added to what its death is called."""
        with self._lock:
            if not self._reaped:
                self._why = self._why or why
                with contextlib.suppress(*_OUT_OF_REACH):
                    os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends it for good; nothing can be asked any more."""
        self.kill()
        # Here and not where its death is noticed: a loop must not lose a descriptor that it may be watching.
        self._socket.close()

    async def gone(self) -> None:
        """Waits until it has died and was reaped."""
        await asyncio.wrap_future(self._gone)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        decode = messages.answers_of()
        try:
            while (data := messages.read(self._process.stdout.fileno(), messages.MOST_ANSWER_BYTES)) is not None:
                answer = decode(data)
                if isinstance(answer, Said):
                    logger = logging.getLogger(answer.logger)
                    # What it is to say has been decided where it was said.
                    logger.handle(logger.makeRecord(logger.name, answer.level, "", 0, answer.text, (), None))
                else:
                    self._settle(answer)
        except (msgspec.MsgspecError, ValueError, OSError) as error:
            self.kill(f", for it answered what cannot be understood: {error}")

    def _settle(self, answer: Done | Failed) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            # Whoever was waiting may have been cancelled.
            with contextlib.suppress(InvalidStateError):
                waiting.set_result(answer)

    def _keep(self, reader: threading.Thread) -> None:
        # Seen dead before it is reaped: until then its number, which is its group's, belongs to nobody else.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            with contextlib.suppress(*_OUT_OF_REACH):
                os.killpg(self.pid, signal.SIGKILL)
            code = self._process.wait()
            self._reaped = True
        # Its last words count; a grandchild that has left the group may keep the pipe open.
        reader.join(_DRAIN_SECONDS)
        death = f"its process {_how(code)}{self._why}"
        with self._lock:
            self._gone.set_result(death)
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
