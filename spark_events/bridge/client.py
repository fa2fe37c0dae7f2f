"""A client of Spark Connect: of all that happens on the server it is told what becomes of its own streaming queries.

It makes the same records as the shim, out of what PySpark's ``StreamingQueryListener`` is given.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from typing import Any

import msgspec

from spark_events.bridge.answers import Answers
from spark_events.bridge.records import PROTOCOL

__all__ = ["ClientBridge"]

#: How long it may take to take the listener out.
_REMOVE_SECONDS = 5.0


class ClientRecords:
    """Lines that are made here; as many are kept as are not read yet."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._woken = False
        self._count = 0
        self._is_over = False

    @property
    def closed(self) -> bool:
        """Never, before its goodbye: no process stands behind it that could die alone."""
        return False

    def read(self, timeout: float | None = None) -> list[bytes]:
        """The lines that there are, after ``timeout`` seconds at most; none when it passed, or was woken."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._woken, timeout)
            self._woken = False
            lines = list(self._lines)
            self._lines.clear()
            return lines

    def wake(self) -> None:
        """Lets :meth:`read` return at once."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def say(self, kind: str, **fields: Any) -> None:
        """A line that is no record."""
        with self._changed:
            self._put({"kind": kind, **fields})

    def tell(self, kind: str, **fields: Any) -> None:
        """A record. Behind the goodbye, nothing is told."""
        with self._changed:
            if not self._is_over:
                self._count += 1
                self._put({"seq": self._count, "kind": kind, "at": time.time_ns() // 1_000_000, **fields})

    def goodbye(self, seconds: float) -> None:
        """The last line."""
        with self._changed:
            if not self._is_over:
                self._is_over = True
                self._put({"kind": "goodbye", "within_ms": int(seconds * 1000)})

    def _put(self, line: dict[str, Any]) -> None:
        self._lines.append(msgspec.json.encode(line))
        self._changed.notify()


class ClientBridge:
    """The way from a client's session to a conversation.

    Args:
        spark: the session, of PySpark 4.0 or newer: before that, listeners run on the server.
        settings: by key.
        origin: where they were given, for messages.
        patience: seconds that the last events have at the end.

    Attributes:
        records: what it tells.
        answers: go nowhere: nobody waits for them here.
    """

    def __init__(self, spark: Any, settings: dict[str, str], origin: str, patience: float) -> None:
        self._spark = spark
        self._patience = patience
        self.records = ClientRecords()
        self.answers = Answers(lambda _: None)
        told = [{"key": key, "value": value, "origin": origin} for key, value in settings.items()]
        application = spark.conf.get("spark.app.name", "")
        self.records.say("hello", protocol=PROTOCOL, settings=told, application=application)
        self._restore("application_start", **self._application())
        for query in spark.streams.active:
            self._restore("query_started", id=str(query.id), run_id=str(query.runId), name=query.name, timestamp="")
        self._listener: Any = None

    def _application(self) -> dict[str, Any]:
        spark = self._spark
        return {
            "app_id": spark.conf.get("spark.app.id", None),
            "app_name": spark.conf.get("spark.app.name", ""),
            "attempt_id": None,
            "user": "",
            "time": 0,
            "spark_version": spark.version,
        }

    def _restore(self, kind: str, **fields: Any) -> None:
        self.records.say("restored", record={"seq": 0, "kind": kind, "at": 0, **fields})

    def listen(self) -> None:
        """From now on, what happens to this client's queries is told."""
        self._listener = _listener(self.records)
        self._spark.streams.addListener(self._listener)

    def is_driver_gone(self) -> bool:
        """Nobody can say that of a server."""
        return False

    def stop(self) -> None:
        """Nothing more is listened to; what has happened up to now is still told."""
        try:
            if self._listener is not None:
                self._stop_listening()
        finally:
            self.records.goodbye(self._patience)

    def _stop_listening(self) -> None:
        removing = threading.Thread(target=self._remove_listener, name="spark-events-remove-listener", daemon=True)
        # No thread is started any more where the interpreter is about to end.
        with contextlib.suppress(RuntimeError):
            removing.start()
            removing.join(_REMOVE_SECONDS)
            if removing.is_alive():
                self._part_deadlocked()
                removing.join(_REMOVE_SECONDS)

    def _remove_listener(self) -> None:
        # The session may be gone, and with it all of its listeners.
        with contextlib.suppress(Exception):
            self._spark.streams.removeListener(self._listener)

    def _part_deadlocked(self) -> None:
        """Lets PySpark's thread for events end, without whose end no interpreter ends.

        Where an event comes while the last listener is removed, whoever removes it waits for that thread, and keeps a
        lock meanwhile that the thread waits for (SPARK-59623).
        """
        with contextlib.suppress(AttributeError, RuntimeError):
            listeners = self._spark.streams._sqlb
            # Where there are others, nobody waits for that thread: it is in one of them, and has the lock itself.
            if listeners._listener_bus == [self._listener]:
                listeners._lock.release()

    def end(self) -> None:
        """The conversation is over: there is nothing to let go of."""

    def give_up(self) -> None:
        """It cannot begin: as at its end."""

    def release(self) -> None:
        """No thread has anything of its own here."""


def _listener(records: ClientRecords) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        """Makes records of what it is told."""

        def onQueryStarted(self, event: Any) -> None:
            records.tell("query_started", **_run(event), name=event.name, timestamp=event.timestamp)

        def onQueryProgress(self, event: Any) -> None:
            records.tell("query_progress", progress=json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:
            records.tell("query_idle", **_run(event), timestamp=event.timestamp)

        def onQueryTerminated(self, event: Any) -> None:
            records.tell(
                "query_terminated", **_run(event), exception=event.exception, error_class=event.errorClassOnException
            )

    return Listener()


def _run(event: Any) -> dict[str, str]:
    return {"id": str(event.id), "run_id": str(event.runId)}
