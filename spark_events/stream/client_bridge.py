"""Records of a Spark Connect client, which receives events only for its own streaming queries.

The records have the shim's format. Their source is PySpark's ``StreamingQueryListener``.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from typing import Any

import msgspec

from spark_events.records.types import PROTOCOL
from spark_events.sidecar.acknowledgements import MessageWriter

#: Time limit for removing the listener, in seconds.
_REMOVE_SECONDS = 5.0


class ClientRecords:
    """Unbounded queue of lines that this process creates.

    Attributes:
        closed: always False, because no other process could close the queue.
    """

    closed = False

    def __init__(self) -> None:
        # An empty line only wakes the reader.
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        # The numbers of the queued records must ascend, although several threads enqueue records.
        self._lock = threading.Lock()
        self._count = 0
        self._is_over = False

    def read(self, timeout: float | None = None) -> list[bytes]:
        """Return the queued lines; wait up to ``timeout`` seconds for a line.

        The result is empty after a timeout or :meth:`wake`.
        """
        lines = []
        with contextlib.suppress(queue.Empty):
            lines.append(self._lines.get(timeout=timeout))
            while True:
                lines.append(self._lines.get_nowait())
        return [line for line in lines if line]

    def wake(self) -> None:
        """Make :meth:`read` return immediately."""
        self._lines.put(b"")

    def send(self, kind: str, **fields: Any) -> None:
        """Enqueue a line that is not a record."""
        self._lines.put(msgspec.json.encode({"kind": kind, **fields}))

    def record(self, kind: str, **fields: Any) -> None:
        """Enqueue a record; ignore a record after the goodbye message."""
        with self._lock:
            if not self._is_over:
                self._count += 1
                self.send(kind, seq=self._count, at=time.time_ns() // 1_000_000, **fields)

    def goodbye(self, seconds: float) -> None:
        """Enqueue the goodbye message, which is the last line."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                self.send("goodbye", within_ms=int(seconds * 1000))


class ClientBridge:
    """Connection of a Spark Connect session to a driver session.

    Args:
        spark: the session, from PySpark 4.0 or newer; in older versions, listeners run on the server.
        settings: the settings by key.
        origin: the place where the settings were specified, for messages.
        patience: time limit for the delivery of the last events, in seconds.
        removal: time limit for the removal of the listener, in seconds; afterwards, a deadlock is assumed and broken.

    Attributes:
        records: the records of the session.
        messages: discarded because no driver waits for messages.
    """

    def __init__(
        self,
        spark: Any,
        settings: dict[str, str],
        origin: str,
        patience: float,
        removal: float = _REMOVE_SECONDS,
    ) -> None:
        self._spark = spark
        self._patience = patience
        self._removal = removal
        self.records = ClientRecords()
        self.messages = MessageWriter(lambda _: None)
        # Disable heartbeats: they would stop when the client exits, although the application continues on the server.
        given = [
            {"key": key, "value": value, "origin": origin}
            for key, value in settings.items()
            if key != "events.heartbeat.interval"
        ]
        application = spark.conf.get("spark.app.name", "")
        self.records.send("hello", protocol=PROTOCOL, settings=given, application=application)
        self._restore(
            "application_start",
            app_id=spark.conf.get("spark.app.id", None),
            app_name=application,
            attempt_id=None,
            user="",
            time=0,
            spark_version=spark.version,
        )
        for query in spark.streams.active:
            self._restore("query_started", id=str(query.id), run_id=str(query.runId), name=query.name, timestamp="")
        self._listener: Any = None

    def _restore(self, kind: str, **fields: Any) -> None:
        self.records.send("restored", record={"seq": 0, "kind": kind, "at": 0, **fields})

    def listen(self) -> None:
        """Start recording the events of this client's queries."""
        self._listener = _listener(self.records)
        self._spark.streams.addListener(self._listener)

    def is_driver_gone(self) -> bool:
        """Return False: a client cannot determine whether the server is running."""
        return False

    def stop(self) -> None:
        """Remove the listener; records that already exist are still delivered."""
        try:
            if self._listener is not None:
                self._stop_listening()
        finally:
            self.records.goodbye(self._patience)

    def _stop_listening(self) -> None:
        removing = threading.Thread(target=self._remove_listener, name="spark-events-remove-listener", daemon=True)
        # Ignore the error: no thread can be started while the interpreter shuts down.
        with contextlib.suppress(RuntimeError):
            removing.start()
            removing.join(self._removal)
            if removing.is_alive():
                self._break_deadlock()
                removing.join(self._removal)

    def _remove_listener(self) -> None:
        # Ignore errors: the session and its listeners may already be gone.
        with contextlib.suppress(Exception):
            self._spark.streams.removeListener(self._listener)

    def _break_deadlock(self) -> None:
        """Break a deadlock of PySpark's event thread that would keep Python from exiting.

        The deadlock occurs if an event arrives while the last listener is being removed. The removing thread holds a
        lock and waits for the event thread, which needs the same lock (SPARK-59623).
        """
        with contextlib.suppress(AttributeError, RuntimeError):
            listeners = self._spark.streams._sqlb
            # With further listeners, no deadlock is possible, and the event thread may hold the lock, so do not release
            # it.
            if listeners._listener_bus == [self._listener]:
                listeners._lock.release()

    def end(self) -> None:
        """Do nothing: a client holds no resources after the driver session."""

    def abandon(self) -> None:
        """Do nothing: a driver session that cannot begin holds no resources."""

    def release(self) -> None:
        """Do nothing: a thread of a client holds no resources."""


def _listener(records: ClientRecords) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        """Listener that converts PySpark's events to records."""

        def onQueryStarted(self, event: Any) -> None:
            records.record("query_started", **_run(event), name=event.name, timestamp=event.timestamp)

        def onQueryProgress(self, event: Any) -> None:
            records.record("query_progress", progress=json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:
            records.record("query_idle", **_run(event), timestamp=event.timestamp)

        def onQueryTerminated(self, event: Any) -> None:
            records.record(
                "query_terminated", **_run(event), exception=event.exception, error_class=event.errorClassOnException
            )

    return Listener()


def _run(event: Any) -> dict[str, str]:
    return {"id": str(event.id), "run_id": str(event.runId)}
