"""Build a dispatcher and its reporters, for the sidecar and for event streams."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from spark_events.config import Settings
from spark_events.dispatch.delivery import Delivery, Hooks, MakeStore
from spark_events.dispatch.dispatcher import Dispatcher
from spark_events.dispatch.pipeline_plan import REPORTER, PipelinePlan, ReporterPlan, read
from spark_events.dispatch.reporter_calls import describe
from spark_events.dispatch.spool.ownership import driver_identity
from spark_events.dispatch.spool.spool import Spool
from spark_events.dispatch.spool.writer import SpoolWriter
from spark_events.errors import ConfigError
from spark_events.reporters.reporter import Reporter
from spark_events.translate.possible_events import POSSIBLE_EVENTS

_LOG = logging.getLogger(__name__)
#: Time after which a slow constructor is logged, in seconds; all events wait for the constructor.
_SLOW_SECONDS = 3.0
_SLOW = "reporter %s: its constructor has not returned for %g s, and all events wait for it; move slow calls to open()"
#: Minimum capacity of the mailbox of an awaited reporter; a single record rarely causes more events.
_ONE_RECORD = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Pipeline:
    """Dispatcher and deliveries that the settings describe, created but not started.

    Attributes:
        plans: the parsed settings.
        dispatcher: dispatches events to all deliveries.
        deliveries: one delivery per reporter.
        disabled: problems of each unusable active reporter, by name.
    """

    plans: PipelinePlan
    dispatcher: Dispatcher
    deliveries: tuple[Delivery, ...]
    disabled: Mapping[str, Sequence[str]]

    def awaited(self) -> list[str]:
        """Return the kinds of records whose acknowledgement the driver waits for."""
        may_await = self.dispatcher.may_await
        return [kind for kind, effects in POSSIBLE_EVENTS.items() if any(may_await(*one) for one in effects)]


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
    dispatcher, disabled = plans.dispatcher, dict(plans.disabled)
    deliveries: dict[str, Delivery] = {}
    for name, plan in plans.reporters.items():
        delivery = plan.delivery
        is_awaited = dispatcher.type == "sync" or delivery.guarantee == "guaranteed"
        if is_awaited and delivery.guarantee != "at-least-once":
            # Send events without a linger time, because Spark waits for each answer. With at-least-once, the spool
            # acknowledges events before their delivery.
            delivery = dataclasses.replace(delivery, batch_linger=0.0)
        # A mailbox must hold all events of one record, because Spark can wait only between two records.
        capacity = max(dispatcher.queue_size, _ONE_RECORD if is_awaited else 0)
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
            why = describe(error, settings.confidence(f"{REPORTER}.{name}").hide)
            disabled[name] = [f"{REPORTER}.{name}: the reporter cannot be created: {why}"]
    if not deliveries or (len(disabled) > len(plans.disabled) and (strict or plans.config.required)):
        raise ConfigError([problem for problems in disabled.values() for problem in problems])
    made = tuple(deliveries.values())
    is_sync = dispatcher.type == "sync"
    return Pipeline(plans, Dispatcher(made, dispatcher.sync_timeout, on_watch, sync=is_sync), made, disabled)


def _make(
    settings: Settings,
    name: str,
    plan: ReporterPlan,
    capacity: int,
    hooks: Hooks | None,
    application: str | None,
    driver: str,
) -> Delivery:
    store: MakeStore | None = None
    if plan.delivery.guarantee == "at-least-once" and application is not None:
        writer = partial(SpoolWriter, application, name, plan.spool, driver=driver)
        store = partial(Spool, capacity, writer, max_bytes=plan.spool.max_size, reporter=name)
    hide = settings.confidence(f"{REPORTER}.{name}").hide
    slow = threading.Timer(_SLOW_SECONDS, _LOG.warning, [_SLOW, name, _SLOW_SECONDS])
    slow.daemon = True
    slow.start()
    try:
        return Delivery(name, plan.make, plan.delivery, capacity, hooks, plan.selection, plan.breaker, store, hide)
    finally:
        slow.cancel()
