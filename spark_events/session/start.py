"""Starting a stream of events in the Python that drives the application."""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from spark_events.bridge.client import ClientBridge
from spark_events.bridge.driver import DriverBridge
from spark_events.config import Setting, Settings
from spark_events.driver_session import DriverSession
from spark_events.errors import ConfigError, SessionError
from spark_events.pipeline import read
from spark_events.session import exit_hooks
from spark_events.session.configure import own_settings
from spark_events.session.event_history import EventHistory
from spark_events.session.reporters import Given, Reporters, given
from spark_events.session.shim import driver_of, is_connect, session_of
from spark_events.session.stream import EventStream, Subscription

__all__ = ["start"]

_LOG = logging.getLogger(__name__)
#: Where the settings of a stream were given, for messages; the shim says the same.
_ORIGIN = "spark_events.start"
_JOURNAL = "history"
#: The first Spark whose Connect clients are told of their own queries.
_FIRST_CONNECT = 4

_lock = threading.RLock()
_running: dict[str, EventStream] = {}
#: Where the events of an application go on to be counted, when it is listened to anew.
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
    """Reports, from now on, what happens in a Spark application, inside the Python that drives it.

    >>> events = spark_events.start(spark, reporters=["log"])                                      # doctest: +SKIP

    The pipeline is that of the sidecar. Its records are fetched from the JVM by a thread of this process, never
    delivered into it. It may run beside the sidecar, or instead of it (``configure(..., sidecar=False)``); it ends with
    its SparkContext, or with this Python, or by :meth:`EventStream.stop`.

    Args:
        spark: the session; None: the one that is active. One of Spark Connect reports its own queries only.
        reporters: as of :func:`spark_events.spark_conf`; also reporters that are made already, such as a
            ``MemoryReporter()``. None: what the session is configured with, where no sidecar serves it.
        dispatcher: ``"async-queued"``, where Spark waits for ``guaranteed`` reporters only, or ``"sync"``.
        settings: any key of docs/configuration.md that is no argument here, with or without ``events.`` in front.
        history: how many events are kept for :attr:`EventStream.history` and ``wait_for``.
        replace: what becomes of a stream of this application that runs already. True: it is stopped, and its callbacks
            move to the new one. False: it stays, and SessionError is raised. None: True where Python is used
            interactively, because a cell may run twice, otherwise False.

    Raises:
        ConfigError: with everything that is wrong with the settings.
        SessionError: the session was stopped, has no shim, or ends just now; or its events are started already.
    """
    session = session_of(spark)
    found = given(() if reporters is None else reporters)
    values = _settings(found, dispatcher, settings)
    journal = EventHistory(_size(history))
    own = {**found.own, _JOURNAL: lambda: journal}
    # Before anything is stopped or started.
    plans = read(Settings(Setting(key, value, _ORIGIN) for key, value in values.items()), own)
    patience = plans.config.shutdown_timeout
    application = _application_of(session)
    with _lock:
        before = _make_room(application, _replaces() if replace is None else replace)
        bridge = _open(session, values, patience)
        try:
            session = DriverSession(
                bridge.records,
                bridge.answers,
                bridge.is_driver_gone,
                own=own,
                choose=lambda told: told if reporters is None and not _is_served(session, told) else _ours(told),
                first_sequence=_next_sequence.get(application, 1),
                # Mistakes in arguments are the caller's to see; those of a configuration disable one reporter.
                strict=reporters is not None,
            )
            if not session.begin():
                failure = getattr(bridge.records, "failure", None)
                raise SessionError("the driver ended, or could not be asked, before its events began") from failure
            bridge.listen()
        except BaseException:
            bridge.give_up()
            raise
        stream = EventStream(session, bridge, journal, patience, _caller(), _replaces(), _forget)
        _running[application] = stream
        stream.begin()
    for subscription in before:
        stream.subscribe(subscription)
    return stream


def _size(history: object) -> int:
    if isinstance(history, bool) or not isinstance(history, int) or history < 1:
        raise ConfigError([f"history: given {history!r}, allowed is a whole number, 1 or more"])
    return history


def _settings(found: Given, dispatcher: str, settings: Mapping[str, Any] | None) -> dict[str, str]:
    problems: list[str] = []
    if _JOURNAL in found.names:
        problems.append(f"reporters: given the name {_JOURNAL!r}, which is that of the stream's own memory")
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
            "spark_events: a client of Spark Connect sees its own streaming queries, from their start to their end;"
            " jobs, stages, others' queries and the application itself are seen by the server alone, whose"
            " configuration gets what spark_events.spark_conf() returns"
        )
        return ClientBridge(session, values, _ORIGIN, patience)
    context = driver_of(session)
    exit_hooks.install_for(session._jvm)
    queries = [{"id": str(q.id), "run_id": str(q.runId), "name": q.name} for q in session.streams.active]
    request = json.dumps({"settings": values, "queries": queries})
    return DriverBridge(session._jvm.io.sparkevents.inprocess.InProcess.open(context, request))


def _application_of(session: Any) -> str:
    if is_connect(session):
        if int(session.version.partition(".")[0]) < _FIRST_CONNECT:
            raise SessionError(
                f"Spark Connect {session.version} runs its clients' listeners on the server, so that nothing can be"
                f" seen here: use {_FIRST_CONNECT}.0 or newer, or configure the server with spark_events.spark_conf()"
            )
        return str(session.client._session_id)
    return str(driver_of(session).applicationId())


def _make_room(application: str, replaces: bool) -> list[Subscription]:
    """Ends the stream that runs already; returns its callbacks."""
    running = _running.get(application)
    if running is None or not running.is_running:
        return []
    if not replaces:
        raise SessionError(
            f"the events of this application are started already, at {running.started_at}: use that stream, or call its"
            " stop() first, or start(..., replace=True)"
        )
    subscriptions = running.subscriptions
    running.stop()
    return subscriptions


def _replaces() -> bool:
    """Whether somebody sits before it, who may run a cell twice."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


def _is_served(session: Any, told: list[Setting]) -> bool:
    """Whether the application has a sidecar for the reporters that it is configured with."""
    conf = session.sparkContext.getConf()
    listens = any("io.sparkevents." in (conf.get(key) or "") for key in ("spark.extraListeners", "spark.plugins"))
    off = any(s.key.endswith("events.sidecar.enabled") and s.value.lower() == "false" for s in told)
    return listens and not off


def _ours(told: list[Setting]) -> list[Setting]:
    """Without the reporters of the application's configuration."""
    return [s for s in told if s.origin == _ORIGIN or not s.key.removeprefix("spark.").startswith("events.reporter")]


def _caller() -> str:
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _forget(ended: EventStream) -> None:
    # Without the lock: whoever holds it may be waiting for this very end.
    for application, stream in list(_running.items()):
        if stream is ended:
            _next_sequence[application] = ended.next_sequence
            _running.pop(application, None)


def _stop_all() -> None:
    """At the interpreter's end: what has happened is still delivered."""
    for stream in list(_running.values()):
        stream.stop()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    # The child has none of the threads; the streams are the parent's.
    os.register_at_fork(after_in_child=_running.clear)
