"""Configuration from Python, as settings of a session builder or as a dict.

The API follows Delta's ``configure_spark_with_delta_pip``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from spark_events import jars
from spark_events.config import Settings
from spark_events.config.defaults import default_path, read_properties
from spark_events.dispatch.pipeline_plan import read
from spark_events.errors import ConfigError, SessionError
from spark_events.stream import exit_hooks
from spark_events.stream.reporter_arguments import Reporters, given, settings_of
from spark_events.stream.shim import knows_shim

_LISTENER = "io.sparkevents.EventsListener"
#: Settings that have a separate argument.
_KEYS = {"dispatcher": "events.dispatcher.type", "reporters": "events.reporters", "sidecar": "events.sidecar.enabled"}
_LISTENERS, _CLASS_PATH = "spark.extraListeners", "spark.driver.extraClassPath"

Builder = TypeVar("Builder")


def jar_path() -> str:
    """Return the path of the jar for the driver's class path.

    Raises:
        SparkEventsError: when the jar is not built, which happens only in a source checkout.
    """
    return str(jars.jar_path())


def own_settings(settings: Mapping[str, Any] | None, arguments: Collection[str], problems: list[str]) -> dict[str, str]:
    """Return settings with full ``events.`` keys, from keys with or without a prefix.

    Args:
        settings: the caller's settings; each key may start with ``events.``, ``spark.events.`` or neither.
        arguments: keys that have a separate argument; ``settings`` must not contain them.
        problems: receives a message for each invalid setting.
    """
    given = {} if settings is None else settings
    short = {str(key).removeprefix("spark.").removeprefix("events."): value for key, value in given.items()}
    found = settings_of(short, "events", problems)
    for name in arguments:
        if (key := _KEYS[name]) in found:
            problems.append(f"settings: given {key}, which has its own argument; pass {name} instead")
    return found


def spark_conf(
    reporters: Reporters | None = None,
    dispatcher: str = "async-queued",
    *,
    sidecar: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Return the Spark configuration that enables events, as keys and values.

    >>> spark_conf({"audit": {"type": "file", "path": "/tmp/events.jsonl"}})                       # doctest: +SKIP

    Args:
        reporters: the reporters by name. Each is a type (``"log"``), a dict of its keys
            (``{"type": "file", "path": …}``), or an importable class that the user has defined. Use a list if names do
            not matter. None: one ``log`` reporter.
        dispatcher: ``"async-queued"`` makes Spark wait only for ``guaranteed`` reporters; ``"sync"`` makes Spark wait
            for all reporters.
        sidecar: False starts no sidecar process; in this case, only :func:`spark_events.start` reports events.
        settings: any other key of docs/configuration.md, with or without the prefix ``events.``.

    Raises:
        ConfigError: when settings are invalid; lists every problem.
        SparkEventsError: when the jar is not built.
    """
    found = given(() if reporters is None else reporters)
    problems = [
        f"reporters: {name!r} is an object, or its class cannot be imported by path, so the sidecar, a separate "
        f"process, cannot create it: pass a type or a class of a module, or use spark_events.start"
        for name in found.own
    ]
    arguments = {"dispatcher", "sidecar"} if reporters is None else set(_KEYS)
    values = {
        "events.dispatcher.type": str(dispatcher),
        "events.python": sys.executable,
        **found.settings,
        **own_settings(settings, arguments, problems),
        "events.sidecar.enabled": str(sidecar).lower(),
    }
    if found.names:
        values["events.reporters"] = ",".join(found.names)
    if problems:
        raise ConfigError(problems)
    # Validate here; the driver would only log the problem and run without events.
    read(Settings.of(values, "the arguments"))
    return {_LISTENERS: _LISTENER, _CLASS_PATH: jar_path(), **{f"spark.{key}": value for key, value in values.items()}}


def configure(
    builder: Builder,
    reporters: Reporters | None = None,
    dispatcher: str = "async-queued",
    *,
    sidecar: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> Builder:
    """Set the jar, listener, settings and Python interpreter on a builder.

    >>> spark = configure(SparkSession.builder, {"console": "log"}).getOrCreate()                  # doctest: +SKIP

    Class path entries and listeners that the builder or spark-defaults.conf already sets are kept. The call also
    installs exit hooks in this Python (``sys.excepthook``, ``sys.exit``, ``atexit``), which report to the JVM how the
    program ended. In a container, Python's exit waits until the JVM has delivered the last events, at most
    ``events.shutdown.timeout`` plus 20 s.

    Args:
        builder: ``SparkSession.builder``, before ``getOrCreate``.
        reporters: see :func:`spark_conf`.
        dispatcher: see :func:`spark_conf`.
        sidecar: see :func:`spark_conf`.
        settings: see :func:`spark_conf`.

    Returns:
        The same builder.

    Raises:
        ConfigError: when settings are invalid; lists every problem.
        SessionError: when an application already runs, or the builder creates a Spark Connect client.
        SparkEventsError: when the jar is not built.
    """
    values = spark_conf(reporters, dispatcher, sidecar=sidecar, settings=settings)
    so_far: Mapping[str, Any] = getattr(builder, "_options", {})
    _check(so_far)
    path = default_path()
    defaults = read_properties(path) if path is not None and path.is_file() else {}
    for key, separator in ((_LISTENERS, ","), (_CLASS_PATH, os.pathsep)):
        present = str(so_far.get(key) or defaults.get(key) or "")
        values[key] = _joined(present, values[key], separator)
    events = {key.removeprefix("spark."): value for key, value in values.items() if key.startswith("spark.events.")}
    exit_hooks.install(read(Settings.of(events, "the arguments")).config.shutdown_timeout)
    values[exit_hooks.REPORTS_EXIT] = "true"
    for key, value in values.items():
        builder.config(key, value)  # type: ignore[attr-defined]
    return builder


def _joined(present: str, added: str, separator: str) -> str:
    parts = [part for part in present.split(separator) if part]
    return separator.join(parts if added in parts else [*parts, added])


def _check(options: Mapping[str, Any]) -> None:
    if options.get("spark.remote") or "SPARK_REMOTE" in os.environ:
        raise SessionError(
            "a Spark Connect client cannot install the listener, which runs in the server: add the settings of"
            " spark_events.spark_conf() to the server's configuration, or call spark_events.start(spark) for events of"
            " this client's queries"
        )
    from pyspark import SparkContext

    running = SparkContext._active_spark_context
    if running is not None:
        raise SessionError(
            f"the application {running.appName!r} is already running, but configure must be called before it starts:"
            " call spark.stop() first, or restart Python (in a notebook, the kernel)"
        )
    gateway = SparkContext._gateway
    if gateway is not None and not knows_shim(gateway.jvm):
        raise SessionError(
            "the JVM of this Python was started without the jar on its class path, and still runs although its session"
            " was stopped: restart Python (in a notebook, the kernel), and call configure before the first session"
        )
