"""Start an event stream in the Python process that drives the application."""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from spark_events.config import Setting, Settings
from spark_events.dispatch.pipeline_plan import read
from spark_events.errors import ConfigError, SessionError
from spark_events.records.types import ApplicationEnd, ApplicationStart, Inspection
from spark_events.sidecar import python_stacks
from spark_events.sidecar.driver_session import DriverSession, DriverSessionOptions
from spark_events.stream import exit_hooks
from spark_events.stream.client_bridge import ClientBridge
from spark_events.stream.configure import own_settings
from spark_events.stream.driver_bridge import DriverBridge
from spark_events.stream.event_history import EventHistory
from spark_events.stream.event_stream import EventStream
from spark_events.stream.reporter_arguments import Given, Reporters, given
from spark_events.stream.shim import driver_of, is_connect, session_of
from spark_events.stream.subscriptions import Subscription

_LOG = logging.getLogger(__name__)
#: Origin of a stream's settings, as shown in messages; the shim uses the same string.
_ORIGIN = "spark_events.start"
_HISTORY = "history"
#: First major version of Spark in which a Connect client receives the events of its own queries.
_FIRST_CONNECT = 4

_lock = threading.RLock()
_running: dict[str, EventStream] = {}
#: First sequence number for the next stream, by application.
_next_sequence: dict[str, int] = {}


def start(
    spark: Any | None = None,
    reporters: Reporters | None = None,
    *,
    dispatcher: str = "async-queued",
    settings: Mapping[str, Any] | None = None,
    history: int = 10_000,
    replace: bool | None = None,
) -> EventStream:
    """Start reporting the events of a Spark application inside this Python process.

    >>> events = spark_events.start(spark, reporters=["log"])                                      # doctest: +SKIP

    The stream uses the same pipeline as the sidecar. A thread of this process fetches the records from the JVM; the JVM
    never calls into Python. The stream can run alongside the sidecar or replace it (``configure(..., sidecar=False)``).
    The stream ends when the SparkContext or this Python ends, or on :meth:`EventStream.stop`.

    Args:
        spark: the session. None: the active session. A Spark Connect session reports only its own queries.
        reporters: as for :func:`spark_events.spark_conf`; may also contain reporter objects, such as a
            ``MemoryReporter()``. None: the reporters in the session's configuration, unless a sidecar serves these
            reporters.
        dispatcher: ``"async-queued"`` makes Spark wait only for ``guaranteed`` reporters; ``"sync"`` makes Spark wait
            for all reporters.
        settings: any other key of docs/configuration.md, with or without the prefix ``events.``.
        history: maximum number of events that are kept for :attr:`EventStream.history` and ``wait_for``.
        replace: how to treat a running stream of this application. True stops it and moves its callbacks to the new
            stream. False raises SessionError. None: True in interactive Python, where a cell may run twice, else False.

    Returns:
        The running stream.

    Raises:
        ConfigError: when arguments or settings are invalid; lists every problem.
        SessionError: when no session is active, the session was stopped or is ending, the driver lacks the jar, or a
            stream already runs and ``replace`` is False.
    """
    session = session_of(spark)
    found = given(() if reporters is None else reporters)
    values = _settings(found, dispatcher, settings)
    recorded = EventHistory(_size(history))
    own = {**found.own, _HISTORY: lambda: recorded}
    # Validate all arguments before stopping or starting a stream.
    plans = read(Settings(Setting(key, value, _ORIGIN) for key, value in values.items()), own)
    patience = plans.config.shutdown_timeout
    application = _application_of(session)
    with _lock:
        before = _make_room(application, _replaces() if replace is None else replace)
        bridge = _open(session, values, patience)
        try:
            options = DriverSessionOptions(
                own=own,
                choose=lambda given_settings: (
                    given_settings
                    if reporters is None and not _is_served(session, given_settings)
                    else _ours(given_settings)
                ),
                amend=_with_stacks,
                first_sequence=_next_sequence.get(application, 1),
                # An invalid argument raises an error. An invalid value in the application's configuration only disables
                # the affected reporter.
                strict=reporters is not None,
            )
            driver_session = DriverSession.open(
                bridge.records, bridge.messages, lambda _: bridge.is_driver_gone(), options
            )
            if driver_session is None:
                failure = getattr(bridge.records, "failure", None)
                raise SessionError("the driver ended, or did not answer, before the event stream started") from failure
            bridge.listen()
        except BaseException:
            bridge.abandon()
            raise
        stream = EventStream(driver_session, bridge, recorded, patience, _caller(), _replaces(), _forget)
        _running[application] = stream
        stream.begin()
    for subscription in before:
        stream.subscribe(subscription)
    return stream


def _with_stacks(
    record: ApplicationStart | ApplicationEnd | Inspection,
) -> ApplicationStart | ApplicationEnd | Inspection:
    return python_stacks.amend(record, python_stacks.stacks) if isinstance(record, Inspection) else record


def _size(history: object) -> int:
    if isinstance(history, bool) or not isinstance(history, int) or history < 1:
        raise ConfigError([f"history: given {history!r}, expected a whole number, 1 or more"])
    return history


def _settings(found: Given, dispatcher: str, settings: Mapping[str, Any] | None) -> dict[str, str]:
    problems: list[str] = []
    if _HISTORY in found.names:
        problems.append(
            f"reporters: given the name {_HISTORY!r}, which is reserved for the stream's history; choose another name"
        )
    arguments = ["dispatcher", "reporters"] if found.names else ["dispatcher"]
    values = {
        **found.settings,
        **own_settings(settings, arguments, problems),
        "events.dispatcher.type": str(dispatcher),
    }
    if problems:
        raise ConfigError(problems)
    return {**values, "events.reporters": ",".join(found.names)} if found.settings else values


def _open(session: Any, values: dict[str, str], patience: float) -> DriverBridge | ClientBridge:
    if is_connect(session):
        _LOG.warning(
            "spark_events: a Spark Connect client reports only its own streaming queries. For events of jobs, stages,"
            " other clients' queries and the application, add the settings of spark_events.spark_conf() to the server's"
            " configuration"
        )
        return ClientBridge(session, values, _ORIGIN, patience)
    context = driver_of(session)
    exit_hooks.install_for(session._jvm, patience)
    queries = [{"id": str(q.id), "run_id": str(q.runId), "name": q.name} for q in session.streams.active]
    request = json.dumps({"settings": values, "queries": queries})
    return DriverBridge(session._jvm.io.sparkevents.inprocess.InProcess.open(context, request))


def _application_of(session: Any) -> str:
    if is_connect(session):
        if int(session.version.partition(".")[0]) < _FIRST_CONNECT:
            raise SessionError(
                f"Spark Connect {session.version} runs its clients' listeners on the server, so this client receives "
                f"no events: use {_FIRST_CONNECT}.0 or newer, or configure the server with spark_events.spark_conf()"
            )
        return str(session.client._session_id)
    return str(driver_of(session).applicationId())


def _make_room(application: str, replaces: bool) -> list[Subscription]:
    """Stop the application's running stream and return its callbacks.

    Raises:
        SessionError: when a stream runs and ``replaces`` is False.
    """
    running = _running.get(application)
    if running is None or not running.is_running:
        return []
    if not replaces:
        raise SessionError(
            f"this application already has an event stream, started in {running.started_at}: use that stream,"
            " stop it with stop(), or call start(..., replace=True)"
        )
    subscriptions = running.subscriptions
    running.stop()
    return subscriptions


def _replaces() -> bool:
    """Return whether this Python is interactive; in an interactive session, code may run twice."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


def _is_served(session: Any, given_settings: list[Setting]) -> bool:
    """Return whether a sidecar runs the reporters in the application's configuration."""
    conf = session.sparkContext.getConf()
    listens = any("io.sparkevents." in (conf.get(key) or "") for key in ("spark.extraListeners", "spark.plugins"))
    off = any(s.key.endswith("events.sidecar.enabled") and s.value.lower() == "false" for s in given_settings)
    return listens and not off


def _ours(given_settings: list[Setting]) -> list[Setting]:
    """Return the settings without those of reporters in the application's configuration."""
    return [
        s
        for s in given_settings
        if s.origin == _ORIGIN or not s.key.removeprefix("spark.").startswith("events.reporter")
    ]


def _caller() -> str:
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _forget(ended: EventStream) -> None:
    # Do not acquire the lock, because its holder may be waiting for this stream to end.
    for application, stream in list(_running.items()):
        if stream is ended:
            _next_sequence[application] = ended.next_sequence
            _running.pop(application, None)


def _stop_all() -> None:
    """Deliver the last events of all streams when the interpreter exits."""
    for stream in list(_running.values()):
        stream.stop()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    # Do nothing in a forked child, because the streams and their threads belong to the parent process.
    os.register_at_fork(after_in_child=_running.clear)
