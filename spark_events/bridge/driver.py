"""The shim in the JVM that this very Python drives, by way of py4j.

Records are fetched, never delivered: a call from the JVM into Python would run on a listener's thread and make Spark
wait for this interpreter.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any

from spark_events.bridge.answers import Answers

__all__ = ["DriverBridge"]

#: How long the JVM may keep a fetch waiting: so late, at most, does this side notice what has changed on it.
_FETCH_SECONDS = 0.2
#: How long the last answers may take.
_LAST_ANSWERS_SECONDS = 1.0


class DriverRecords:
    """Lines that are fetched from the JVM.

    Args:
        shim: its ``io.sparkevents.inprocess.InProcess``.
    """

    def __init__(self, shim: Any) -> None:
        self._shim = shim
        self.closed = False
        #: Why nothing can be fetched any more, where that was not the end.
        self.failure: BaseException | None = None

    def read(self, timeout: float | None = None) -> list[bytes]:
        """The lines that there are, after ``timeout`` seconds at most; none when it passed."""
        patience = _FETCH_SECONDS if timeout is None else min(timeout, _FETCH_SECONDS)
        try:
            fetched = self._shim.fetch(int(patience * 1000))
        except Exception as error:
            # py4j's errors say that the JVM has gone, or that something in it is broken; either way it is over.
            self.closed, self.failure = True, error
            return []
        if fetched is None:
            self.closed = True
            return []
        lines: list[bytes] = bytes(fetched).split(b"\n")
        return lines[:-1]

    def wake(self) -> None:
        """A fetch is short: nothing need be done."""


class DriverAnswers(Answers):
    """Lines to the JVM, sent by one thread, so that whoever answers never waits for the JVM.

    Args:
        shim: its ``io.sparkevents.inprocess.InProcess``.
    """

    def __init__(self, shim: Any) -> None:
        super().__init__(self._put)
        self._shim = shim
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="spark-events-answers", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Sends what is left, in ``timeout`` seconds at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _put(self, line: bytes) -> None:
        with self._changed:
            self._lines.append(line)
            self._changed.notify()

    def _run(self) -> None:
        # A JVM that is gone needs no answers; that it is gone, whoever fetches notices.
        with contextlib.suppress(Exception):
            while lines := self._next():
                self._shim.answer(lines)
        release_connection(self._shim)

    def _next(self) -> bytes:
        with self._changed:
            while not self._lines and not self._closing:
                self._changed.wait()
            lines = b"".join(self._lines)
            self._lines.clear()
            return lines


class DriverBridge:
    """Both ways between the shim and this process.

    Args:
        shim: the ``io.sparkevents.inprocess.InProcess`` that was opened for it.

    Attributes:
        records: what it tells.
        answers: what it is told.
    """

    def __init__(self, shim: Any) -> None:
        self._shim = shim
        self.records = DriverRecords(shim)
        self.answers = DriverAnswers(shim)
        self.answers.start()

    def listen(self) -> None:
        """From now on, what happens in Spark is told."""
        self._shim.listen()

    def is_driver_gone(self) -> bool:
        """Whether nothing can be fetched any more because there is no JVM that would answer."""
        from py4j.protocol import Py4JNetworkError

        return isinstance(self.records.failure, (Py4JNetworkError, OSError))

    def stop(self) -> None:
        """Nothing more is listened to; what has happened up to now is still told."""
        self._shim.stop()

    def end(self) -> None:
        """The conversation is over. On the thread that led it."""
        self.give_up()
        self.release()

    def give_up(self) -> None:
        """The conversation cannot begin; the calling thread, which is the user's, keeps what py4j has for it."""
        self.answers.close(_LAST_ANSWERS_SECONDS)
        # A JVM that is gone waits for nobody.
        with contextlib.suppress(Exception):
            self._shim.end()

    def release(self) -> None:
        """Lets go of what py4j keeps for the calling thread."""
        release_connection(self._shim)


def release_connection(java_object: Any) -> None:
    """Closes what py4j keeps open for this thread, and with it the thread that serves it in the JVM.

    Where PySpark pins threads, py4j opens a connection for each Python thread, and closes none before the interpreter's
    end; a thread of ours is over earlier.

    Args:
        java_object: any object of that JVM.
    """
    client = java_object._gateway_client
    of_thread = getattr(client, "get_thread_connection", None)
    connection = None if of_thread is None else of_thread()
    if connection is None:
        return
    with contextlib.suppress(ValueError):
        client.deque.remove(connection)
    # One that is broken is as good as closed.
    with contextlib.suppress(Exception):
        connection.close()
