"""``spark-events check``: what a driver would make of its configuration, before it runs."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from spark_events._version import __version__
from spark_events.cli.arguments import Configuration, add_configuration, configuration
from spark_events.cli.output import show
from spark_events.cli.table import table
from spark_events.config import Settings
from spark_events.config.references import UnresolvedError, resolve
from spark_events.errors import ConfigError
from spark_events.jars import jar_path
from spark_events.pipeline import Pipeline, build

__all__ = ["add_to"]

_LISTENER = "io.sparkevents.EventsListener"
_PLUGIN = "io.sparkevents.EventsPlugin"
_JAR = "spark-events-shim"
_PYTHON_SECONDS = 30


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = commands.add_parser(
        "check",
        help="say what is wrong with a configuration, key by key",
        description="Reads the configuration that a driver would read, and says key by key what is wrong with it.",
    )
    add_configuration(parser)
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    given = configuration(chosen)
    pipeline, mistakes = _settings(given.settings())
    problems = [*_wiring(given), *mistakes]
    disabled = () if pipeline is None else pipeline.disabled
    show(f"{given.origin}:")
    for problem in problems:
        show(f"  wrong  {problem}")
    if pipeline is not None:
        show(f"  dispatcher: {given.value('events.dispatcher.type') or 'sync'}")
        show(table(("reporter", "type", "guarantee", "isolation"), _reporters(pipeline, given)))
    if disabled:
        show(f"A driver would run without the reporters {', '.join(disabled)}, and with the others.")
    if not problems:
        show("Nothing is wrong with it. `spark-events send-test` shows whether the reporters can deliver.")
    return 1 if problems else 0


def _settings(settings: Settings) -> tuple[Pipeline | None, Sequence[str]]:
    """Return what the settings make, where they make anything, and everything that is wrong with them."""
    try:
        pipeline = build(settings)
        return pipeline, [problem for found in (*pipeline.disabled.values(), pipeline.remarks) for problem in found]
    except ConfigError as error:
        return None, error.problems


def _reporters(pipeline: Pipeline, given: Configuration) -> Iterator[tuple[str, ...]]:
    for delivery in pipeline.deliveries:
        below = f"events.reporter.{delivery.name}"
        isolation = given.value(f"{below}.isolation") or "thread"
        yield delivery.name, given.value(f"{below}.type") or "log", delivery.guarantee, isolation


def _wiring(given: Configuration) -> Iterator[str]:
    """What Spark itself has to be told."""
    listeners = _items(given.value("spark.extraListeners") or "", ",")
    plugins = _items(given.value("spark.plugins") or "", ",")
    if _LISTENER not in listeners and _PLUGIN not in plugins:
        yield f"spark.extraListeners: without {_LISTENER} nothing is reported; add what `spark-events conf` prints"
    jars = [
        (key, jar)
        for key, separator in (("spark.driver.extraClassPath", os.pathsep), ("spark.jars", ","))
        for jar in _items(given.value(key) or "", separator)
        if _JAR in Path(jar).name
    ]
    if not jars:
        yield f"spark.driver.extraClassPath: the jar is not in it; add {jar_path()}"
    for key, jar in jars:
        if "://" not in jar and not Path(jar).is_file():
            yield f"{key}: there is no file {jar}; the jar of this package is {jar_path()}"
    python = given.value("events.python")
    if python and (reason := _unusable(python)) is not None:
        yield f"events.python: given {python!r}, {reason}"


def _unusable(given: str) -> str | None:
    """Why that Python cannot run the sidecar, or None."""
    try:
        python = resolve(given)
    except UnresolvedError:
        # The settings say so.
        return None
    try:
        found = subprocess.run(
            [python, "-c", "import spark_events; print(spark_events.__version__)"],
            capture_output=True,
            text=True,
            timeout=_PYTHON_SECONDS,
            check=False,
        )
    except OSError as error:
        return f"it cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"it has not answered within {_PYTHON_SECONDS} s"
    if found.returncode:
        said = found.stderr.strip().splitlines()
        return f"it cannot import spark_events: {said[-1] if said else f'it ended with code {found.returncode}'}"
    version = found.stdout.strip()
    return None if version == __version__ else f"it has spark_events {version}, this is {__version__}"


def _items(text: str, separator: str) -> list[str]:
    return [item.strip() for item in text.split(separator) if item.strip()]
