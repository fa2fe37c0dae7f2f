"""Read and validate all settings of a driver, without creating reporters."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

from spark_events.config import (
    Kind,
    Setting,
    Settings,
    boolean,
    duration,
    integer,
    is_name,
    names,
    option,
    path,
    positive_duration,
)
from spark_events.config.quoting import quoted_key
from spark_events.config.references import resolve
from spark_events.config.value_kinds import PATHS
from spark_events.dispatch.breaker import BreakerConfig
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.dispatcher import DispatcherConfig
from spark_events.dispatch.process.process_reporter import ProcessReporter
from spark_events.dispatch.selection import SelectionConfig, includes_of
from spark_events.dispatch.spool.writer import SpoolConfig
from spark_events.reporters.log_reporter import LogReporter
from spark_events.reporters.reporter import Reporter, ReporterFactory
from spark_events.reporters.reporter_types import factory, reporter_type
from spark_events.translate.incidents.incident_config import URL
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translation_config import read as read_translation

#: Variable with the path of the verdict.
VERDICT_VARIABLE = "SPARK_EVENTS_VERDICT"
#: See :data:`spark_events.reporters.verdict.verdict_reporters.TERMINATION_LOG`, which is imported only where it is
#: used.
_TERMINATION_LOG = "/dev/termination-log"
#: Prefix of the settings of reporters.
REPORTER = "events.reporter"
_DEFAULT_REPORTER = "log"
_LOG = logging.getLogger(__name__)
_NO_HEARTBEATS = (
    "spark.events.heartbeat.interval is set, but no reporter reports heartbeats; set"
    " spark.events.reporter.<name>.heartbeats=true on a file or database reporter, or add a reporter of type heartbeat"
)
#: An empty value means the default, as for Spark's own keys, so that a template may list the key without a value.
_PYTHON: Kind[str | None] = Kind(
    "the path of a Python interpreter, or an empty value", lambda given: given or None, harmless=PATHS
)


@dataclasses.dataclass(frozen=True, slots=True)
class EventsConfig:
    """General settings under ``events.``; the shim also reads most of them."""

    reporters: tuple[str, ...] | None = option(
        "reporters",
        names,
        None,
        doc="Names of the active reporters; default: all configured reporters.",
    )
    python: str | None = option("python", _PYTHON, None, doc="Path of the Python interpreter that runs the sidecar.")
    metrics_otlp_endpoint: str | None = option(
        "metrics.otlp.endpoint",
        URL,
        None,
        doc="HTTP address of the OTLP metrics receiver. If unset, metrics are not exported over OTLP.",
    )
    required: bool = option(
        "required",
        boolean,
        False,
        doc="Refuse to start the application if its events cannot be reported.",
    )
    sidecar_enabled: bool = option("sidecar.enabled", boolean, True, doc="Start the sidecar.")
    sidecar_start_timeout: float = option(
        "sidecar.start-timeout", positive_duration, 30.0, doc="Time limit for the sidecar to become ready."
    )
    sidecar_restarts_max: int = option(
        "sidecar.restarts.max", integer(0, 1_000_000), 10, doc="Maximum number of sidecar restarts within the window."
    )
    sidecar_restarts_window: float = option(
        "sidecar.restarts.window", positive_duration, 600.0, doc="Window in which restarts are counted."
    )
    sidecar_stall_timeout: float = option(
        "sidecar.stall-timeout",
        positive_duration,
        60.0,
        doc="Restart a sidecar that reads no record for this time while records wait.",
    )
    application_unique: bool = option(
        "application.unique",
        boolean,
        False,
        doc="Whether at most one application of this name runs at a time, so that its start proves the end of the "
        "earlier run.",
    )
    verdict_path: str | None = option(
        "verdict.path",
        path("the path of a file"),
        None,
        doc="File for the verdict of the application: outcome, class of the failure, whether a rerun helps. Default: "
        "the variable SPARK_EVENTS_VERDICT, which `spark-events run` sets; without it, no file.",
    )
    termination_message: bool = option(
        "termination-message.enabled",
        boolean,
        True,
        doc="In Kubernetes, write the failure to /dev/termination-log, which `kubectl describe pod` shows.",
    )
    shutdown_timeout: float = option(
        "shutdown.timeout",
        duration,
        10.0,
        doc="Maximum time that the end of the application waits for the delivery of the last events.",
    )
    shutdown_outcome_timeout: float = option(
        "shutdown.outcome-timeout",
        duration,
        30.0,
        doc="After stop(): maximum time that the event of the application's end waits for the driver's exit.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ReporterConfig:
    """``events.reporter.<name>.type``, which determines the keys below that name."""

    factory: ReporterFactory = option("type", reporter_type, doc="Type of the reporter.")


@dataclasses.dataclass(frozen=True, slots=True)
class ReporterPlan:
    """Factory of one reporter and its common configuration.

    Attributes:
        notifies: whether the reporter notifies people.
        type: type of the reporter; empty if no setting names it.
    """

    make: Callable[[], Reporter]
    config: Any = None
    delivery: DeliveryConfig = dataclasses.field(default_factory=DeliveryConfig)
    selection: SelectionConfig = dataclasses.field(default_factory=SelectionConfig)
    breaker: BreakerConfig = dataclasses.field(default_factory=BreakerConfig)
    spool: SpoolConfig = dataclasses.field(default_factory=SpoolConfig)
    notifies: bool = False
    type: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class PipelinePlan:
    """Parsed settings; no reporter is created yet."""

    config: EventsConfig
    dispatcher: DispatcherConfig
    translation: TranslateConfig
    reporters: Mapping[str, ReporterPlan]
    disabled: Mapping[str, Sequence[str]]


def read(
    settings: Settings, own: Mapping[str, Callable[[], Reporter]] | None = None, *, strict: bool = True
) -> PipelinePlan:
    """Read and validate all settings without creating reporters.

    Args:
        settings: the settings of one driver.
        own: factories, by name, of reporters that are not configured by settings; these reporters are always active.
        strict: raise an error if a reporter is unusable; otherwise the reporter is disabled.

    Raises:
        ConfigError: when a general setting is invalid, no reporter is usable, or a reporter is unusable and
            ``strict`` or ``events.required`` is set; lists every problem.
    """
    own = own or {}
    config = settings.read(EventsConfig, "events")
    dispatcher_config = settings.read(DispatcherConfig, "events.dispatcher")
    configured = list(dict.fromkeys([*settings.names_below(REPORTER), *own]))
    active = list(dict.fromkeys([*_active(settings, config, configured), *own]))
    plans: dict[str, ReporterPlan] = {}
    for name in configured:
        prefix = f"{REPORTER}.{name}"
        if not is_name(name):
            shown = quoted_key(settings.as_written(prefix))
            problem = f"{shown}: invalid name of a reporter, expected letters, digits, '-' and '_'"
            settings.add_problem(prefix, problem)
            settings.ignore_below(prefix)
        elif name not in active:
            # Ignore the keys of an inactive reporter.
            settings.ignore_below(prefix)
        elif plan := _read_reporter(settings, name, own.get(name)):
            plans[name] = plan
    for name in active:
        if name not in configured:
            prefix, known = f"{REPORTER}.{name}", ", ".join(configured) or "none"
            key, missing = settings.as_written("events.reporters"), settings.as_written(f"{prefix}.type")
            settings.add_problem(
                prefix, f"{key}: given {name!r}, but {missing} is not set; configured reporters: {known}"
            )
    translation = read_translation(settings)
    problems = {
        name: found
        for name in dict.fromkeys([*configured, *active])
        if (found := settings.problems_below(f"{REPORTER}.{name}"))
    }
    # Without a plan and a problem: a required value is elsewhere, and was not checked.
    chosen = {name: plans[name] for name in active if name in plans and name not in problems}
    disabled = {name: found for name, found in problems.items() if name in active}
    is_strict = strict or config is None or config.required or (bool(disabled) and not chosen)
    settings.check(() if is_strict else [f"{REPORTER}.{name}" for name in problems])
    assert config is not None
    assert dispatcher_config is not None
    # If no reporter is configured, the `log` reporter runs, so that a single line in spark-defaults.conf is sufficient.
    if not chosen:
        selection = SelectionConfig(min_severity=LogReporter.min_severity)
        chosen = {_DEFAULT_REPORTER: ReporterPlan(partial(LogReporter, LogReporter.Config()), selection=selection)}
    for name, plan in _for_schedulers(config, {plan.type for plan in chosen.values()}).items():
        chosen[name if name not in chosen else f"{name}-file"] = plan
    if translation.heartbeat_interval is not None and not any(plan.selection.heartbeats for plan in chosen.values()):
        _LOG.warning(_NO_HEARTBEATS)
    return PipelinePlan(config, dispatcher_config, translation, chosen, disabled)


def _for_schedulers(config: EventsConfig, types: Set[str]) -> dict[str, ReporterPlan]:
    """Return the reporters that write the verdict where schedulers look, unless reporters of these types exist."""
    found: dict[str, ReporterPlan] = {}
    file = config.verdict_path or os.environ.get(VERDICT_VARIABLE)
    if file and "verdict" not in types:
        found["verdict"] = _plain_plan("verdict", {"path": file})
    is_container = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and os.path.exists(_TERMINATION_LOG)
    if is_container and config.termination_message and "termination-message" not in types:
        found["termination-message"] = _plain_plan("termination-message", {})
    return found


def _plain_plan(type_name: str, values: Mapping[str, str]) -> ReporterPlan:
    made = factory(type_name)
    config = made.Config(**values)
    selection = _with_defaults_of(made, config, SelectionConfig(), False)
    return ReporterPlan(partial(made, config), config, selection=selection, type=type_name)


def _active(settings: Settings, config: EventsConfig | None, configured: list[str]) -> list[str]:
    """Return the names of the active reporters, even if other general settings are invalid."""
    if config is not None:
        return configured if config.reporters is None else list(config.reporters)
    given = settings.value("events.reporters")
    return configured if given is None else [name.strip() for name in given.split(",") if name.strip()]


def _read_reporter(settings: Settings, name: str, make: Callable[[], Reporter] | None) -> ReporterPlan | None:
    prefix = f"{REPORTER}.{name}"
    make_type: ReporterFactory | None = None
    config: Any = None
    if make is None:
        reporter = settings.read(ReporterConfig, prefix)
        if reporter is None:
            # The type is unknown, and only the type determines which keys are valid.
            settings.ignore_below(prefix)
            return None
        make_type = reporter.factory
        config = settings.read(reporter.factory.Config, prefix)
        make = None if config is None else partial(reporter.factory, config)
    delivery = settings.read(DeliveryConfig, prefix)
    selection = settings.read(SelectionConfig, prefix)
    if selection is not None and make_type is not None:
        is_given = settings.value(f"{prefix}.filter.includes") is not None
        try:
            selection = _with_defaults_of(make_type, config, selection, is_given)
        except ValueError as error:
            key = settings.as_written(f"{prefix}.type")
            settings.add_problem(f"{prefix}.type", f"{key}: cannot be used: default_includes: {error}")
    breaker = settings.read(BreakerConfig, prefix)
    spool = settings.read(SpoolConfig, prefix)
    if make is None or delivery is None or selection is None or breaker is None or spool is None:
        return None
    if delivery.isolation == "process":
        given = settings.value(f"{prefix}.type")
        if given is None:
            key = f"{prefix}.isolation"
            settings.add_problem(
                key,
                f"{settings.as_written(key)}: given 'process', but a reporter object cannot move to another process;"
                " pass its class instead",
            )
            return None
        make = partial(_in_process, name, given, settings.below(prefix))
    notifies = bool(getattr(config, "notifies", getattr(make_type, "notifies", False)))
    return ReporterPlan(
        make, config, delivery, selection, breaker, spool, notifies, settings.value(f"{prefix}.type") or ""
    )


def _in_process(name: str, given: str, settings: Sequence[Setting]) -> Reporter:
    return ProcessReporter(name, resolve(given), list(settings))


def _with_defaults_of(
    make_type: ReporterFactory, config: object, selection: SelectionConfig, has_includes: bool
) -> SelectionConfig:
    heartbeats, severity, recoveries = selection.heartbeats, selection.min_severity, selection.recoveries
    default = getattr(make_type, "default_includes", None)
    least = getattr(config, "least_severity", getattr(make_type, "min_severity", None))
    return dataclasses.replace(
        selection,
        includes=selection.includes if has_includes or default is None else includes_of(default),
        heartbeats=getattr(make_type, "wants_heartbeats", False) if heartbeats is None else heartbeats,
        min_severity=least if severity is None else severity,
        recoveries=getattr(config, "wants_recoveries", False) if recoveries is None else recoveries,
    )
