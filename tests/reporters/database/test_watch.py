"""Tests of `spark-events watch` on a database: applications whose heartbeats have stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fakes import START, application_end, application_start, decoded

from reporters.database.databases import Database
from spark_events import Event
from spark_events.clocks import Clocks
from spark_events.config import Secret
from spark_events.reporters.database.database_config import DatabaseConfig, database_url
from spark_events.reporters.database.database_reporter import DatabaseReporter
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator
from spark_events.watch.event_database import EventDatabase
from spark_events.watch.sightings import Sightings
from spark_events.watch.watcher import WatchConfig, Watcher

MINUTE = 60_000


class Kept:
    """Destination that stores its events in a list."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def take(self, events: Sequence[Event]) -> None:
        self.events.extend(events)

    def close(self) -> int:
        self.meanwhile()
        return 0


def config_of(database: Database) -> DatabaseConfig:
    password = database.settings.get("password")
    return DatabaseConfig(database_url.parse(database.settings["url"]), None if password is None else Secret(password))


def write(config: DatabaseConfig, app_id: str, *, ends: bool = False, attempt: str | None = None) -> None:
    translator = Translator(TranslateConfig(heartbeat_interval=60.0))
    start = application_start(app_id=app_id, app_name=f"shop of {app_id}", attempt_id=attempt)
    events = translator.translate(decoded(start))
    for minute in range(5):
        events += translator.tick(START + minute * MINUTE)
    if ends:
        events += translator.translate(decoded(application_end()))
    reporter = DatabaseReporter(config)
    reporter.open()
    reporter.report(events)
    reporter.close()


def watcher_of(config: DatabaseConfig, sink: Kept) -> Watcher:
    clocks = Clocks(lambda: START / 1000 + 600, lambda: 600.0)
    return Watcher(EventDatabase(config), lambda: sink, WatchConfig(since=86_400), clocks)


def test_a_lost_application_is_reported_once_and_recorded_in_the_database(database: Database) -> None:
    """If two watchers report a lost application, the database has one row for the loss, and the views show the loss."""
    config = config_of(database)
    write(config, "good", ends=True)
    write(config, "bad")
    write(config, "tried", attempt="1")
    write(config, "tried", attempt="2", ends=True)
    sinks = [Kept(), Kept(), Kept()]
    watchers = [watcher_of(config, sink) for sink in sinks]
    # The second watcher checks while the first one is delivering its events.
    sinks[0].meanwhile = watchers[1].look
    watchers[0].look()
    watchers[2].look()
    assert sinks[0].events == sinks[1].events
    assert sinks[2].events == []
    assert sorted(str(event.attributes["spark.app.id"]) for event in sinks[0].events) == ["bad", "tried"]
    lost_ids = database.query("SELECT app_id FROM spark_events WHERE status = 'LOST' ORDER BY app_id")
    assert lost_ids == [("bad",), ("tried",)]
    assert database.query("SELECT status FROM spark_events_runs WHERE app_id = 'bad'") == [("LOST",)]


def test_the_applications_of_one_name(database: Database) -> None:
    """If an application is selected by name, the database returns only the heartbeats of this application."""
    config = config_of(database)
    write(config, "a")
    write(config, "b")
    sightings = Sightings()
    EventDatabase(config, "shop of b").read(sightings, 0)
    assert [seen.name for seen in sightings] == ["shop of b"]
