"""Tests of the search for open runs of this application in a database, when a run starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from watching import INTERVAL, Life, VirtualClocks

from spark_events import Event
from spark_events.config import Secret
from spark_events.errors import SparkEventsError
from spark_events.records.types import ApplicationStart
from spark_events.reporters.database.database_config import DatabaseConfig
from spark_events.reporters.database.database_reporter import DatabaseReporter
from spark_events.watch.event_database import EventDatabase
from spark_events.watch.open_runs import OpenRuns
from spark_events.watch.watcher import WatchConfig


class Stage:
    """Database with runs of one application, and the search of the next run."""

    def __init__(self, folder: Path) -> None:
        self.time = VirtualClocks()
        self._config = DatabaseConfig(Secret(f"sqlite:///{folder / 'events.db'}"))

    def run(self, app_id: str) -> Life:
        return Life(app_id, "shop", lambda: self.time.wall)

    def write(self, *events: Event) -> None:
        reporter = DatabaseReporter(self._config)
        reporter.open()
        reporter.report(events)
        reporter.close()

    def search(self, app_id: str = "this", *, is_unique: bool = False, key: str = "shop/failure") -> OpenRuns:
        start = ApplicationStart(
            app_id=app_id, app_name="shop", attempt_id="2", user="", time=round(self.time.wall * 1000), spark_version=""
        )
        scope = {"spark.app.name": "shop", "incident.key": key}
        source = EventDatabase(self._config, "shop")
        return OpenRuns(source, start, scope, is_unique, self.time.clocks, WatchConfig())


def lost(search: OpenRuns) -> list[str]:
    return [one.identity[0] for one in search.look().lost]


@pytest.mark.parametrize("proof", ["unique", "attempt"])
def test_the_start_of_this_run_proves_the_end_of_earlier_runs(tmp_path: Path, proof: str) -> None:
    """An open run is LOST at once if the name is unique, or if it is an earlier attempt; a later run never is."""
    stage = Stage(tmp_path)
    life = stage.run("earlier")
    stage.write(life.start())
    search = stage.search("earlier" if proof == "attempt" else "this", is_unique=proof == "unique")
    assert lost(search) == ["earlier"]
    later = stage.run("later")
    stage.write(later.start(), later.beat())
    assert "later" not in lost(search)


def test_a_late_look_proves_nothing(tmp_path: Path) -> None:
    """If the database was not readable at the start, a run that is open later may have started after this run."""
    stage = Stage(tmp_path)
    search = stage.search(is_unique=True)
    with pytest.raises(SparkEventsError):
        search.look()
    life = stage.run("perhaps later")
    stage.write(life.start(), life.beat())
    assert lost(search) == []


def test_a_run_of_another_environment_is_not_searched(tmp_path: Path) -> None:
    """Only runs with this run's incident key are predecessors."""
    stage = Stage(tmp_path)
    life = stage.run("other")
    stage.write(life.start(), life.beat())
    stage.time.pass_(10 * INTERVAL)
    assert lost(stage.search(key="shop/test/failure")) == []
    assert lost(stage.search()) == ["other"]


def test_a_run_between_that_worked_is_evidence(tmp_path: Path) -> None:
    """If a run between has committed, the LOST event of the earlier run is no alarm."""
    stage = Stage(tmp_path)
    first, between = stage.run("first"), stage.run("between")
    stage.write(first.start(), first.beat())
    stage.time.pass_(INTERVAL)
    stage.write(between.start(), between.beat(), between.commit(), between.end("FAILED"))
    stage.time.pass_(2 * INTERVAL)
    search = stage.search()
    (found,) = search.look().lost
    event = found.lost(search.sightings.works_since(found))
    assert (event.severity.value, event.attributes["incident.role"]) == ("WARN", "member")


def test_the_pause_ends_when_a_run_would_be_lost(tmp_path: Path) -> None:
    """The search repeats when the next open run would be LOST, and ends without open runs."""
    stage = Stage(tmp_path)
    life = stage.run("first")
    stage.write(life.start(), life.beat())
    stage.time.pass_(90)
    search = stage.search()
    assert search.look().pause == pytest.approx(30)
    stage.write(life.end())
    assert search.look().pause is None
