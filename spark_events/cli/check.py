"""``spark-events check``: validate a driver's configuration before the driver runs."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from spark_events._version import __version__
from spark_events.cli.arguments import Configuration, add_configuration, configuration
from spark_events.cli.output import show, table
from spark_events.config import Settings, text
from spark_events.config.quoting import quoted
from spark_events.config.references import UnresolvedError, resolve
from spark_events.config.value_kinds import PATHS
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.dispatcher import DispatcherConfig
from spark_events.dispatch.pipeline import Pipeline, build
from spark_events.dispatch.pipeline_plan import PipelinePlan, read
from spark_events.errors import ConfigError
from spark_events.event.text import on_one_line
from spark_events.jars import jar_path, version_of

_LISTENER = "io.sparkevents.EventsListener"
_PLUGIN = "io.sparkevents.EventsPlugin"
_JAR = "spark-events"
_PACKAGE = "io.sparkevents:spark-events:"
_PYTHON_SECONDS = 30
#: Settings that add links to alerts.
_USEFUL_IN_ALERTS = {
    "events.link.history": "link to the history server, which still works after the application has ended",
    "events.link.runbook": "link to a runbook",
}
_WIRING = ("spark.extraListeners", "spark.plugins", "spark.driver.extraClassPath", "spark.jars", "spark.jars.packages")
#: Reporter types that deliver over a network. Type heartbeat is excluded, because a lost ping needs no later delivery.
_REMOTE = ("kafka", "otlp", "webhook")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "check",
        help="check a configuration and print every mistake with its key",
        description="Reads the configuration that a driver would read, and prints every mistake with its key.",
    )
    add_configuration(parser)
    parser.add_argument(
        "--offline",
        action="store_true",
        help="check the file of another machine: look at no variable, file or interpreter of this one, and accept a"
        " file that configures only reporters",
    )
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    given = configuration(chosen)
    settings = given.settings(resolves=not chosen.offline)
    plan, mistakes = _plan(settings, chosen.offline)
    wiring = _wiring_offline(given) if chosen.offline else _wiring(given, settings)
    problems = [*wiring, *mistakes]
    disabled = () if plan is None else plan.disabled
    show(f"{given.origin}:")
    for problem in problems:
        show(f"  wrong  {on_one_line(problem)}")
    if settings.unchecked:
        show(f"  not checked, because the value is elsewhere: {', '.join(settings.unchecked)}")
    if plan is not None:
        show(f"  dispatcher: {given.value('events.dispatcher.type') or DispatcherConfig().type}")
        show(table(("reporter", "type", "guarantee", "isolation"), _reporters(plan, given, settings.unchecked)))
        for advice in _advice(plan, given):
            show(f"  advice  {advice}")
    if disabled:
        show(f"A driver would disable these reporters and continue with the remaining reporters: {', '.join(disabled)}")
    if not problems and chosen.offline:
        show("No mistakes found. Run `spark-events check` without --offline on the driver's machine.")
    elif not problems:
        show("No mistakes found. Run `spark-events send-test` to check that the reporters can deliver.")
    return 1 if problems else 0


def _plan(settings: Settings, is_offline: bool) -> tuple[PipelinePlan | None, Sequence[str]]:
    """Return the parsed settings, or None if they cannot be used, and every problem found."""
    try:
        # Offline, no reporter is created, because it may read files of the driver's machine.
        made = read(settings, strict=False) if is_offline else build(settings)
    except ConfigError as error:
        return None, error.problems
    plan = made.plans if isinstance(made, Pipeline) else made
    return plan, [problem for found in made.disabled.values() for problem in found]


def _reporters(plan: PipelinePlan, given: Configuration, unchecked: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table, also of reporters without a plan, because a required value is elsewhere."""
    keys = [key.removeprefix("spark.").split(".") for key in unchecked]
    elsewhere = dict.fromkeys(key[2] for key in keys if key[:2] == ["events", "reporter"])
    # With a reporter whose value is elsewhere, the default reporter does not run.
    planned = [name for name, reporter in plan.reporters.items() if reporter.type or not elsewhere]
    for name in dict.fromkeys([*planned, *elsewhere]):
        below, delivery = f"events.reporter.{name}", DeliveryConfig()
        guarantee = given.value(f"{below}.delivery.guarantee") or delivery.guarantee
        type_name = given.value(f"{below}.type") or (plan.reporters[name].type if name in planned else "")
        yield name, type_name or "log", guarantee, given.value(f"{below}.isolation") or delivery.isolation


def _advice(plan: PipelinePlan, given: Configuration) -> Iterator[str]:
    """Yield advice about delivery guarantees, and about what alerts lack."""
    for name in plan.reporters:
        below = f"events.reporter.{name}"
        kind, key = given.value(f"{below}.type"), f"{below}.delivery.guarantee"
        is_remote = kind in _REMOTE or (kind == "database" and "postgresql" in (given.value(f"{below}.url") or ""))
        if is_remote and given.value(key) is None:
            yield (
                f"spark.{key}: not set, so a long outage of the destination loses events;"
                " at-least-once keeps them on disk (set best-effort to accept the loss)"
            )

    alerts = [name for name, one in plan.reporters.items() if getattr(one.config, "wants_recoveries", False)]
    if not alerts:
        return
    if not given.value("events.environment"):
        yield (
            f"spark.events.environment: not set, but {', '.join(alerts)} opens and closes alerts; if several"
            " environments share the receiver, a run in one of them closes the alerts of another"
        )
    for key, reason in _USEFUL_IN_ALERTS.items():
        if not given.value(key):
            yield f"spark.{key}: not set, so alerts of {', '.join(alerts)} have no {reason}"
    if not plan.translation.identity.tags:
        yield f"spark.events.tags.<name>: none is set, such as team, so alerts of {', '.join(alerts)} name no owner"


def _wiring_offline(given: Configuration) -> Iterator[str]:
    """Yield the problems of Spark's own properties that the file alone shows.

    A file without any of these properties configures only reporters, as for `watch` and `replay`.
    """
    if any(given.value(key) for key in _WIRING):
        yield from _missing_listener(given)


def _missing_listener(given: Configuration) -> Iterator[str]:
    listeners = _items(given.value("spark.extraListeners") or "", ",")
    plugins = _items(given.value("spark.plugins") or "", ",")
    if _LISTENER not in listeners and _PLUGIN not in plugins:
        yield (
            f"spark.extraListeners: {_LISTENER} is missing, so no events are reported; add the lines that "
            f"`spark-events conf` prints"
        )


def _wiring(given: Configuration, settings: Settings) -> Iterator[str]:
    """Yield the problems of Spark's own properties: listener, class path, Python."""
    yield from _missing_listener(given)
    jars = [
        (key, jar)
        for key, separator in (("spark.driver.extraClassPath", os.pathsep), ("spark.jars", ","))
        for jar in _items(given.value(key) or "", separator)
        if _JAR in Path(jar).name
    ]
    packages = [
        package.removeprefix(_PACKAGE)
        for package in _items(given.value("spark.jars.packages") or "", ",")
        if package.startswith(_PACKAGE)
    ]
    if not jars and not packages:
        yield (
            "spark.driver.extraClassPath: the jar of spark-events is missing, and Spark does not start without the"
            f" listener's class; add {jar_path()}"
        )
    for version in packages:
        if version != __version__:
            yield (
                f"spark.jars.packages: given {_PACKAGE}{version}, but this Python package is {__version__};"
                " no events are reported; install the same version of both"
            )
    for key, jar in jars:
        if "://" in jar:
            continue
        if not Path(jar).is_file():
            yield (
                f"{key}: no such file: {jar}; Spark does not start without the listener's class;"
                f" the jar of this package is {jar_path()}"
            )
        elif (found := version_of(Path(jar))) not in (None, __version__):
            yield (
                f"{key}: {jar} is spark-events {found}, but this Python package is {__version__}; no events are"
                " reported; run `spark-events conf --install DIR` again, or use the jar that `spark-events conf` prints"
            )
    python = given.value("events.python")
    if python and (reason := _unusable(python)) is not None:
        shown = quoted("events.python", python, text(harmless=PATHS))
        yield f"{settings.as_written('events.python')}: given {shown}, {reason}"


def _unusable(given: str) -> str | None:
    """Return the reason why this Python cannot run the sidecar, or None."""
    try:
        python = resolve(given)
    except UnresolvedError:
        # Report nothing here, because the validation of the settings reports this problem.
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
        return f"which cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"which did not import spark_events within {_PYTHON_SECONDS} s"
    if found.returncode:
        errors = found.stderr.strip().splitlines()
        return f"which cannot import spark_events: {errors[-1] if errors else f'exit code {found.returncode}'}"
    version = found.stdout.strip()
    if version == __version__:
        return None
    return f"which has spark_events {version}, but this command has {__version__}; install the same version in both"


def _items(text: str, separator: str) -> list[str]:
    return [item.strip() for item in text.split(separator) if item.strip()]
