"""Tests of the rows that the reporter ``database`` stores in SQLite and in a real PostgreSQL."""

from __future__ import annotations

import contextlib
import json
import stat
from pathlib import Path

import pytest
from fakes import event

from reporters.awkward import AWKWARD, awkward_event
from reporters.database.databases import Database, OfPostgreSQL
from reporters.peers.postgresql import PostgreSQL
from reporters.running import IMPATIENT, Running
from spark_events import Event, EventBuilder, Severity
from spark_events.event import Attributes
from spark_events.reporters.database import event_tables

BODIES = "SELECT body FROM spark_events ORDER BY observed_ts_millis"
#: Database role that does not own the tables.
WRITER = (
    "CREATE ROLE writer LOGIN PASSWORD 'w'",
    "GRANT INSERT, SELECT ON spark_events TO writer",
    "GRANT SELECT ON spark_events_schema TO writer",
)


def test_an_event_is_a_row_with_all_attributes(database: Database) -> None:
    """An event becomes a row, with its fields and common attributes in columns and all attributes as JSON."""
    attributes = {
        "spark.app.id": "app-1",
        "spark.streaming.query.name": "clicks",
        "spark.batch.id": 41,
        "spark.batch.rows_input": 6,
        "ratio": 0.5,
        "on": True,
    }
    sent = event(7, Severity.WARN, **attributes)
    with Running("database", database.settings) as running:
        running.deliver([sent])
    columns = "event_id, sequence, observed_ts_millis, CAST(observed_at AS TEXT), name, class_scope, severity"
    columns += ", severity_number, body, app_id, query_name, batch_id, input_rows, app_name, attributes"
    ((*fields, moment, name, scope, severity, number, body, app, query, batch, rows, missing, stored),) = [
        (row[0], row[1], row[2], row[3], *row[4:]) for row in database.query(f"SELECT {columns} FROM spark_events")
    ]
    assert fields == [sent.event_id, 0, 1_700_000_000_007]
    assert str(moment).startswith("2023-11-14 22:13:20.007")
    assert (name, scope, severity, number, body) == ("Test", "tests", "WARN", 13, "7")
    assert (app, query, batch, rows, missing) == ("app-1", "clicks", 41, 6, None)
    assert (json.loads(stored) if isinstance(stored, str) else stored) == attributes


def test_a_redelivered_event_is_one_row(database: Database) -> None:
    """Events are identified by their id: if an event is delivered again, even by another driver, no row is added."""
    events = [event(n) for n in range(5)]
    for _ in range(2):
        with Running("database", database.settings) as running:
            running.deliver([*events, *events])
            assert running.counters.delivered == 10
    assert [body for (body,) in database.query(BODIES)] == ["0", "1", "2", "3", "4"]


def test_every_character_arrives(database: Database) -> None:
    """Characters that no database can store are replaced. All other characters are stored unchanged."""
    attributes = {"text": f"{AWKWARD}\udfff", "key\0": "v", 'it\'s "%(x)s"': "w"}
    odd = awkward_event(attributes, name="N\0", event_id="id\0\ud800", observed_ts_millis=1)
    with Running("database", database.settings) as running:
        running.deliver([odd])
        assert (running.counters.delivered, running.counters.failures) == (1, 0)
    ((name, body, identifier, stored),) = database.query("SELECT name, body, event_id, attributes FROM spark_events")
    expected = AWKWARD.replace("\0", "␀")
    assert (name, body, identifier) == ("N␀", f"{expected}?", "id␀?")
    found = json.loads(stored) if isinstance(stored, str) else stored
    assert found == {"text": f"{expected}?", "key␀": "v", 'it\'s "%(x)s"': "w"}


def test_long_texts_and_extreme_times_are_stored(database: Database) -> None:
    """Long bodies are stored completely. Indexed columns are truncated."""
    long = "x" * 3_000_000
    odd = [
        Event(
            name=f"{long}name",
            class_scope="tests",
            body=long,
            severity=Severity.INFO,
            observed_ts_millis=millis,
            event_id=f"id-{millis}",
            attributes=Attributes({"spark.app.name": long, "spark.batch.id": "no number"}),
        )
        for millis in (0, 2**63 - 1)
    ]
    with Running("database", database.settings) as running:
        running.deliver(odd)
        assert (running.counters.delivered, running.counters.failures) == (2, 0)
    found = database.query(
        "SELECT length(name), length(body), length(app_name), batch_id, observed_at IS NULL"
        " FROM spark_events ORDER BY observed_ts_millis"
    )
    assert [tuple(row) for row in found] == [
        (255, 3_000_000, 255, None, False),
        (255, 3_000_000, 255, None, True),
    ]


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_constraint_rejects_only_the_violating_events(database: Database, isolation: str) -> None:
    """Events that violate a constraint of the table are counted as rejected. All other events are stored."""
    with Running("database", {**database.settings, "isolation": isolation, "timeout": "30s"}) as running:
        running.deliver([event(0)])
        if isinstance(database, OfPostgreSQL):
            database.query("ALTER TABLE spark_events ADD CHECK (body NOT LIKE '%3')")
        else:
            database.query(
                "CREATE TRIGGER rule BEFORE INSERT ON spark_events WHEN NEW.body LIKE '%3'"
                " BEGIN SELECT raise(ABORT, 'no threes'); END"
            )
        running.deliver([event(n) for n in range(1, 30)])
        assert running.counters.dropped == {"rejected": 3}
        assert running.counters.delivered == 27
    assert [int(body) for (body,) in database.query(BODIES)] == [n for n in range(30) if n % 10 != 3]


def test_a_trigger_rejects_only_the_violating_event(in_postgresql: OfPostgreSQL) -> None:
    with Running("database", {**in_postgresql.settings, **IMPATIENT}) as running:
        running.deliver([event(0)])
        in_postgresql.query(
            "CREATE FUNCTION no_ones() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF NEW.body = '1' THEN RAISE EXCEPTION 'no ones'; END IF; RETURN NEW; END $$"
        )
        in_postgresql.query("CREATE TRIGGER mine BEFORE INSERT ON spark_events FOR EACH ROW EXECUTE FUNCTION no_ones()")
        running.deliver([event(1), event(2), event(3)])
        assert (running.counters.delivered, running.counters.dropped) == (3, {"rejected": 1})
    assert [int(body) for (body,) in in_postgresql.query(BODIES)] == [0, 2, 3]


@pytest.mark.parametrize(("encoding", "taken"), [("SQL_ASCII", 3), ("LATIN1", 2)])
def test_characters_outside_the_database_s_encoding_are_rejected(
    postgresql: PostgreSQL, encoding: str, taken: int
) -> None:
    name = f"in_{encoding.lower()}"
    postgresql.psql(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0", database="postgres")
    bodies = ["plain", "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{BITCOIN SIGN}"]
    made = [EventBuilder("tests", "Test").set_body(body).build() for body in bodies]
    with Running("database", {**OfPostgreSQL(postgresql, name).settings, **IMPATIENT}) as running:
        running.deliver(made)
        assert running.counters.delivered == taken
    found = postgresql.psql("SELECT convert_to(body, 'UTF8') FROM spark_events ORDER BY sequence, body", database=name)
    assert sorted(bytes(body) for (body,) in found) == sorted(body.encode() for body in bodies[:taken])


@pytest.mark.parametrize(
    "changes",
    [
        # A partitioned table cannot have a unique index on the event id alone.
        [
            "ALTER TABLE spark_events DROP CONSTRAINT spark_events_pkey",
            "ALTER TABLE spark_events ADD PRIMARY KEY (event_id, observed_ts_millis)",
        ],
        # This database role may insert rows but not read rows.
        [
            "ALTER TABLE spark_events ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY add ON spark_events FOR INSERT WITH CHECK (true)",
        ],
    ],
    ids=["parts", "policies"],
)
def test_delivery_works_without_a_usable_conflict_target(in_postgresql: OfPostgreSQL, changes: list[str]) -> None:
    """Delivery works even if the table's owner partitions the table or restricts reading."""
    with Running("database", {**in_postgresql.settings, **IMPATIENT}) as running:
        running.deliver([event(0)])
    for change in (*WRITER, *changes):
        in_postgresql.query(change)
    settings = {"url": in_postgresql.server.url(in_postgresql.name, "writer"), "password": "w"}
    with Running("database", {**settings, **IMPATIENT}) as running:
        known = event(1)
        running.deliver([known, event(2)])
        running.deliver([known])
        assert (running.counters.delivered, running.counters.failures) == (3, 0)
    for leave in ("DROP OWNED BY writer", "DROP ROLE writer"):
        in_postgresql.query(leave)


def test_concurrent_drivers_create_the_tables_once(database: Database) -> None:
    """If eight drivers start concurrently with an empty database, all drivers succeed and every event is stored."""
    with contextlib.ExitStack() as drivers:
        running = [drivers.enter_context(Running("database", {**database.settings, **IMPATIENT})) for _ in range(8)]
        for number, driver in enumerate(running):
            driver.put([event(n, **{"spark.app.name": f"d{number}"}) for n in range(50)])
        for driver in running:
            driver.deliver()
            assert driver.counters.failures == 0
    counted = database.query("SELECT app_name, count(*) FROM spark_events GROUP BY app_name ORDER BY app_name")
    assert [tuple(row) for row in counted] == [(f"d{n}", 50) for n in range(8)]
    version = database.query("SELECT version FROM spark_events_schema")
    assert [tuple(row) for row in version] == [(event_tables.VERSION,)]


def test_only_the_owner_can_read_a_new_file(tmp_path: Path) -> None:
    """Only the owner can read a new SQLite file and its journal files."""
    with Running("database", {"url": f"sqlite:///{tmp_path / 'e.db'}"}) as running:
        running.deliver([event(1)])
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes.pop("e.db") == 0o600
    assert set(modes.values()) <= {0o600}
