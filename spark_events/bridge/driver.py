"""Access through py4j to the shim in the JVM that this Python process drives.

Python fetches the records. If the JVM called Python instead, the call would run on a listener's thread and make
Spark wait for this interpreter.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any

from spark_events.bridge.acknowledgements import Answers

#: Maximum duration of a fetch, and therefore the maximum delay until this process notices its own changes.
_FETCH_SECONDS = 0.2
#: Time limit for sending the last answers.
_LAST_ANSWERS_SECONDS = 1.0


class DriverRecords:
    """Lines fetched from the JVM.

    Args:
        shim: the JVM's ``io.sparkevents.InProcess``.
    """

    def __init__(self, shim: Any) -> None:
        self._shim = shim
        self.closed = False
        #: The error that ended fetching; None after a regular end.
        self.failure: BaseException | None = None

    def read(self, timeout: float | None = None) -> list[bytes]:
        """Return the available lines, waiting up to ``timeout`` seconds; none after a timeout."""
        patience = _FETCH_SECONDS if timeout is None else min(timeout, _FETCH_SECONDS)
        try:
            fetched = self._shim.fetch(int(patience * 1000))
        except Exception as error:
            # py4j raises many types of errors, when the JVM has exited or is broken; fetching ends in either case.
            self.closed, self.failure = True, error
            return []
        if fetched is None:
            self.closed = True
            return []
        lines: list[bytes] = bytes(fetched).split(b"\n")
        return lines[:-1]

    def wake(self) -> None:
        """Do nothing: a fetch is short."""


class DriverAnswers(Answers):
    """Sends lines to the JVM from a thread of its own, so that senders never wait for the JVM.

    Args:
        shim: the JVM's ``io.sparkevents.InProcess``.
    """

    def __init__(self, shim: Any) -> None:
        super().__init__(self._put)
        self._shim = shim
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="spark-events-answers", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Send the remaining lines, within ``timeout`` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _put(self, line: bytes) -> None:
        with self._changed:
            self._lines.append(line)
            self._changed.notify()

    def _run(self) -> None:
        # If the JVM has exited, its answers are not needed; the thread that fetches records reports the exit.
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
    """Both directions between the shim and this process.

    Args:
        shim: the ``io.sparkevents.InProcess`` opened for this process.

    Attributes:
        records: lines from the shim.
        answers: lines to the shim.
    """

    def __init__(self, shim: Any) -> None:
        self._shim = shim
        self.records = DriverRecords(shim)
        self.answers = DriverAnswers(shim)
        self.answers.start()

    def listen(self) -> None:
        """Start to record the events of Spark."""
        self._shim.listen()

    def is_driver_gone(self) -> bool:
        """Return whether fetching ended because the JVM no longer answers."""
        from py4j.protocol import Py4JNetworkError

        return isinstance(self.records.failure, (Py4JNetworkError, OSError))

    def stop(self) -> None:
        """Stop listening; records made until now are still delivered."""
        self._shim.stop()

    def end(self) -> None:
        """End the driver session. Call this on the thread that ran the session."""
        self.give_up()
        self.release()

    def give_up(self) -> None:
        """Abandon a driver session that cannot begin; keep the calling thread's connection, which is the user's."""
        self.answers.close(_LAST_ANSWERS_SECONDS)
        # If the JVM has exited, it need not be notified.
        with contextlib.suppress(Exception):
            self._shim.end()

    def release(self) -> None:
        """Close py4j's connection of the calling thread."""
        release_connection(self._shim)


def release_connection(java_object: Any) -> None:
    """Close py4j's connection of this thread, and with it the thread that serves it in the JVM.

    If PySpark pins threads, py4j opens a connection per Python thread and closes none before the interpreter exits. Our
    threads end earlier.

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
    # A broken connection needs no closing.
    with contextlib.suppress(Exception):
        connection.close()
