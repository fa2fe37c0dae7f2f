"""Access to the shim through py4j, from the Python process that drives the JVM.

This process fetches the records. If the JVM called Python instead, the call would run on a listener's thread, and Spark
would wait for this interpreter.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from typing import Any

from spark_events.sidecar.acknowledgements import MessageWriter

_LOG = logging.getLogger(__name__)
#: Maximum duration of a fetch, in seconds. The driver session notices this process's changes by then.
_FETCH_SECONDS = 0.2
#: Time limit for sending the last messages, in seconds.
_LAST_MESSAGES_SECONDS = 1.0


class DriverRecords:
    """Source of lines that are fetched from the JVM.

    Args:
        shim: the JVM's ``io.sparkevents.InProcess``.
    """

    def __init__(self, shim: Any) -> None:
        self._shim = shim
        self.closed = False
        #: The error that ended fetching; None if the driver session ended normally.
        self.failure: BaseException | None = None

    def read(self, timeout: float | None = None) -> list[bytes]:
        """Return the available lines; wait up to ``timeout`` seconds for a line.

        The result is empty after a timeout.
        """
        patience = _FETCH_SECONDS if timeout is None else min(timeout, _FETCH_SECONDS)
        try:
            fetched = self._shim.fetch(int(patience * 1000))
        except Exception as error:
            # py4j raises many types of errors for an exited or broken JVM; each of them ends fetching.
            self.closed, self.failure = True, error
            if not means_exit(error):
                _LOG.exception("cannot fetch records from the driver; the event stream ends; report this defect")
            return []
        if fetched is None:
            self.closed = True
            return []
        lines: list[bytes] = bytes(fetched).split(b"\n")
        return lines[:-1]

    def wake(self) -> None:
        """Do nothing: every fetch ends within its short time limit."""


class DriverMessageWriter(MessageWriter):
    """Thread that sends lines to the JVM; all other threads only enqueue lines.

    Args:
        shim: the JVM's ``io.sparkevents.InProcess``.
    """

    def __init__(self, shim: Any) -> None:
        super().__init__(self._put)
        self._shim = shim
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="spark-events-messages", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Send the remaining lines within ``timeout`` seconds, and stop the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _put(self, line: bytes) -> None:
        with self._changed:
            self._lines.append(line)
            self._changed.notify()

    def _run(self) -> None:
        try:
            while lines := self._next():
                self._shim.answer(lines)
        except Exception as error:
            # If the JVM has exited, the messages are not needed, and the fetching thread reports the exit.
            if not means_exit(error):
                _LOG.exception(
                    "the driver rejected an answer; it receives no further acknowledgements, so its record queue"
                    " may become full; report this defect"
                )
        release_connection(self._shim)

    def _next(self) -> bytes:
        with self._changed:
            while not self._lines and not self._closing:
                self._changed.wait()
            lines = b"".join(self._lines)
            self._lines.clear()
            return lines


class DriverBridge:
    """Connection between the shim and this process, in both directions.

    Args:
        shim: the ``io.sparkevents.InProcess`` opened for this process.

    Attributes:
        records: lines from the shim.
        messages: sends lines to the shim.
    """

    def __init__(self, shim: Any) -> None:
        self._shim = shim
        self.records = DriverRecords(shim)
        self.messages = DriverMessageWriter(shim)
        self.messages.start()

    def listen(self) -> None:
        """Start recording Spark's events."""
        self._shim.listen()

    def is_driver_gone(self) -> bool:
        """Return whether fetching ended because the JVM no longer answers."""
        return means_exit(self.records.failure)

    def stop(self) -> None:
        """Stop listening; records that already exist are still delivered."""
        self._shim.stop()

    def end(self) -> None:
        """End the driver session; call this method on the thread that ran the session."""
        self.abandon()
        self.release()

    def abandon(self) -> None:
        """Abandon a driver session that cannot begin.

        Keep the calling thread's connection, because the user's code uses it.
        """
        self.messages.close(_LAST_MESSAGES_SECONDS)
        # Ignore the error: if the JVM has exited, the call is not needed.
        with contextlib.suppress(Exception):
            self._shim.end()

    def release(self) -> None:
        """Close py4j's connection of the calling thread."""
        release_connection(self._shim)


def means_exit(error: BaseException | None) -> bool:
    """Return whether py4j raises this error because the JVM no longer answers."""
    try:
        from py4j.protocol import Py4JNetworkError
    except ImportError:
        # A Connect client has no py4j.
        return isinstance(error, OSError)
    return isinstance(error, (Py4JNetworkError, OSError))


def release_connection(java_object: Any) -> None:
    """Close py4j's connection of this thread, which also ends the JVM's thread for this connection.

    If PySpark pins threads, py4j opens one connection per Python thread and closes it when the interpreter exits. The
    threads of this package end earlier.

    Args:
        java_object: any object of the JVM.
    """
    client = java_object._gateway_client
    of_thread = getattr(client, "get_thread_connection", None)
    connection = None if of_thread is None else of_thread()
    if connection is None:
        return
    with contextlib.suppress(ValueError):
        client.deque.remove(connection)
    # Ignore errors: a broken connection needs no closing.
    with contextlib.suppress(Exception):
        connection.close()
