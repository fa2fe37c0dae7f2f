"""Tests of failures in the ``database`` reporter: errors are clear, and no retryable event is lost."""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from fakes import event, eventually, sidecar_environment
from lateness import Witness
from ports import free_port

from reporters.database.databases import Database, OfPostgreSQL, OfSQLite
from reporters.peers.postgresql import PASSWORD
from reporters.running import IMPATIENT, Running
from spark_events import ConfigError
from spark_events.config import Settings
from spark_events.dispatch.pipeline import build
from spark_events.reporters.database import event_tables
from spark_events.reporters.database.database_config import DatabaseConfig
from spark_events.sql import definitions

BODIES = "SELECT body FROM spark_events ORDER BY observed_ts_millis"


def bodies(database: Database) -> list[int]:
    return [int(body) for (body,) in database.query(BODIES)]


def test_a_restarted_server_gets_every_event_in_order(
    in_postgresql: OfPostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    """If a server is stopped and restarted during delivery, the database has one row per event, in order."""
    in_postgresql.query("CREATE TABLE arrivals (n SERIAL, body TEXT)")
    with Running("database", {**in_postgresql.settings, **IMPATIENT, "batch.size": "7"}) as running:
        running.deliver([event(n) for n in range(20)])
        in_postgresql.query(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN INSERT INTO arrivals (body) VALUES (NEW.body); RETURN NEW; END$$"
        )
        in_postgresql.query("CREATE TRIGGER note AFTER INSERT ON spark_events FOR EACH ROW EXECUTE FUNCTION note()")
        in_postgresql.server.stop()
        running.put([event(n) for n in range(20, 60)])
        running.await_failures(2)
        in_postgresql.server.start()
        running.put([event(n) for n in range(60, 70)])
        running.deliver()
        assert running.counters.delivered == 70
    assert bodies(in_postgresql) == list(range(70))
    assert [int(body) for (body,) in in_postgresql.query("SELECT body FROM arrivals ORDER BY n")] == list(range(20, 70))
    assert "holding its events and retrying: TransientError: postgresql" in caplog.text
    assert "works again" in caplog.text


def test_a_connection_lost_during_a_batch_leaves_no_partial_batch(in_postgresql: OfPostgreSQL) -> None:
    """If the connection is lost within a batch, the reporter retries the whole batch without duplicate rows."""
    with Running("database", {**in_postgresql.settings, **IMPATIENT}) as running:
        running.deliver([event(0)])
        in_postgresql.query("CREATE SEQUENCE cuts")
        in_postgresql.query(
            "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
            " IF NEW.body = '3' AND nextval('cuts') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;"
            " RETURN NEW; END$$"
        )
        in_postgresql.query("CREATE TRIGGER cut AFTER INSERT ON spark_events FOR EACH ROW EXECUTE FUNCTION cut()")
        running.deliver([event(n) for n in range(1, 10)])
        assert running.counters.failures == 1
    assert bodies(in_postgresql) == list(range(10))


def test_a_frozen_server_loses_a_thread_but_no_event(
    in_postgresql: OfPostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    """If a server freezes and does not answer, a new thread later delivers the events without duplicate rows."""
    with Running("database", {**in_postgresql.settings, **IMPATIENT, "timeout": "1s"}) as running:
        running.deliver([event(0)])
        in_postgresql.server.freeze()
        running.put([event(n) for n in range(1, 5)])
        running.await_failures()
        in_postgresql.server.thaw()
        running.deliver()
        assert running.counters.delivered == 5
    assert bodies(in_postgresql) == list(range(5))
    # If the abandoned thread left its connection open, the garbage collector would warn, which fails this test.
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "spark-events-peer"])
    del running
    gc.collect()


def test_a_locked_table_times_out_in_the_server(in_postgresql: OfPostgreSQL) -> None:
    """If a table is locked, PostgreSQL cancels the statement, so that the reporter's thread can retry."""
    with Running("database", {**in_postgresql.settings, **IMPATIENT, "timeout": "1s"}, grace=60) as running:
        running.deliver([event(0)])
        url = in_postgresql.server.url(in_postgresql.name)
        with psycopg.connect(url, password=PASSWORD) as other:
            other.execute("LOCK TABLE spark_events")
            running.put([event(1)])
            running.await_failures()
        running.deliver()
        assert running.counters.hung == 0
    assert bodies(in_postgresql) == [0, 1]


def test_a_locked_sqlite_file_is_retried(tmp_path: Path) -> None:
    """If another program locks the SQLite file, the attempt fails and is retried, and no event is lost."""
    database = OfSQLite(tmp_path / "events.db")
    with Running("database", {**database.settings, **IMPATIENT, "timeout": "1s"}) as running:
        running.deliver([event(0)])
        with contextlib.closing(database.connect()) as other:
            other.execute("BEGIN IMMEDIATE")
            running.put([event(1)])
            running.await_failures()
        running.deliver()
    assert bodies(database) == [0, 1]


def test_a_reader_does_not_delay_writes(tmp_path: Path) -> None:
    database = OfSQLite(tmp_path / "events.db")
    with Running("database", {**database.settings, **IMPATIENT}) as running:
        running.deliver([event(0)])
        with contextlib.closing(database.connect()) as other:
            other.execute("BEGIN")
            assert other.execute("SELECT count(*) FROM spark_events").fetchall() == [(1,)]
            running.deliver([event(1)])
            assert running.counters.failures == 0


def test_wrong_credentials_are_logged_once_and_events_wait(
    in_postgresql: OfPostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong credentials are logged once, without user and password. After a password change, delivery resumes."""
    wrong = {**in_postgresql.settings, "password": "letmein#7"}
    in_postgresql.query("DROP ROLE IF EXISTS bob")
    in_postgresql.query("CREATE ROLE bob LOGIN SUPERUSER PASSWORD 'old'")
    wrong["url"] = in_postgresql.server.url(in_postgresql.name, "bob")
    with Running("database", {**wrong, **IMPATIENT}) as running:
        running.put([event(n) for n in range(3)])
        running.await_failures(2)
        assert caplog.text.count("cannot be opened") == 1
        assert "password authentication failed for user" in caplog.text
        in_postgresql.query("ALTER ROLE bob PASSWORD 'letmein#7'")
        running.deliver()
    assert bodies(in_postgresql) == [0, 1, 2]
    assert "letmein" not in caplog.text
    assert "bob" not in caplog.text


def test_events_wait_while_rights_are_revoked(in_postgresql: OfPostgreSQL, caplog: pytest.LogCaptureFixture) -> None:
    """The permissions to insert and to read the schema version are sufficient. Without INSERT, events are retried."""
    with Running("database", in_postgresql.settings):
        pass
    in_postgresql.query("DROP ROLE IF EXISTS eve")
    in_postgresql.query("CREATE ROLE eve LOGIN PASSWORD 'e'")
    in_postgresql.query("GRANT INSERT ON spark_events TO eve")
    in_postgresql.query("GRANT SELECT ON spark_events_schema TO eve")
    url = in_postgresql.server.url(in_postgresql.name, "eve")
    with Running("database", {"url": url, "password": "e", **IMPATIENT}) as running:
        running.deliver([event(0), event(0)])
        assert running.counters.failures == 0
        in_postgresql.query("REVOKE INSERT ON spark_events FROM eve")
        running.put([event(1)])
        running.await_failures()
        assert "permission denied for table spark_events" in caplog.text
        in_postgresql.query("GRANT INSERT ON spark_events TO eve")
        running.deliver([event(2)])
    in_postgresql.query("REVOKE ALL ON spark_events, spark_events_schema FROM eve")
    in_postgresql.query("DROP ROLE eve")
    assert bodies(in_postgresql) == [0, 0, 1, 2]


def test_events_wait_while_the_database_is_read_only(
    in_postgresql: OfPostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    """If the database is read-only, such as a standby server, the error is logged, and events are held."""
    with Running("database", {**in_postgresql.settings, **IMPATIENT}) as running:
        running.deliver([event(0)])
        name = in_postgresql.name
        in_postgresql.query(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        in_postgresql.server.psql(cut, database="postgres")
        running.put([event(1)])
        running.await_failures(2)
        assert "cannot execute INSERT in a read-only transaction" in caplog.text
        in_postgresql.server.psql(f"ALTER DATABASE {name} RESET default_transaction_read_only", database="postgres")
        in_postgresql.server.psql(cut, database="postgres")
        running.deliver()
    assert bodies(in_postgresql) == [0, 1]


def test_events_wait_while_the_file_is_read_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the SQLite file is read-only, events are held, and the log contains SQLite's message and the path."""
    path = tmp_path / "events.db"
    with Running("database", {"url": f"sqlite:///{path}"}) as running:
        running.deliver([event(0)])
    with Running("database", {"url": f"sqlite:///file:{path}?mode=ro&uri=true", **IMPATIENT}) as running:
        running.put([event(1)])
        running.await_failures()
        running.stop(within=1)
    assert "attempt to write a readonly database" in caplog.text
    assert str(path) in caplog.text


def test_a_deleted_file_is_created_again(tmp_path: Path) -> None:
    """If the SQLite file is deleted, the reporter detects the deletion and creates a new file for later events."""
    database = OfSQLite(tmp_path / "events.db")
    with Running("database", {**database.settings, **IMPATIENT}) as running:
        running.deliver([event(0)])
        for file in tmp_path.iterdir():
            file.unlink()
        running.deliver([event(1)])
        assert running.counters.delivered == 2
    assert bodies(database) == [1]


def test_a_recreated_database_gets_its_tables(in_postgresql: OfPostgreSQL) -> None:
    """If the database is dropped and created again, the reporter creates its tables and continues."""
    with Running("database", {**in_postgresql.settings, **IMPATIENT}) as running:
        running.deliver([event(0)])
        in_postgresql.server.psql(
            f"DROP DATABASE {in_postgresql.name} WITH (FORCE)",
            f"CREATE DATABASE {in_postgresql.name}",
            database="postgres",
        )
        running.deliver([event(1)])
    assert bodies(in_postgresql) == [1]


def test_a_dropped_table_is_created_again(database: Database) -> None:
    with Running("database", {**database.settings, **IMPATIENT}) as running:
        running.deliver([event(0)])
        for view in reversed(definitions.NAMES):
            database.query(f"DROP VIEW {view}")
        database.query("DROP TABLE spark_events")
        running.deliver([event(1)])
        assert running.counters.delivered == 2
    assert bodies(database) == [1]
    assert database.query("SELECT count(*) FROM spark_events_uptime")[0][0] == 0


FULL_DISK = """
import json, os, resource, sys
from fakes import event
from spark_events.config import Secret
from spark_events.reporters.database.database_config import DatabaseConfig
from spark_events.reporters.database.database_reporter import DatabaseReporter

reporter = DatabaseReporter(DatabaseConfig(Secret(f"sqlite:///{sys.argv[1]}")))
reporter.open()
batches = [[event(10 * n + i, text="x" * 5000) for i in range(10)] for n in range(4)]
reporter.report(batches[0])
room = max(os.path.getsize(sys.argv[1] + end) for end in ("", "-wal")) + 20_000
resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
errors = []
for attempt in range(3):
    try:
        reporter.report(batches[1])
    except Exception as error:
        errors.append(type(error).__name__ + ": " + str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for batch in batches[1:]:
    reporter.report(batch)
reporter.close()
print(json.dumps(errors))
"""


def test_events_wait_while_the_disk_is_full(tmp_path: Path) -> None:
    """While the disk is full, each attempt raises TransientError. Later, all events are stored once and in order."""
    database = OfSQLite(tmp_path / "events.db")
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(database.path)],
        env=sidecar_environment(),
        capture_output=True,
        check=True,
        text=True,
    )
    errors = json.loads(done.stdout)
    assert len(errors) == 3, errors
    assert all(error.startswith(f"TransientError: {database.path}: OperationalError: d") for error in errors)
    assert bodies(database) == list(range(40))


def test_an_unreachable_server_does_not_delay_shutdown(caplog: pytest.LogCaptureFixture, witness: Witness) -> None:
    """If the server is unreachable, the reporter stops by its deadline, and the log contains the server's address."""
    port = free_port()
    running = Running("database", {"url": f"postgresql://ada@127.0.0.1:{port}/events", **IMPATIENT})
    running.put([event(1)])
    running.await_failures()
    assert witness.took(running.stop(within=1)) < 3
    assert running.counters.dropped == {"shutdown": 1}
    assert f"postgresql://127.0.0.1:{port}: OperationalError: connection" in caplog.text
    assert "refused" in caplog.text


def problem(**settings: str) -> str:
    keys = {f"events.reporter.db.{key}": value for key, value in {**settings, "type": "database"}.items()}
    with pytest.raises(ConfigError) as caught:
        build(Settings.of(keys, "spark-defaults.conf"))
    (message,) = caught.value.problems
    return message


@pytest.mark.parametrize(
    "url",
    [
        "oracle://ada:s3cret@db/x",
        "ada:s3cret@db/events",
        "sqlite://",
        "sqlite:///:memory:",
        "s3cret",
        "mysql://s3cret/x",
    ],
)
def test_an_unsupported_url_is_rejected_with_the_allowed_values(url: str) -> None:
    """The message about an unsupported URL contains the key and the allowed values, but not the URL."""
    message = problem(url=url)
    assert message.startswith("events.reporter.db.url: given a value that is not shown, expected sqlite:///<path")
    assert "s3cret" not in message


def test_an_unparsable_url_is_rejected_without_quoting_it() -> None:
    """The message about an unparsable URL, for example with an unescaped password, contains no part of the URL."""
    message = problem(url="postgresql://ada:s3cret@db:port/events")
    assert message.startswith("events.reporter.db: the reporter cannot be created: ValueError: url: not a valid URL")
    assert "s3cret" not in message


def test_a_password_in_the_url_is_never_logged(in_postgresql: OfPostgreSQL, caplog: pytest.LogCaptureFixture) -> None:
    """A percent-encoded password in the URL works, and errors contain only scheme and host of the URL."""
    escaped = quote(PASSWORD, safe="")
    url = in_postgresql.server.url(in_postgresql.name).replace("ada@", f"ada:{escaped}@")
    with Running("database", {"url": url, **IMPATIENT}) as running:
        running.deliver([event(0)])
        in_postgresql.server.stop()
        running.put([event(1)])
        running.await_failures()
        in_postgresql.server.start()
        running.deliver()
    assert "postgresql://127.0.0.1" in caplog.text
    assert PASSWORD not in caplog.text
    assert escaped not in caplog.text


@pytest.mark.parametrize("module", ["sqlalchemy", "psycopg"])
def test_a_missing_library_is_reported_with_the_install_command(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a library is missing, the error is raised before the first event and contains the install command."""
    monkeypatch.setitem(sys.modules, module, None)
    message = problem(url="postgresql://ada@db/events")
    assert message.endswith(f"MissingExtraError: {module} is not installed; run: pip install 'spark-events[database]'")


def test_a_newer_schema_is_rejected(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A driver of an older version rejects its events, because it does not know the tables."""
    with Running("database", database.settings) as running:
        running.deliver([event(0)])
    newer = event_tables.VERSION + 1
    database.query(f"UPDATE spark_events_schema SET version = {newer}")
    with Running("database", database.settings) as running:
        running.deliver([event(1)])
        assert running.counters.dropped == {"rejected": 1}
    supported = event_tables.VERSION
    assert f"version {newer}, this release supports version {supported}: upgrade spark-events" in caplog.text
    assert len(database.query(BODIES)) == 1


def test_a_failed_upgrade_changes_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a schema upgrade fails, its transaction changes nothing. The next attempt upgrades the schema."""
    with Running("database", database.settings) as running:
        running.deliver([event(0)])
    database.query("UPDATE spark_events_schema SET version = 3")
    monkeypatch.setattr(definitions, "views", lambda dialect: ["CREATE VIEW spark_events_runs AS nonsense"])
    with Running("database", {**database.settings, **IMPATIENT}) as running:
        running.put([event(1)])
        running.await_failures()
        assert database.query("SELECT version FROM spark_events_schema")[0][0] == 3
        assert database.query("SELECT count(*) FROM spark_events_failures")[0][0] == 0
        monkeypatch.undo()
        running.deliver()
        assert running.counters.delivered == 1
    assert database.query("SELECT version FROM spark_events_schema")[0][0] == event_tables.VERSION
    assert database.query("SELECT count(*) FROM spark_events_failures")[0][0] == 0


def test_the_statement_timeout_equals_the_reporter_timeout() -> None:
    """The key ``timeout`` has the same default in the dispatcher and in the database reporter."""
    from spark_events.dispatch.delivery_config import DeliveryConfig

    assert DatabaseConfig().timeout == DeliveryConfig().timeout
