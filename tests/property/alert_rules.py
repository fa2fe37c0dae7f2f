"""Rules that open and close alerts, with drivers that fail and clocks that jump, and the expected result.

Whenever all is quiet for the cooldown, the destination shows exactly the causes that still hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, Protocol

import msgspec
from fakes import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from virtual_time import VirtualLoop

from spark_events import Event, Severity
from spark_events.loops import unwind
from spark_events.reporters.alerts.alert_files import AlertFiles
from spark_events.reporters.alerts.alert_memory import AlertMemory
from spark_events.reporters.alerts.alert_requests import AlertFormat
from spark_events.reporters.alerts.sender import AlertSender, SenderConfig
from spark_events.reporters.alerts.states import AlertsConfig
from spark_events.reporters.alerts.store import Alerts

__all__ = ["COOLDOWN", "FAULTS", "AlertRules", "Destination", "Machine", "Process", "World"]

#: No step of the rules ends at the same time as a cooldown: two requests at the same time have no defined order.
COOLDOWN = 600.37
KEYS = ("environment=prod/shop/failure", "shop/query=a/failure", "shop/query=a/overdue")
DRIVERS = st.sampled_from((0, 1))
FAULTS = {"full": ("write",), "no unlink": ("delete",), "read-only": ("write", "delete")}


class Destination(Protocol):
    """Destination of alerts."""

    form: AlertFormat

    def post(self, body: Any, now: float) -> None:
        """Accept a request at a time in seconds since the epoch."""

    def open_keys(self, now: float) -> set[str]:
        """Return the keys of open alerts."""


class Machine(Protocol):
    """What a process needs of the rules that run it."""

    loop: VirtualLoop
    folder: Path
    world: World

    @property
    def destination(self) -> Destination: ...

    @property
    def now(self) -> float: ...

    def wall(self, driver: int) -> float: ...

    def changed(self, driver: int, key: str) -> None: ...


class Killed(BaseException):
    """The process was killed."""


class Refused(Exception):
    """The destination did not answer, or refused the request for now."""


@dataclasses.dataclass
class World:
    """Faults that the rules inject.

    Attributes:
        disk: operations on files that fail.
        refusals: for each of the next requests, whether the destination accepts it before the connection breaks.
    """

    disk: tuple[str, ...] = ()
    refusals: list[bool] = dataclasses.field(default_factory=list)


class Process:
    """Sidecar of one driver, killed before or after its n-th request or change of a file."""

    def __init__(self, rules: Machine, number: int, dies_in: int | None = None, dies_after: bool = False) -> None:
        self._rules = rules
        self.is_dead = False
        self.steps_left = dies_in
        self._dies_after = dies_after
        self.files = FaultyFiles(self, rules.world, rules.folder, lambda key: rules.changed(number, key))
        config = AlertsConfig(cooldown=COOLDOWN)
        alerts = Alerts(AlertMemory(self.files, config, rules.loop.time, lambda: rules.wall(number)), config)
        self.sender = AlertSender(rules.destination.form, alerts, self._post, SenderConfig(), self._sleep)

    def may_die(self, is_done: bool) -> None:
        """Raise an exception if the process is dead, or dies here.

        Args:
            is_done: whether the process has just made a request or a change; otherwise it is about to.
        """
        if self.is_dead:
            raise Killed
        if self.steps_left is not None and is_done is self._dies_after:
            self.steps_left -= 1
            if self.steps_left < 0:
                self.is_dead = True
                raise Killed

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.may_die(False)

    async def _post(self, body: bytes) -> None:
        self.may_die(False)
        await asyncio.sleep(0.001)
        world = self._rules.world
        is_refused = bool(world.refusals)
        if not is_refused or world.refusals.pop(0):
            self._rules.destination.post(json.loads(body), self._rules.now)
        self.may_die(True)
        if is_refused:
            raise Refused


class FaultyFiles(AlertFiles):
    """Files on a disk that may be full or read-only.

    Attributes:
        lost: keys whose last change could not be stored.
    """

    def __init__(self, process: Process, world: World, folder: Path, on_change: Callable[[str], None]) -> None:
        super().__init__("destination", folder)
        self._process = process
        self._world = world
        self._on_change = on_change
        self.lost: set[str] = set()

    def write(self, key: str, content: bytes) -> None:
        self._change("write", key, lambda: AlertFiles.write(self, key, content))

    def delete(self, path: Path) -> None:
        key = ""
        # A damaged file has no key.
        with contextlib.suppress(OSError, ValueError):
            key = json.loads(path.read_bytes())["key"]
        self._change("delete", key, lambda: AlertFiles.delete(self, path))

    def _change(self, operation: str, key: str, change: Callable[[], None]) -> None:
        self._process.may_die(False)
        self._on_change(key)
        if operation in self._world.disk:
            self.lost.add(key)
            raise OSError(errno.EROFS, "Read-only file system")
        change()
        self.lost.discard(key)
        self._process.may_die(True)


class AlertRules(RuleBasedStateMachine):
    """Two drivers that report the same work to one destination, and share a folder.

    The rules deliver each event until the destination accepts it, as an ``at-least-once`` reporter does. A result is
    only unknown if a change of an alert is on no disk, and its process has died or another driver has acted meanwhile.
    """

    has_disk_faults = True
    has_several_keys = True

    def __init__(self) -> None:
        super().__init__()
        # The rules cause thousands of expected warnings.
        logging.getLogger("spark_events").setLevel(logging.CRITICAL)
        self.loop = VirtualLoop()
        # The timer of a killed process raises an exception that nobody awaits.
        self.loop.set_exception_handler(lambda *_: None)
        self.folder = Path(tempfile.mkdtemp(prefix="spark-events-alerts-"))
        self.destination = self.make()
        self.world = World()
        self.skews = [0.0, 0.0]
        self.holds: dict[str, bool] = {}
        self.unknown: set[str] = set()
        self.orphans: set[str] = set()
        self.last: list[Event | None] = [None, None]
        self.processes: list[Process] = []
        self.processes += [self._started(0), self._started(1)]

    def make(self) -> Destination:
        """Return a new destination."""
        raise NotImplementedError

    @property
    def start(self) -> float:
        """Time of the start, in seconds since the epoch."""
        return 1_800_000_000.0

    @property
    def now(self) -> float:
        """Time of the destination, in seconds since the epoch."""
        return self.start + self.loop.now

    def wall(self, driver: int) -> float:
        """Return the time of a driver's clock, in seconds since the epoch."""
        return self.now + self.skews[driver]

    # --- rules --------------------------------------------------------------------------------

    @initialize(skews=st.lists(st.sampled_from((-3600.0, -1.0, 0.0, 0.2, 2.0, 3600.0)), min_size=2, max_size=2))
    def clocks_differ(self, skews: list[float]) -> None:
        self.skews = skews

    @rule(driver=DRIVERS, key=st.sampled_from(KEYS), is_worse=st.booleans())
    def fail(self, driver: int, key: str, is_worse: bool) -> None:
        is_warning = key.endswith("overdue") and not is_worse
        self._deliver(driver, self._event(driver, "alarm", [key], Severity.WARN if is_warning else Severity.ERROR))

    @rule(driver=DRIVERS, keys=st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
    def recover(self, driver: int, keys: list[str]) -> None:
        self._deliver(driver, self._event(driver, "recovery", keys if self.has_several_keys else keys[:1]))

    @rule(key=st.sampled_from(KEYS), driver=DRIVERS, pause=st.sampled_from((1.0, 60.0)))
    def flap(self, key: str, driver: int, pause: float) -> None:
        for _ in range(3):
            self.fail(driver, key, True)
            self.time_passes(pause)
            self.recover(driver, [key])

    @rule(seconds=st.sampled_from((1.0, 60.0, 599.0, 601.0, 1800.0)))
    def time_passes(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        for driver, process in enumerate(self.processes):
            if process.is_dead:
                self._restart(driver)

    @rule(driver=DRIVERS, seconds=st.sampled_from((-3600.0, -60.0, -0.5, 0.5, 60.0, 3600.0)))
    def clock_jumps(self, driver: int, seconds: float) -> None:
        self.skews[driver] = max(-86_400.0, min(86_400.0, self.skews[driver] + seconds))

    @rule(accepts=st.lists(st.booleans(), min_size=1, max_size=3))
    def destination_fails(self, accepts: list[bool]) -> None:
        self.world.refusals = accepts

    @precondition(lambda self: self.has_disk_faults)
    @rule(fault=st.sampled_from(sorted(FAULTS)))
    def disk_fails(self, fault: str) -> None:
        self.world.disk = FAULTS[fault]

    @precondition(lambda self: self.has_disk_faults)
    @rule()
    def disk_works(self) -> None:
        self.world.disk = ()

    @rule(driver=DRIVERS, steps=st.integers(0, 4), after=st.booleans())
    def dies_soon(self, driver: int, steps: int, after: bool) -> None:
        self._restart(driver, steps, after)

    @rule(driver=DRIVERS, is_clean=st.booleans())
    def restarts(self, driver: int, is_clean: bool) -> None:
        process = self.processes[driver]
        if is_clean and not process.is_dead:
            with contextlib.suppress(Killed):
                self.loop.run_until_complete(process.sender.close())
        self._restart(driver)

    @rule(driver=DRIVERS)
    def last_event_arrives_again(self, driver: int) -> None:
        if (event := self.last[driver]) is not None:
            self._restart(driver)
            self._deliver(driver, event)

    @rule()
    def all_is_quiet(self) -> None:
        self.world.disk, self.world.refusals = (), []
        for driver, process in enumerate(self.processes):
            process.steps_left = None
            if process.is_dead:
                self._restart(driver)
        self.time_passes(COOLDOWN + 120.0)
        self._check()

    @rule()
    def all_applications_end(self) -> None:
        """A later process is needed only for recoveries that a killed process had deferred."""
        self.world.disk, self.world.refusals = (), []
        for driver in range(len(self.processes)):
            if self.processes[driver].is_dead:
                self._restart(driver)
            self.processes[driver].steps_left = None
            self.loop.run_until_complete(self.processes[driver].sender.close())
        self._check(self.orphans)
        for driver in range(len(self.processes)):
            self._restart(driver)

    def _check(self, ignored: Set[str] = frozenset()) -> None:
        expected = {key for key, holds in self.holds.items() if holds}
        ignored = ignored | self.unknown
        assert self.destination.open_keys(self.now) - ignored == expected - ignored

    def teardown(self) -> None:
        self.all_is_quiet()
        logging.getLogger("spark_events").setLevel(logging.NOTSET)
        unwind(self.loop)
        self.loop.close()
        shutil.rmtree(self.folder)

    def changed(self, driver: int, key: str) -> None:
        """Note that a driver acts on an alert; the other driver may have a change that it could not store."""
        self.unknown |= {key} & self.processes[1 - driver].files.lost

    # --- drivers --------------------------------------------------------------------------------

    def _event(self, driver: int, role: str, keys: list[str], severity: Severity = Severity.INFO) -> Event:
        about = {"incident.role": role, "incident.key": keys[0], "spark.app.name": "shop", "spark.tag.team": "data"}
        if keys[1:]:
            about["incident.more_keys"] = json.dumps(keys[1:])
        made = event(0, severity, **about)
        at = round(self.wall(driver) * 1000)
        return msgspec.structs.replace(made, body=f"shop: {keys[0]}", observed_ts_millis=at)

    def _deliver(self, driver: int, event: Event) -> None:
        more = json.loads(str(event.attributes.get("incident.more_keys", "[]")))
        keys = {str(event.attributes["incident.key"]), *more}
        for key in keys:
            self.changed(driver, key)
        while True:
            try:
                for part in self.processes[driver].sender.parts([event])[::-1]:
                    self.loop.run_until_complete(self.processes[driver].sender.send(part))
                break
            except Refused:
                continue
            except Killed:
                self._restart(driver)
        if self.processes[1 - driver].is_dead:
            self._restart(1 - driver)
        self.holds |= dict.fromkeys(keys, event.attributes["incident.role"] == "alarm")
        self.last[driver], self.last[1 - driver] = event, None

    def _restart(self, driver: int, dies_in: int | None = None, dies_after: bool = False) -> None:
        self._end(self.processes[driver])
        self.processes[driver] = self._started(driver, dies_in, dies_after)

    def _started(self, driver: int, dies_in: int | None = None, dies_after: bool = False) -> Process:
        process = Process(self, driver, dies_in, dies_after)

        async def open_sender() -> None:
            process.sender.open()
            # Let the process send the recoveries that are due.
            await asyncio.sleep(0.05)

        try:
            self.loop.run_until_complete(open_sender())
        except Killed:
            return self._started(driver)
        return process

    def _end(self, process: Process) -> None:
        """Kill a process: it changes nothing more, and what it could not store is lost."""
        process.is_dead = True
        self.unknown |= process.files.lost
        stored = [json.loads(file.read_bytes()) for file in self.folder.glob("*.json")]
        self.orphans |= {one["key"] for one in stored if one["phase"] == "recovered"}
