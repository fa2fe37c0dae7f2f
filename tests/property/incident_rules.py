"""Rules for drivers and sidecars of one application, and the causes of incidents that hold.

The rules send real records to real translators.
"""

from __future__ import annotations

import dataclasses
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
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from property.applications import iso
from spark_events import Event, Severity
from spark_events.translate.incidents.incident_config import AlarmConfig
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

QUERIES = ("clicks", "orders")
#: Job groups whose failures are alarms, other job groups, and no job group.
KINDS = st.sampled_from(("group", "other", ""))
CONFIG = TranslateConfig(alarms=AlarmConfig(jobs=re.compile("group")))
APPLICATION = "shop/failure"
ERROR = "java.io.IOException: No space left on device"


@dataclasses.dataclass
class Run:
    """One run of a query in a driver."""

    id: str
    query: str
    batch: int = -1
    has_committed: bool = False


class Driver:
    """One run of the application, with a sidecar that may be killed and restarted at any time."""

    def __init__(self, number: int, config: TranslateConfig, at: int) -> None:
        self.number = number
        self.started = at
        self.skew = 0
        self._config = config
        self.translator = Translator(config)
        self.kept: list[dict[str, Any]] = []
        self.memory = ""
        self.runs: dict[str, Run] = {}
        self.jobs = 0
        self.failed: set[int] = set()
        #: By query or job group, "" for none, what failed without a later success: "job" or "query".
        self.standing: dict[str, str] = {}
        #: Whether something has succeeded since the last failure.
        self.is_followed = False
        #: Whether this run has shown success; times of its last commit, and of the last that closed the application.
        self.has_recovered = False
        self.committed_at = self.recovered_at = 0

    def tell(self, *records: dict[str, Any], keep: bool = False) -> list[Event]:
        events = [event for record in records for event in self.translator.translate(decoded(record))]
        self.memory = self.translator.take_memory() or self.memory
        self.kept += records if keep else []
        return events

    @property
    def last(self) -> str:
        """The latest failure that no success has followed."""
        return next(reversed(self.standing.values()), "")

    def failed_to(self, work: str, kind: str) -> None:
        self.standing.pop(work, None)
        self.standing[work], self.is_followed = kind, False

    def succeeded(self, work: str) -> None:
        self.standing.pop(work, None)
        self.standing.pop("", None)
        self.is_followed = True

    def commits(self, at: int) -> bool:
        """Note a commit; return whether it closes the incident of the application."""
        interval = self._config.heartbeat_interval
        is_rare = interval is not None and abs(at - self.committed_at) > 2_000 * interval
        self.committed_at = at
        if self.has_recovered and not is_rare and abs(at - self.recovered_at) < 600_000:
            return False
        self.has_recovered, self.recovered_at = True, at
        return True

    def restart(self) -> None:
        """Replace the sidecar; the driver keeps what `RestoreState.java` keeps."""
        self.translator = Translator(self._config)
        self.translator.load_memory(self.memory)
        for record in self.kept:
            self.translator.restore(decoded(record))


class Incidents(RuleBasedStateMachine):
    """Drivers of one application, and the causes that hold."""

    config = CONFIG

    def __init__(self) -> None:
        super().__init__()
        self.drivers: list[Driver] = []
        #: Runs whose loss was not reported yet, with the event that reports it.
        self.lost: list[tuple[Driver, Event]] = []
        self.holds: set[str] = set()
        self.started = 0
        self.now = START

    @initialize()
    def begin(self) -> None:
        self.start()

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.now += round(seconds * 1_000)

    def tick(self, driver: Driver) -> int:
        """Let a second pass, and return the time of the driver's clock."""
        self.pass_(1)
        return self.now + driver.skew

    def receive(self, driver: Driver, events: Sequence[Event]) -> None:
        """Accept the events of a driver."""
        raise NotImplementedError

    def entered(self, driver: Driver) -> None:
        """Note that a driver and its sidecar have started."""

    def replaced(self, driver: Driver) -> None:
        """Note that a driver's sidecar was killed and replaced."""

    def left(self, driver: Driver, *, is_killed: bool) -> None:
        """Note that a driver has ended, and its sidecar after it."""
        self.drivers.remove(driver)

    @precondition(lambda self: len(self.drivers) < 2)
    @rule()
    def start(self) -> None:
        """Start a run: a restart after an end, or a second driver with the same name."""
        self.started += 1
        driver = Driver(self.started, self.config, self.now)
        self.drivers.append(driver)
        self.entered(driver)
        at = self.tick(driver)
        started = application_start(app_id=f"local-{self.started}", time=at, at=at)
        self.receive(driver, driver.tell(started, keep=True))

    def driver(self, data: st.DataObject) -> Driver:
        return data.draw(st.sampled_from(self.drivers))

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), query=st.sampled_from(QUERIES))
    def start_query(self, data: st.DataObject, query: str) -> None:
        self.query(self.driver(data), query)

    def query(self, driver: Driver, query: str) -> None:
        if query in driver.runs:
            return
        at = self.tick(driver)
        run = driver.runs[query] = Run(f"r{driver.number}-{self.now}", query)
        self.receive(driver, driver.tell(query_started(run.id, query, query, at=at), keep=True))

    @precondition(lambda self: any(driver.runs for driver in self.drivers))
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        driver = data.draw(st.sampled_from([driver for driver in self.drivers if driver.runs]))
        self.commit_of(driver, data.draw(st.sampled_from(list(driver.runs.values()))))

    def commit_of(self, driver: Driver, run: Run) -> None:
        run.batch += 1
        at = self.tick(driver)
        progress = query_progress(run.batch, run.id, run.query, name=run.query, timestamp=iso(at), at=at)
        self.receive(driver, driver.tell(progress))
        if not run.has_committed:
            run.has_committed = True
            self.holds.discard(f"shop/query={run.query}/failure")
        if driver.commits(at):
            self.holds.discard(APPLICATION)
        driver.succeeded(run.query)

    @precondition(lambda self: any(driver.runs for driver in self.drivers))
    @rule(data=st.data())
    def fail_query(self, data: st.DataObject) -> None:
        driver = data.draw(st.sampled_from([driver for driver in self.drivers if driver.runs]))
        run = driver.runs.pop(data.draw(st.sampled_from(list(driver.runs))))
        ended = query_terminated(run.id, run.query, exception=ERROR, at=self.tick(driver))
        self.receive(driver, driver.tell(ended, keep=True))
        self.holds.add(f"shop/query={run.query}/failure")
        driver.failed_to(run.query, "query")

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), group=st.integers(0, 200), succeeds=st.booleans(), kind=KINDS)
    def run_job(self, data: st.DataObject, group: int, succeeds: bool, kind: str) -> None:
        self.job(self.driver(data), group, succeeds, kind)

    def job(self, driver: Driver, group: int, succeeds: bool, kind: str = "group") -> None:
        driver.jobs += 1
        name, is_watched = f"{kind} {group}" if kind else "", kind == "group"
        at = self.tick(driver)
        moment = {"job_id": driver.jobs, "time": at, "at": at}
        failure = {"chain": [{"type": "java.io.IOException", "message": "disk"}], "trace": ERROR}
        end = {"kind": "job_end", **moment, **({} if succeeds else {"failure": failure})}
        properties = {"spark.jobGroup.id": name} if name else {}
        self.receive(driver, driver.tell({"kind": "job_start", **moment, "properties": properties}, end))
        key = f"shop/job={name}/failure"
        if succeeds:
            driver.succeeded(name)
        else:
            driver.failed_to(name, "job")
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
        self.replaced(driver)
        # A new sidecar does not know which groups have failed; each closes with its next success.
        driver.failed.clear()
        # It may repeat a recovery.
        driver.has_recovered = False
        for run in driver.runs.values():
            run.has_committed = False

    def end(self, driver: Driver, ending: str, **about: Any) -> None:
        at = self.tick(driver)
        self.receive(driver, driver.tell(application_end(ending, at=at, time=at, **about)))
        self.left(driver, is_killed=False)

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), is_known=st.booleans())
    def stop(self, data: st.DataObject, is_known: bool) -> None:
        """End a run by stop(), maybe in a finally block: the exit code is 0, or unknown."""
        driver = self.driver(data)
        self.end(driver, "STOPPED", **({"program_exit_code": 0} if is_known else {}))
        if not is_known and driver.standing:
            if driver.last == "job":
                self.holds.add(APPLICATION)
            return
        failed = {query for query, kind in driver.standing.items() if kind == "query"}
        self.holds -= {f"shop/query={query}/failure" for query in failed}
        self.holds -= {APPLICATION, *(f"shop/job=group {group}/failure" for group in driver.failed)}
        self.holds -= {f"shop/query={run.query}/failure" for run in driver.runs.values() if not run.has_committed}

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), minutes=st.sampled_from([0, 10]))
    def fail(self, data: st.DataObject, minutes: int) -> None:
        driver = self.driver(data)
        self.pass_(minutes * 60)
        is_consequence = driver.last == "query" and not driver.is_followed and not driver.runs and minutes == 0
        is_consequence = is_consequence and self.is_soon(driver)
        self.end(driver, "PROGRAM_FAILED", program_exit_code=1)
        if not is_consequence:
            self.holds.add(APPLICATION)

    def is_soon(self, driver: Driver) -> bool:
        failed = [record["at"] for record in driver.kept if record["kind"] == "query_terminated"]
        return bool(-60_000 <= self.now + 1_000 + driver.skew - failed[-1] <= 10_000)

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), is_noticed=st.booleans())
    def kill(self, data: st.DataObject, is_noticed: bool) -> None:
        """Kill a driver. Its sidecar reports the loss, or dies with it; then a later run reports the loss."""
        self.die(self.driver(data), is_noticed)

    def die(self, driver: Driver, is_noticed: bool) -> None:
        events = driver.translator.driver_lost(self.tick(driver), orderly=False)
        if is_noticed:
            self.receive(driver, events)
            self.holds.add(APPLICATION)
        else:
            self.lost += [(driver, event) for event in events if event.severity is Severity.FATAL]
        self.left(driver, is_killed=not is_noticed)

    @precondition(lambda self: self.lost and self.drivers)
    @rule(data=st.data())
    def report_a_predecessor(self, data: st.DataObject) -> None:
        driver = self.driver(data)
        event = self.loss(*self.lost.pop())
        self.receive(driver, [driver.translator.predecessor_ended(event)])
        if event.severity is Severity.FATAL and not driver.has_recovered:
            self.holds.add(APPLICATION)

    def loss(self, lost: Driver, event: Event) -> Event:
        """Return the event about a lost run, as the next run reports it."""
        return event
