"""A model of incidents: exactly the causes that still hold are open, whatever drivers and sidecars do."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

from fakes import (
    START,
    application_end,
    application_start,
    decoded,
    query_progress,
    query_started,
    query_terminated,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from property.applications import iso
from spark_events import Event, Severity
from spark_events.translate.config import TranslateConfig
from spark_events.translate.incidents.config import AlarmConfig
from spark_events.translate.translator import Translator

QUERIES = ("clicks", "orders")
CONFIG = TranslateConfig(alarms=AlarmConfig(jobs=re.compile("group")))
APPLICATION = "shop/failure"
ERROR = "java.io.IOException: No space left on device"


class Receiver:
    """What a service such as PagerDuty has open: alarms trigger, recoveries resolve."""

    def __init__(self) -> None:
        self.open: set[str] = set()

    def receive(self, events: Sequence[Event]) -> None:
        for event in events:
            about = event.attributes
            if about.get("incident.role") == "recovery":
                self.open -= {str(about["incident.key"]), *json.loads(str(about.get("incident.more_keys", "[]")))}
            elif event.severity >= Severity.ERROR:
                assert about["incident.role"] == "alarm"
                self.open.add(str(about["incident.key"]))


@dataclasses.dataclass
class Run:
    """One run of a query in a driver."""

    id: str
    query: str
    batch: int = -1
    has_committed: bool = False


class Driver:
    """One run of the application, with a sidecar that may be killed and restarted at any time."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.translator = Translator(CONFIG)
        self.kept: list[dict[str, Any]] = []
        self.memory = ""
        self.runs: dict[str, Run] = {}
        self.jobs = 0
        self.failed: set[int] = set()
        #: What failed last, if nothing succeeded since: "job" or "query".
        self.standing = ""
        self.has_recovered = False
        self.tell(application_start(app_id=f"local-{number}"), keep=True)

    def tell(self, *records: dict[str, Any], keep: bool = False) -> list[Event]:
        events = [event for record in records for event in self.translator.translate(decoded(record))]
        self.memory = self.translator.take_memory() or self.memory
        self.kept += records if keep else []
        return events

    def restart(self) -> None:
        """Replace the sidecar; the driver keeps what `RestoreState.java` keeps."""
        self.translator = Translator(CONFIG)
        self.translator.load_memory(self.memory)
        for record in self.kept:
            self.translator.restore(decoded(record))


class Incidents(RuleBasedStateMachine):
    """Drivers of one application, a receiver of their events, and the causes that hold."""

    def __init__(self) -> None:
        super().__init__()
        self.receiver = Receiver()
        self.drivers: list[Driver] = []
        self.lost: list[Event] = []
        self.holds: set[str] = set()
        self.started = 0
        self.now = START

    @initialize()
    def begin(self) -> None:
        self.start()

    def tick(self) -> int:
        self.now += 1_000
        return self.now

    def receive(self, events: Sequence[Event]) -> None:
        self.receiver.receive(events)

    @precondition(lambda self: len(self.drivers) < 2)
    @rule()
    def start(self) -> None:
        """Start a run: a restart after an end, or a second driver with the same name."""
        self.started += 1
        self.drivers.append(Driver(self.started))

    def driver(self, data: st.DataObject) -> Driver:
        return data.draw(st.sampled_from(self.drivers))

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), query=st.sampled_from(QUERIES))
    def start_query(self, data: st.DataObject, query: str) -> None:
        driver = self.driver(data)
        if query in driver.runs:
            return
        run = driver.runs[query] = Run(f"r{driver.number}-{self.tick()}", query)
        self.receive(driver.tell(query_started(run.id, query, query, at=self.now), keep=True))

    @precondition(lambda self: any(driver.runs for driver in self.drivers))
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        driver = data.draw(st.sampled_from([driver for driver in self.drivers if driver.runs]))
        run = data.draw(st.sampled_from(list(driver.runs.values())))
        run.batch += 1
        at = self.tick()
        stamp = iso(at)
        self.receive(driver.tell(query_progress(run.batch, run.id, run.query, name=run.query, timestamp=stamp, at=at)))
        if not run.has_committed:
            run.has_committed = True
            self.holds.discard(f"shop/query={run.query}/failure")
        if not driver.has_recovered:
            driver.has_recovered = True
            self.holds.discard(APPLICATION)
        driver.standing = ""

    @precondition(lambda self: any(driver.runs for driver in self.drivers))
    @rule(data=st.data())
    def fail_query(self, data: st.DataObject) -> None:
        driver = data.draw(st.sampled_from([driver for driver in self.drivers if driver.runs]))
        run = driver.runs.pop(data.draw(st.sampled_from(list(driver.runs))))
        ended = query_terminated(run.id, run.query, exception=ERROR, at=self.tick())
        self.receive(driver.tell(ended, keep=True))
        self.holds.add(f"shop/query={run.query}/failure")
        driver.standing = "query"

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), group=st.integers(0, 200), succeeds=st.booleans(), is_watched=st.booleans())
    def run_job(self, data: st.DataObject, group: int, succeeds: bool, is_watched: bool) -> None:
        driver = self.driver(data)
        driver.jobs += 1
        name = f"group {group}" if is_watched else f"other {group}"
        moment = {"job_id": driver.jobs, "time": self.tick(), "at": self.now}
        failure = {"chain": [{"type": "java.io.IOException", "message": "disk"}], "trace": ERROR}
        end = {"kind": "job_end", **moment, **({} if succeeds else {"failure": failure})}
        self.receive(driver.tell({"kind": "job_start", **moment, "properties": {"spark.jobGroup.id": name}}, end))
        key = f"shop/job={name}/failure"
        driver.standing = "" if succeeds else "job"
        if is_watched and succeeds:
            self.holds.discard(key)
            driver.failed.discard(group)
        elif is_watched:
            self.holds.add(key)
            driver.failed.add(group)

    @precondition(lambda self: self.drivers)
    @rule(data=st.data())
    def restart_sidecar(self, data: st.DataObject) -> None:
        driver = self.driver(data)
        driver.restart()
        # A new sidecar does not know which groups have failed; each closes with its next success.
        driver.failed.clear()
        # It may repeat a recovery.
        driver.has_recovered = False
        for run in driver.runs.values():
            run.has_committed = False

    def end(self, driver: Driver, ending: str, **about: Any) -> None:
        at = self.tick()
        self.drivers.remove(driver)
        self.receive(driver.tell(application_end(ending, at=at, time=at, **about)))

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), is_known=st.booleans())
    def stop(self, data: st.DataObject, is_known: bool) -> None:
        """End a run by stop(), maybe in a finally block: the exit code is 0, or unknown."""
        driver = self.driver(data)
        self.end(driver, "STOPPED", **({"program_exit_code": 0} if is_known else {}))
        if not is_known and driver.standing:
            if driver.standing == "job":
                self.holds.add(APPLICATION)
            return
        self.holds -= {APPLICATION, *(f"shop/job=group {group}/failure" for group in driver.failed)}
        self.holds -= {f"shop/query={run.query}/failure" for run in driver.runs.values() if not run.has_committed}

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), minutes=st.sampled_from([0, 10]))
    def fail(self, data: st.DataObject, minutes: int) -> None:
        driver = self.driver(data)
        self.now += minutes * 60_000
        is_consequence = driver.standing == "query" and not driver.runs and minutes == 0 and self.is_soon(driver)
        self.end(driver, "PROGRAM_FAILED", program_exit_code=1)
        if not is_consequence:
            self.holds.add(APPLICATION)

    def is_soon(self, driver: Driver) -> bool:
        failed = [record["at"] for record in driver.kept if record["kind"] == "query_terminated"]
        return bool(self.now + 1_000 - failed[-1] <= 10_000)

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), is_noticed=st.booleans())
    def kill(self, data: st.DataObject, is_noticed: bool) -> None:
        """Kill a driver. Its sidecar reports the loss, or dies with it; then a later run reports the loss."""
        driver = self.driver(data)
        self.drivers.remove(driver)
        events = driver.translator.driver_lost(self.tick(), orderly=False)
        if is_noticed:
            self.receive(events)
            self.holds.add(APPLICATION)
        else:
            self.lost += [event for event in events if event.severity is Severity.FATAL]

    @precondition(lambda self: self.lost and self.drivers)
    @rule(data=st.data())
    def report_a_predecessor(self, data: st.DataObject) -> None:
        driver = self.driver(data)
        self.receive([driver.translator.predecessor_ended(self.lost.pop())])
        if not driver.has_recovered:
            self.holds.add(APPLICATION)

    @invariant()
    def exactly_the_causes_that_hold_are_open(self) -> None:
        assert self.receiver.open == self.holds


TestIncidents = Incidents.TestCase
TestIncidents.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
