"""Everything together: whenever all is quiet, PagerDuty and a real Alertmanager show exactly the causes that hold.

Real records of several drivers pass through real translators, and their events through real senders to an HTTP receiver
with PagerDuty's rules and to an Alertmanager, while clocks jump and the disk fails. Time is virtual.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from reporters.peers.alertmanager import Alertmanager, incidents
from reporters.peers.webhook import Receiver
from virtual_time import VirtualLoop

from property.alert_rules import COOLDOWN, FAULTS, Destination, Process, World
from property.incident_rules import APPLICATION, CONFIG, Driver, Incidents
from spark_events import Event, Severity
from spark_events.loops import unwind
from spark_events.reporters.alerts.alertmanager import ALERTMANAGER
from spark_events.reporters.alerts.incident import key_of, more_keys_of
from spark_events.reporters.alerts.pagerduty import pagerduty
from spark_events.translate.incidents.incident_config import IdentityConfig
from spark_events.translate.translation_config import TranslateConfig
from spark_events.watch.sightings import Sightings

#: Interval of heartbeats, in seconds; a watcher reports a run as lost after two intervals.
INTERVAL = 60.0
#: Number of the watcher's process; drivers have positive numbers.
WATCHER = 0
SKEWS = st.sampled_from((-3_600_000, -1_000, 0, 200, 2_000, 3_600_000))
_ENVIRONMENTS = itertools.count(1)


class AtPagerDuty:
    """HTTP receiver with PagerDuty's rules for equal keys, and the incidents of one environment."""

    form = pagerduty("R")

    def __init__(self, receiver: Receiver, environment: str) -> None:
        self._receiver = receiver
        self._first = len(receiver.taken)
        self._prefix = f"spark-events:environment={environment}/"

    def post(self, body: Any, now: float) -> None:
        content = json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self._receiver.url, content)) as answer:
            assert answer.status == 200

    def open_keys(self, now: float) -> set[str]:
        found = incidents([request.json for request in self._receiver.taken[self._first :]])
        return {one.key.removeprefix(self._prefix) for one in found if one.is_open}


class AtAlertmanager:
    """Alerts of one environment at a real Alertmanager, which uses its own clock."""

    form = ALERTMANAGER

    def __init__(self, alertmanager: Alertmanager, environment: str) -> None:
        self._alertmanager = alertmanager
        self._prefix = f"environment={environment}/"
        self._filter = quote(f'environment="{environment}"')

    def post(self, body: Any, now: float) -> None:
        self._alertmanager.post(body)

    def open_keys(self, now: float) -> set[str]:
        with urllib.request.urlopen(f"{self._alertmanager.url}/api/v2/alerts?filter={self._filter}") as answer:
            return {one["labels"]["incident_key"].removeprefix(self._prefix) for one in json.load(answer)}


class Side:
    """One destination, and the process of each driver that sends alerts to it.

    Attributes:
        unknown: keys whose last change was on no disk when its process ended or another process acted.
    """

    def __init__(self, rules: Everything, destination: Destination, folder: Path) -> None:
        self._rules = rules
        self.destination = destination
        self.folder = folder
        self.loop = rules.loop
        self.world = rules.world
        self.unknown: set[str] = set()
        self._processes: dict[int, Process] = {}

    @property
    def now(self) -> float:
        return self._rules.now / 1_000

    def wall(self, driver: int) -> float:
        return self.now + self._rules.skew_of(driver) / 1_000

    def changed(self, driver: int, key: str) -> None:
        others = [process for number, process in self._processes.items() if number != driver]
        self.unknown |= {key} & {lost for other in others for lost in other.files.lost}

    def begin(self, driver: int) -> None:
        process = self._processes[driver] = Process(self, driver)

        async def opened() -> None:
            process.sender.open()
            await asyncio.sleep(0.05)

        self.loop.run_until_complete(opened())

    def deliver(self, driver: int, event: Event) -> None:
        for key in (key_of(event), *more_keys_of(event)):
            self.changed(driver, key)
        sender = self._processes[driver].sender
        for part in sender.parts([event])[::-1]:
            self.loop.run_until_complete(sender.send(part))

    def end(self, driver: int, *, is_killed: bool) -> None:
        process = self._processes[driver]
        if not is_killed:
            self.loop.run_until_complete(process.sender.close())
        del self._processes[driver]
        process.is_dead = True
        self.unknown |= process.files.lost

    def check(self, prefix: str, holds: set[str]) -> None:
        unknown = {key.removeprefix(prefix) for key in self.unknown}
        assert self.destination.open_keys(self.now) - unknown == holds - unknown


class Everything(Incidents):
    """Drivers, their sidecars, a watcher, a disk and clocks."""

    receiver: Receiver
    alertmanager: Alertmanager

    def __init__(self) -> None:
        environment = f"e{next(_ENVIRONMENTS)}"
        identity = IdentityConfig(environment=environment)
        self.config = TranslateConfig(alarms=CONFIG.alarms, heartbeat_interval=INTERVAL, identity=identity)
        super().__init__()
        # The rules cause thousands of expected warnings.
        logging.getLogger("spark_events").setLevel(logging.CRITICAL)
        self.prefix = f"environment={environment}/"
        self.loop = VirtualLoop()
        # The timer of a killed process raises an exception that nobody awaits.
        self.loop.set_exception_handler(lambda *_: None)
        # Alertmanager drops alerts that have expired on its own clock.
        self.now = self.begun = round(time.time() * 1_000)
        self.folder = Path(tempfile.mkdtemp(prefix="spark-events-alerts-"))
        self.world = World()
        self.sightings = Sightings()
        #: Whether an alert may have changed since the last check.
        self.is_new = False
        destinations: list[Destination] = [
            AtPagerDuty(self.receiver, environment),
            AtAlertmanager(self.alertmanager, environment),
        ]
        self.sides = [Side(self, one, self.folder / str(n)) for n, one in enumerate(destinations)]

    def teardown(self) -> None:
        self.all_is_quiet()
        logging.getLogger("spark_events").setLevel(logging.NOTSET)
        unwind(self.loop)
        self.loop.close()
        shutil.rmtree(self.folder)

    # --- time, drivers and events ---------------------------------------------------------------

    def pass_(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.now = self.begun + round(self.loop.now * 1_000)
        for driver in self.drivers:
            self.receive(driver, driver.translator.tick(self.now + driver.skew))

    def skew_of(self, number: int) -> int:
        return next((driver.skew for driver in self.drivers if driver.number == number), 0)

    def receive(self, driver: Driver, events: Sequence[Event]) -> None:
        self.sightings.now = self.now
        for event in events:
            self.sightings.see(event)
            if event.name == "BatchCommitEvent":
                at = event.observed_ts_millis
                self.sightings.succeed((f"local-{driver.number}", ""), at, at)
            self.deliver(driver.number, event)

    def deliver(self, number: int, event: Event) -> None:
        # The filter of the reporter ``webhook``.
        if event.severity >= Severity.ERROR or event.attributes.get("incident.role") == "recovery":
            self.is_new = True
            for side in self.sides:
                side.deliver(number, event)

    def entered(self, driver: Driver) -> None:
        for side in self.sides:
            side.begin(driver.number)

    def left(self, driver: Driver, *, is_killed: bool) -> None:
        super().left(driver, is_killed=is_killed)
        for side in self.sides:
            side.end(driver.number, is_killed=is_killed)

    def replaced(self, driver: Driver) -> None:
        for side in self.sides:
            side.end(driver.number, is_killed=True)
            side.begin(driver.number)

    # --- further rules ----------------------------------------------------------------------------

    @initialize(skew=SKEWS)
    def clocks_differ(self, skew: int) -> None:
        for driver in self.drivers:
            driver.skew = skew

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), skew=SKEWS)
    def clock_jumps(self, data: st.DataObject, skew: int) -> None:
        self.driver(data).skew = skew

    @rule(fault=st.sampled_from(sorted(FAULTS)))
    def disk_fails(self, fault: str) -> None:
        self.world.disk = FAULTS[fault]

    @rule()
    def disk_works(self) -> None:
        self.world.disk = ()

    @precondition(lambda self: self.is_new)
    @rule(seconds=st.sampled_from((10.0, 130.0, 601.0)))
    def time_passes(self, seconds: float) -> None:
        self.pass_(seconds)

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), groups=st.sampled_from((2, 21)), succeed=st.booleans())
    def all_groups_run(self, data: st.DataObject, groups: int, succeed: bool) -> None:
        driver = self.driver(data)
        for group in range(groups):
            self.job(driver, group, succeed)

    @precondition(lambda self: self.lost)
    @rule()
    def a_watcher_reports_a_loss(self) -> None:
        self.pass_(2 * INTERVAL + 1)
        run, _ = self.lost.pop()
        event = self._loss(run)
        for side in self.sides:
            side.begin(WATCHER)
        self.deliver(WATCHER, event)
        for side in self.sides:
            side.end(WATCHER, is_killed=False)
        self.sightings.see(event)
        if event.attributes["incident.role"] == "alarm":
            self.holds.add(APPLICATION)

    @precondition(lambda self: self.drivers)
    @rule(is_noticed=st.booleans(), pauses=st.lists(st.sampled_from((10.0, 130.0)), max_size=2))
    def an_overlapping_run_is_lost(self, is_noticed: bool, pauses: list[float]) -> None:
        """A later run commits before and after an earlier one dies."""
        if len(self.drivers) == 1:
            self.start()
        earlier, later = self.drivers
        self.query(later, "clicks")
        self.commit_of(later, later.runs["clicks"])
        self.die(earlier, is_noticed)
        if not is_noticed:
            self.a_watcher_reports_a_loss()
        for pause in pauses:
            self.pass_(pause)
            self.commit_of(later, later.runs["clicks"])

    def loss(self, lost: Driver, event: Event) -> Event:
        """The next run finds the lost run by its file, or in the database."""
        return event if lost.number % 2 else self._loss(lost)

    def _loss(self, lost: Driver) -> Event:
        (sighting,) = [one for one in self.sightings if one.identity[0] == f"local-{lost.number}"]
        return sighting.lost(self.sightings.works_since(sighting))

    @precondition(lambda self: self.is_new)
    @rule()
    def all_is_quiet(self) -> None:
        """After the longest interval, each running query commits; after another one, nothing may be left to send."""
        self.world.disk = ()
        if not self.drivers:
            # Only a living process sends the recoveries that a killed process has deferred.
            self.start()
        self.pass_(COOLDOWN + 120)
        for driver in self.drivers:
            for run in driver.runs.values():
                self.commit_of(driver, run)
        self.pass_(COOLDOWN + 120)
        for side in self.sides:
            side.check(self.prefix, self.holds)
        self.is_new = False


@pytest.fixture(scope="module")
def destinations() -> Iterator[tuple[Receiver, Alertmanager]]:
    with Receiver() as receiver, Alertmanager() as alertmanager:
        yield receiver, alertmanager


def test_exactly_the_causes_that_hold_are_open(destinations: tuple[Receiver, Alertmanager]) -> None:
    receiver, alertmanager = destinations
    machine = type("Machine", (Everything,), {"receiver": receiver, "alertmanager": alertmanager})
    few = settings(
        max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    run_state_machine_as_test(machine, settings=few)
