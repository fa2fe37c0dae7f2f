"""Compare the cost of an event in the database, webhook and Kafka reporters with the bare client library.

Both sides send the same batches alternately to the same real server on this machine. The bare client sends rows and
bodies that are built in advance, so the ratio includes all work of the reporter: rows, JSON, accounting, results.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from spark_events import Event, EventBuilder
from spark_events.event import encode_event

_ROOT = Path(__file__).parents[1]
_BATCH = 512
_ROUNDS = 15
_SINK = """
import asyncio
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            length = next(int(l[15:]) for l in head.split(b"\\r\\n") if l.lower().startswith(b"content-length:"))
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""

Send = Callable[[Any], None]


def _template() -> Event:
    """Build an event of typical size, for a committed micro-batch."""
    commit = EventBuilder("spark.streaming.query", "BatchCommitEvent")
    commit.set_body("Query 'clicks-per-minute' committed batch 41 in 1017 ms: 6 rows, watermark 2026-01-31T10:00:20Z")
    commit.set_attributes({f"spark.batch.duration.phase{n}_ms": 17 * n for n in range(8)})
    commit.set_attributes(
        {f"spark.batch.offset_{end}": '{"clicks":{"0":1204031,"1":1203310}}' for end in ("from", "to")}
    )
    commit.set_attributes({"spark.app.id": "local-1795264397192", "spark.app.name": "clickstream", "host.name": "h1"})
    commit.set_attributes(
        {"spark.streaming.query.id": "6f595dfe-64f8-4732-9d1e-01d23ed89ab7", "spark.batch.rows_input": 6}
    )
    commit.set_attributes(
        {"spark.batch.id": 41, "spark.batch.duration.trigger_execution_ms": 1017, "spark.batch.count": 1}
    )
    return commit.build()


_TEMPLATE = _template()


def _events() -> list[Event]:
    return [msgspec.structs.replace(_TEMPLATE, event_id=secrets.token_hex(16), sequence=n) for n in range(_BATCH)]


def _compare(name: str, ours: Send, bare: Send, prepare: Callable[[list[Event]], Any]) -> None:
    """Run the reporter and the bare client in alternating rounds.

    Print the median processor time per event and the median events per second of both.
    """
    costs: dict[Send, list[float]] = {ours: [], bare: []}
    clocks: dict[Send, list[float]] = {ours: [], bare: []}
    for number in range(_ROUNDS + 2):
        for send in (ours, bare) if number % 2 else (bare, ours):
            events = _events()
            given = events if send is ours else prepare(events)
            clock, cpu = time.perf_counter(), time.process_time()
            send(given)
            if number >= 2:
                costs[send].append((time.process_time() - cpu) / _BATCH * 1e6)
                clocks[send].append(_BATCH / (time.perf_counter() - clock))
    our_cost, bare_cost = (statistics.median(costs[send]) for send in (ours, bare))
    our_rate, bare_rate = (statistics.median(clocks[send]) for send in (ours, bare))
    print(
        f"{name}: {our_cost:.1f} µs of processor time per event, bare client {bare_cost:.1f} µs, ratio"
        f" {our_cost / bare_cost:.2f}; {our_rate:,.0f} events/s, bare {bare_rate:,.0f}"
    )


def _database(name: str, url: str, bare: Send) -> None:
    from spark_events.config import Secret
    from spark_events.reporters.database.database_config import DatabaseConfig
    from spark_events.reporters.database.database_reporter import DatabaseReporter
    from spark_events.reporters.database.event_rows import row_of

    reporter = DatabaseReporter(DatabaseConfig(Secret(url)))
    reporter.open()
    _compare(name, reporter.report, bare, lambda events: [tuple(row_of(event).values()) for event in events])
    reporter.close()


def _insert(mark: str, end: str = "") -> str:
    from spark_events.reporters.database.event_rows import row_of

    columns = list(row_of(_TEMPLATE))
    return f"INSERT INTO spark_events ({', '.join(columns)}) VALUES ({', '.join([mark] * len(columns))}) {end}"


def _sqlite() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.db"
        statement = _insert("?", "ON CONFLICT DO NOTHING")
        connection = sqlite3.connect(path)

        def bare(rows: list[tuple[Any, ...]]) -> None:
            with connection:
                # SQLAlchemy writes dates as strings.
                connection.executemany(statement, [(*row[:3], str(row[3]), *row[4:]) for row in rows])

        _database("SQLite", f"sqlite:///{path}", bare)
        connection.close()


def _postgresql() -> None:
    import psycopg
    from reporters.peers.postgresql import PASSWORD, PostgreSQL

    server = PostgreSQL()
    try:
        server.start()
        statement = _insert("%s", "ON CONFLICT DO NOTHING")
        connection = psycopg.connect(server.url(), password=PASSWORD)

        def bare(rows: list[tuple[Any, ...]]) -> None:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(statement.encode(), rows)

        from urllib.parse import quote

        url = server.url().replace("ada@", f"ada:{quote(PASSWORD, safe='')}@").replace("sql:", "sql+psycopg:")
        _database("PostgreSQL", url, bare)
        connection.close()
    finally:
        server.remove()


@contextlib.contextmanager
def _sink() -> Iterator[str]:
    """Run a minimal receiver in its own process."""
    with subprocess.Popen([sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/hook"
        finally:
            process.kill()


def _webhook(loop: asyncio.AbstractEventLoop) -> None:
    import httpx

    from spark_events.config import Secret
    from spark_events.reporters.webhook.webhook_config import WebhookConfig
    from spark_events.reporters.webhook.webhook_reporter import WebhookReporter

    async def post(body: bytes) -> None:
        (await client.post(url, content=body)).raise_for_status()

    async def post_each(bodies: list[bytes]) -> None:
        for body in bodies:
            await post(body)

    with _sink() as url:
        client = httpx.AsyncClient()
        reporters = [WebhookReporter(WebhookConfig(Secret(url), format=name)) for name in ("json", "json-each")]
        _compare(
            "webhook, an array a batch",
            lambda events: loop.run_until_complete(reporters[0].report(events)),
            lambda body: loop.run_until_complete(post(body)),
            lambda events: b"[" + b",".join(map(encode_event, events)) + b"]",
        )
        _compare(
            "webhook, a request an event",
            lambda events: loop.run_until_complete(reporters[1].report(events)),
            lambda bodies: loop.run_until_complete(post_each(bodies)),
            lambda events: [encode_event(event) for event in events],
        )
        for one in reporters:
            loop.run_until_complete(one.close())
        loop.run_until_complete(client.aclose())


def _kafka(loop: asyncio.AbstractEventLoop) -> None:
    from confluent_kafka import Producer
    from reporters.peers.kafka import Kafka

    from spark_events.reporters.kafka.kafka_config import KafkaConfig
    from spark_events.reporters.kafka.kafka_reporter import KafkaReporter

    broker = Kafka()
    try:
        broker.start()
        broker.make_topic("events")
        config = KafkaConfig(broker.servers, "events")
        reporter = KafkaReporter(config)
        key = str(_TEMPLATE.attributes["spark.streaming.query.id"]).encode()
        headers: list[tuple[str, Any]] = [("content-type", b"application/json"), ("event_id", b"0" * 32)]
        producer = Producer({**config.of_librdkafka(), "bootstrap.servers": broker.servers})

        def bare(values: list[bytes]) -> None:
            # Check the delivery report of each message, as the reporter does.
            reported: list[Any] = []
            for value in values:
                producer.produce("events", value, key, headers=headers, on_delivery=lambda *one: reported.append(one))
            assert producer.flush(20) == 0
            assert [error for error, _ in reported] == [None] * len(values)

        _compare(
            "Kafka",
            lambda events: loop.run_until_complete(reporter.report(events)),
            bare,
            lambda events: [encode_event(event) for event in events],
        )
        loop.run_until_complete(reporter.release())
    finally:
        broker.remove()


def run() -> None:
    """Print the cost of an event for each reporter and for its bare client."""
    sys.path.insert(0, str(_ROOT / "tests"))
    print(f"batches of {_BATCH} events of {len(encode_event(_TEMPLATE)):,} bytes of JSON, {_ROUNDS} rounds in turns")
    loop = asyncio.new_event_loop()
    try:
        _sqlite()
        _postgresql()
        _webhook(loop)
        _kafka(loop)
    finally:
        loop.close()


if __name__ == "__main__":
    run()
