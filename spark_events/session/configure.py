"""The zero-code way, set from Python: what spark-defaults.conf would say, for a builder or as a dictionary.

In the manner of Delta's ``configure_spark_with_delta_pip``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from spark_events import jars
from spark_events.config import Settings
from spark_events.config.defaults import default_path, read_properties
from spark_events.errors import ConfigError, SessionError
from spark_events.pipeline import read
from spark_events.session import exit_hooks
from spark_events.session.reporters import Reporters, given, settings_of
from spark_events.session.shim import knows_shim

__all__ = ["configure", "jar_path", "own_settings", "spark_conf"]

_LISTENER = "io.sparkevents.EventsListener"
#: What has an argument of its own.
_KEYS = {
    "dispatcher": "events.dispatcher.type",
    "reporters": "events.reporters",
    "sidecar": "events.sidecar.enabled",
}
_LISTENERS, _CLASS_PATH = "spark.extraListeners", "spark.driver.extraClassPath"

Builder = TypeVar("Builder")


def jar_path() -> str:
    """The path of the jar that belongs on the driver's class path.

    Raises:
        SparkEventsError: it is not built, which happens in a source checkout only.
    """
    return str(jars.jar_path())


def own_settings(settings: Mapping[str, Any] | None, arguments: Collection[str], problems: list[str]) -> dict[str, str]:
    """Settings as a caller may write them, with or without ``events.`` and ``spark.events.`` in front.

    Args:
        settings: what was written.
        arguments: by name, those of the call that stand for a setting; said twice, none of the two would be right.
        problems: gets what is wrong with them.
    """
    given = {} if settings is None else settings
    short = {str(key).removeprefix("spark.").removeprefix("events."): value for key, value in given.items()}
    found = settings_of(short, "events", problems)
    for name in arguments:
        if (key := _KEYS[name]) in found:
            problems.append(f"settings: given {key}, allowed is the argument {name}, which stands for that key")
    return found


def spark_conf(
    reporters: Reporters | None = None,
    dispatcher: str = "async-queued",
    *,
    sidecar: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Everything that switches events on, as keys and values of Spark's configuration.

    >>> spark_conf({"audit": {"type": "file", "path": "/tmp/events.jsonl"}})                       # doctest: +SKIP

    Args:
        reporters: by name, what each is: its type (``"log"``), a dict of its keys (``{"type": "file", "path": …}``),
            or a class of your own that can be imported. A list where names do not matter. Without it, one ``log``.
        dispatcher: ``"async-queued"``, where Spark waits for ``guaranteed`` reporters only, or ``"sync"``.
        sidecar: False: no process is started; events are for :func:`spark_events.start` alone.
        settings: any key of docs/configuration.md that is no argument here, with or without ``events.`` in front.

    Raises:
        ConfigError: with everything that is wrong.
        SparkEventsError: the jar is not built.
    """
    found = given(() if reporters is None else reporters)
    problems = [
        f"reporters: {name!r} is an object of this process, or of a class without a path to import it by, and the"
        " sidecar is another process: give a type or a class of a module, or use spark_events.start"
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
    # What is wrong is said here, and not in the log of a driver that goes on without events.
    read(Settings.of(values, "the arguments"))
    return {
        _LISTENERS: _LISTENER,
        _CLASS_PATH: jar_path(),
        **{f"spark.{key}": value for key, value in values.items()},
    }


def configure(
    builder: Builder,
    reporters: Reporters | None = None,
    dispatcher: str = "async-queued",
    *,
    sidecar: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> Builder:
    """Sets everything that switches events on: jar, listener, keys, and the interpreter that runs now.

    >>> spark = configure(SparkSession.builder, {"console": "log"}).getOrCreate()                  # doctest: +SKIP

    What the builder, or spark-defaults.conf, has for the driver's class path and for other listeners stays. Exit hooks
    of this Python (``sys.excepthook``, ``sys.exit``, ``atexit``) tell the JVM how the program ended.

    Args:
        builder: ``SparkSession.builder``, before ``getOrCreate``.
        reporters: as of :func:`spark_conf`; so are the others.
        dispatcher: see there.
        sidecar: see there.
        settings: see there.

    Returns:
        The builder.

    Raises:
        ConfigError: with everything that is wrong.
        SessionError: it is too late, or the builder is one of Spark Connect.
        SparkEventsError: the jar is not built.
    """
    values = spark_conf(reporters, dispatcher, sidecar=sidecar, settings=settings)
    so_far: Mapping[str, Any] = getattr(builder, "_options", {})
    _check(so_far)
    path = default_path()
    defaults = read_properties(path) if path is not None and path.is_file() else {}
    for key, separator in ((_LISTENERS, ","), (_CLASS_PATH, os.pathsep)):
        present = str(so_far.get(key) or defaults.get(key) or "")
        values[key] = _joined(present, values[key], separator)
    exit_hooks.install()
    values[exit_hooks.TELLS] = "true"
    for key, value in values.items():
        builder.config(key, value)  # type: ignore[attr-defined]
    return builder


def _joined(present: str, added: str, separator: str) -> str:
    parts = [part for part in present.split(separator) if part]
    return separator.join(parts if added in parts else [*parts, added])


def _check(options: Mapping[str, Any]) -> None:
    if options.get("spark.remote") or "SPARK_REMOTE" in os.environ:
        raise SessionError(
            "a client of Spark Connect cannot have the listener: it belongs to the server, whose configuration gets"
            " what spark_events.spark_conf() returns; here, spark_events.start(spark) reports this client's queries"
        )
    from pyspark import SparkContext

    running = SparkContext._active_spark_context
    if running is not None:
        raise SessionError(
            f"the application {running.appName!r} runs already, and a listener is configured before it starts:"
            " call spark.stop() first, or restart Python (in a notebook, the kernel)"
        )
    gateway = SparkContext._gateway
    if gateway is not None and not knows_shim(gateway.jvm):
        raise SessionError(
            "the JVM of this Python was started without the jar on its class path, and lives on though its session was"
            " stopped: restart Python (in a notebook, the kernel), and call configure before the first session"
        )
