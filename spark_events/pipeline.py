"""Build a dispatcher and its reporters, for the sidecar and for event streams."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from spark_events.config import Kind, Settings, boolean, duration, integer, is_name, names, option, positive_duration
from spark_events.config.references import resolve
from spark_events.dispatch.breaker import BreakerConfig
from spark_events.dispatch.calls import describe
from spark_events.dispatch.config import DeliveryConfig, IsolationConfig
from spark_events.dispatch.delivery import Delivery, Hooks, MakeStore
from spark_events.dispatch.dispatcher import AsyncQueuedDispatcher, DispatcherConfig, create
from spark_events.dispatch.process.reporter import ProcessReporter
from spark_events.dispatch.selection import SelectionConfig
from spark_events.dispatch.spool.ownership import driver_identity
from spark_events.dispatch.spool.spool import Spool
from spark_events.dispatch.spool.writer import SpoolConfig, SpoolWriter
from spark_events.errors import ConfigError
from spark_events.reporters.log import LogReporter
from spark_events.reporters.registry import reporter_type
from spark_events.reporters.reporter import Reporter, ReporterFactory
from spark_events.translate.causes import CAUSES
from spark_events.translate.config import TranslateConfig
from spark_events.translate.config import read as read_translation
from spark_events.translate.incidents.config import URL

_REPORTER = "events.reporter"
_DEFAULT_REPORTER = "log"
_LOG = logging.getLogger(__name__)
#: Time after which a slow constructor is logged, in seconds; all events wait for the constructor.
_SLOW_SECONDS = 3.0
_SLOW = "reporter %s: its constructor has not returned for %g s, and all events wait for it; move slow calls to open()"
_NO_HEARTBEATS = (
    "spark.events.heartbeat.interval is set, but no reporter reports heartbeats; set"
    " spark.events.reporter.<name>.heartbeats=true on a file or database reporter, or add a reporter of type heartbeat"
)
#: Minimum capacity of the mailbox of an awaited reporter; a single record rarely causes more events.
_ONE_RECORD = 64


#: An empty value means the default, as for Spark's own keys, so that a template may list the key without a value.
_PYTHON: Kind[str | None] = Kind("the path of a Python interpreter, or an empty value", lambda given: given or None)


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
class _Plan:
    """Factory of one reporter and its common configuration."""

    make: Callable[[], Reporter]
    config: Any = None
    delivery: DeliveryConfig = dataclasses.field(default_factory=DeliveryConfig)
    selection: SelectionConfig = dataclasses.field(default_factory=SelectionConfig)
    breaker: BreakerConfig = dataclasses.field(default_factory=BreakerConfig)
    spool: SpoolConfig = dataclasses.field(default_factory=SpoolConfig)


@dataclasses.dataclass(frozen=True, slots=True)
class Pipeline:
    """Dispatcher and deliveries that the settings describe, created but not started.

    Attributes:
        config: the general settings.
        translation: settings that determine the reported events.
        queue_size: maximum number of records that the driver buffers.
        dispatcher: dispatches events to all deliveries.
        deliveries: one delivery per reporter.
        makers: factories of the reporters, by name.
        spool_folder: directory of the first spool; None if no reporter has a spool.
        databases: configurations of the reporters that write to a database.
        disabled: problems of each unusable active reporter, by name.
    """

    config: EventsConfig
    translation: TranslateConfig
    queue_size: int
    dispatcher: AsyncQueuedDispatcher
    deliveries: tuple[Delivery, ...]
    makers: Mapping[str, Callable[[], Reporter]]
    spool_folder: Path | None
    databases: Sequence[Any]
    disabled: Mapping[str, Sequence[str]]

    def awaited(self) -> list[str]:
        """Return the kinds of records whose acknowledgement the driver waits for."""
        return [kind for kind, effects in CAUSES.items() if any(self.dispatcher.awaits(*one) for one in effects)]


@dataclasses.dataclass(frozen=True, slots=True)
class _Plans:
    """Parsed settings; no reporter is created yet."""

    config: EventsConfig
    dispatcher: DispatcherConfig
    translation: TranslateConfig
    reporters: Mapping[str, _Plan]
    disabled: Mapping[str, Sequence[str]]


def build(
    settings: Settings,
    hooks: Hooks | None = None,
    on_watch: Callable[[], None] = lambda: None,
    application: str | None = None,
    own: Mapping[str, Callable[[], Reporter]] | None = None,
    on_read: Callable[[], None] = lambda: None,
    driver: int = 0,
    *,
    strict: bool = False,
) -> Pipeline:
    """Read all settings and create the reporters and their dispatcher.

    An unusable reporter is disabled and the other reporters run, unless ``events.required`` or ``strict`` is set.

    Args:
        settings: the settings of one driver.
        hooks: callbacks of the deliveries; called from any thread.
        on_watch: called several times a second, from a thread of the dispatcher.
        application: name of the application, which identifies the spools that an earlier process left. None: no
            spooling.
        own: factories, by name, of reporters that are not configured by settings; these reporters are always active.
        on_read: called after all settings are read and before the first reporter is created.
        driver: id of the driver process, which restarts this process after an unexpected exit; 0: unknown.
        strict: raise an error if a reporter is unusable.

    Raises:
        ConfigError: when a general setting is invalid, no reporter is usable, or a reporter is unusable and
            ``strict`` or ``events.required`` is set; lists every problem.
    """
    plans = read(settings, own, strict=strict)
    on_read()
    disabled = dict(plans.disabled)
    deliveries: dict[str, Delivery] = {}
    for name, plan in plans.reporters.items():
        delivery = plan.delivery
        is_awaited = plans.dispatcher.type == "sync" or delivery.guarantee == "guaranteed"
        if is_awaited and delivery.guarantee != "at-least-once":
            # Send events without a linger time, because Spark waits for each answer. With at-least-once, the spool
            # acknowledges events before their delivery.
            delivery = dataclasses.replace(delivery, batch_linger=0.0)
        # A mailbox must hold all events of one record, because Spark can wait only between two records.
        capacity = max(plans.dispatcher.queue_size, _ONE_RECORD if is_awaited else 0)
        try:
            deliveries[name] = _make(
                settings,
                name,
                dataclasses.replace(plan, delivery=delivery),
                capacity,
                hooks,
                application,
                driver_identity(driver),
            )
        except Exception as error:
            why = describe(error, settings.confidence(f"{_REPORTER}.{name}").hide)
            disabled[name] = [f"{_REPORTER}.{name}: the reporter cannot be created: {why}"]
    if not deliveries or (len(disabled) > len(plans.disabled) and (strict or plans.config.required)):
        raise ConfigError([problem for problems in disabled.values() for problem in problems])
    return Pipeline(
        plans.config,
        plans.translation,
        plans.dispatcher.queue_size,
        create(plans.dispatcher, tuple(deliveries.values()), on_watch),
        tuple(deliveries.values()),
        {name: plans.reporters[name].make for name in deliveries},
        next((plans.reporters[d.name].spool.folder for d in deliveries.values() if d.is_durable), None),
        [plan.config for plan in plans.reporters.values() if getattr(plan.config, "remembers_runs", False)],
        disabled,
    )


def read(settings: Settings, own: Mapping[str, Callable[[], Reporter]] | None = None, *, strict: bool = True) -> _Plans:
    """Read and validate all settings without creating reporters.

    Args:
        settings: the settings of one driver.
        own: see :func:`build`.
        strict: see :func:`build`.

    Raises:
        ConfigError: see :func:`build`.
    """
    own = own or {}
    config = settings.read(EventsConfig, "events")
    dispatcher_config = settings.read(DispatcherConfig, "events.dispatcher")
    configured = list(dict.fromkeys([*settings.names_below(_REPORTER), *own]))
    active = list(dict.fromkeys([*_active(settings, config, configured), *own]))
    plans: dict[str, _Plan] = {}
    for name in configured:
        prefix = f"{_REPORTER}.{name}"
        if not is_name(name):
            settings.add_problem(prefix, f"{prefix}: given {name!r} as a name, expected letters, digits, '-' and '_'")
            settings.ignore_below(prefix)
        elif name not in active:
            # Ignore the keys of an inactive reporter.
            settings.ignore_below(prefix)
        elif plan := _read_reporter(settings, name, own.get(name)):
            plans[name] = plan
    for name in active:
        if name not in configured:
            prefix, known = f"{_REPORTER}.{name}", ", ".join(configured) or "none"
            settings.add_problem(
                prefix, f"events.reporters: given {name!r}, but {prefix}.type is not set; configured reporters: {known}"
            )
    translation = read_translation(settings)
    chosen_plans = [plan for name, plan in plans.items() if name in active]
    if dispatcher_config is not None and _is_awaited_by_spark(dispatcher_config, chosen_plans):
        # Do not hold events: Spark's listener thread would wait until the severity is known.
        at_once = dataclasses.replace(translation.incident, settle=0.0)
        translation = dataclasses.replace(translation, incident=at_once)
    problems = {
        name: found
        for name in dict.fromkeys([*configured, *active])
        if (found := settings.problems_below(f"{_REPORTER}.{name}"))
    }
    chosen = {name: plans[name] for name in active if name not in problems}
    disabled = {name: found for name, found in problems.items() if name in active}
    is_strict = strict or config is None or config.required or (bool(disabled) and not chosen)
    settings.check(() if is_strict else [f"{_REPORTER}.{name}" for name in problems])
    assert config is not None
    assert dispatcher_config is not None
    # If no reporter is configured, the `log` reporter runs, so that a single line in spark-defaults.conf is sufficient.
    chosen = chosen or {_DEFAULT_REPORTER: _Plan(partial(LogReporter, LogReporter.Config()))}
    if translation.heartbeat_interval is not None and not any(plan.selection.heartbeats for plan in chosen.values()):
        _LOG.warning(_NO_HEARTBEATS)
    return _Plans(config, dispatcher_config, translation, chosen, disabled)


def _is_awaited_by_spark(dispatcher: DispatcherConfig, plans: Iterable[_Plan]) -> bool:
    return dispatcher.type == "sync" or any(plan.delivery.guarantee == "guaranteed" for plan in plans)


def _active(settings: Settings, config: EventsConfig | None, configured: list[str]) -> list[str]:
    """Return the names of the active reporters, even if other general settings are invalid."""
    if config is not None:
        return configured if config.reporters is None else list(config.reporters)
    given = settings.value("events.reporters")
    return configured if given is None else [name.strip() for name in given.split(",") if name.strip()]


def _read_reporter(settings: Settings, name: str, make: Callable[[], Reporter] | None) -> _Plan | None:
    prefix = f"{_REPORTER}.{name}"
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
        selection = _with_defaults_of(make_type, config, selection)
    breaker = settings.read(BreakerConfig, prefix)
    spool = settings.read(SpoolConfig, prefix)
    isolation = settings.read(IsolationConfig, prefix)
    if make is None or delivery is None or selection is None or breaker is None or spool is None or isolation is None:
        return None
    if isolation.isolation == "process":
        given = settings.value(f"{prefix}.type")
        if given is None:
            key = f"{prefix}.isolation"
            settings.add_problem(
                key,
                f"{key}: given 'process', but a reporter object cannot move to another process; pass its class instead",
            )
            return None
        make = partial(ProcessReporter, name, resolve(given), settings.below(prefix))
    return _Plan(make, config, delivery, selection, breaker, spool)


def _with_defaults_of(make_type: ReporterFactory, config: object, selection: SelectionConfig) -> SelectionConfig:
    heartbeats, severity, recoveries = selection.heartbeats, selection.min_severity, selection.recoveries
    least = getattr(config, "least_severity", getattr(make_type, "min_severity", None))
    return dataclasses.replace(
        selection,
        heartbeats=getattr(make_type, "wants_heartbeats", False) if heartbeats is None else heartbeats,
        min_severity=least if severity is None else severity,
        recoveries=getattr(config, "wants_recoveries", False) if recoveries is None else recoveries,
    )


def _make(
    settings: Settings,
    name: str,
    plan: _Plan,
    capacity: int,
    hooks: Hooks | None,
    application: str | None,
    driver: str,
) -> Delivery:
    store: MakeStore | None = None
    if plan.delivery.guarantee == "at-least-once" and application is not None:
        writer = partial(SpoolWriter, application, name, plan.spool, driver=driver)
        store = partial(Spool, capacity, writer, max_bytes=plan.spool.max_size, reporter=name)
    hide = settings.confidence(f"{_REPORTER}.{name}").hide
    slow = threading.Timer(_SLOW_SECONDS, _LOG.warning, [_SLOW, name, _SLOW_SECONDS])
    slow.daemon = True
    slow.start()
    try:
        return Delivery(name, plan.make, plan.delivery, capacity, hooks, plan.selection, plan.breaker, store, hide)
    finally:
        slow.cancel()
