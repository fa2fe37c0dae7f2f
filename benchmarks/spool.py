"""Compare the speed of at-least-once delivery, into and through a spool, with plain SQLite and a mailbox.

All variants run alternately in one process and on the same disk, so the ratios do not depend on other load. Plain
SQLite uses the spool's table and settings with ``executemany``, without locks, threads, encoding and accounting. Its
speed is the upper bound for a spool on SQLite.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from spark_events import Event, EventBuilder
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.entries import Entry, priority_of
from spark_events.dispatch.spool.spool import Spool
from spark_events.dispatch.spool.spool_database import SpoolDatabase
from spark_events.dispatch.spool.writer import SpoolConfig, SpoolWriter
from spark_events.event import encode_event
from spark_events.reporters.reporter import Reporter

_EVENTS = 20_000
_SLICE = 128
_BATCH = 512
_ROUNDS = 9
_PATIENCE = 120.0


class _Took(NamedTuple):
    """Seconds of wall-clock time and of processor time, which depends less on other load."""

    wall: float
    cpu: float

    @staticmethod
    def since(began: _Took) -> _Took:
        return _Took(time.perf_counter() - began.wall, time.process_time() - began.cpu)

    @staticmethod
    def now() -> _Took:
        return _Took(time.perf_counter(), time.process_time())


class _Taker(Reporter):
    """Reporter that accepts every event after the test opens its gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.taken = 0

    def report(self, events: Sequence[Event]) -> None:
        self.gate.wait(_PATIENCE)
        self.taken += len(events)


def _entries() -> list[Entry]:
    made = []
    for number in range(_EVENTS):
        builder = EventBuilder("spark.streaming.query", "BatchCommitEvent").set_body(f"committed batch {number}")
        builder.set_attributes({f"source.0.key_{key}": f"value {key * number}" for key in range(16)})
        made.append(Entry(number + 1, builder.build()))
    return made


def _plain(folder: Path, entries: list[Entry]) -> tuple[_Took, _Took]:
    """Return the time to write all rows, and the time to write, read and delete all rows."""
    rows = [(e.seq, e.event.event_id, priority_of(e.event), 0.0, encode_event(e.event)) for e in entries]
    database = SpoolDatabase(folder / "plain.db", False, 1 << 30)
    db = database._db
    began = _Took.now()
    for first in range(0, _EVENTS, _BATCH):
        with db:
            db.execute("BEGIN")
            db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows[first : first + _BATCH])
    wrote = _Took.since(began)
    for first in range(1, _EVENTS, _BATCH):
        db.execute("SELECT id, accepted, event FROM events WHERE id >= ? LIMIT ?", (first, _BATCH)).fetchall()
        with db:
            db.execute("BEGIN")
            db.executemany("DELETE FROM events WHERE id = ?", [(n,) for n in range(first, first + _BATCH)])
    took = _Took.since(began)
    database.close()
    return wrote, took


def _delivered(entries: list[Entry], folder: Path | None, gated: bool) -> _Took:
    """Return the time until all events are delivered.

    With a gate, the reporter is blocked, and the time ends when all events are on disk.
    """
    reporter = _Taker()
    if not gated:
        reporter.gate.set()
    store = None
    if folder is not None:
        config = SpoolConfig(directory=str(folder), max_size=1 << 30)
        store = partial(Spool, 1024, partial(SpoolWriter, "benchmark", "audit", config))
    # A mailbox of the default size would shed events of this burst and appear fast.
    capacity = _EVENTS if folder is None else 1024
    delivery = Delivery("audit", lambda: reporter, DeliveryConfig(timeout=_PATIENCE), capacity, store=store)
    delivery.start()
    began = _Took.now()
    for first in range(0, _EVENTS, _SLICE):
        delivery.wait_for_room(_SLICE)
        delivery.put(entries[first : first + _SLICE])
    settled = delivery.store.wait_until_answered(_PATIENCE) if gated else delivery.wait_until_settled(_PATIENCE)
    took = _Took.since(began)
    reporter.gate.set()
    assert settled
    delivery.request_stop(time.monotonic() + _PATIENCE)
    delivery.join()
    counters = delivery.counters()
    assert counters.accepted == counters.delivered + counters.lost + counters.spooled + counters.held
    assert reporter.taken == counters.delivered
    assert counters.delivered == _EVENTS
    return took


def run() -> None:
    """Print events per second and the ratios."""
    entries = _entries()
    rounds = []
    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            plain_in, plain_through = _plain(Path(folder), entries)
            into = _delivered(entries, Path(folder) / "in", gated=True)
            through = _delivered(entries, Path(folder) / "through", gated=False)
            mailbox = _delivered(entries, None, gated=False)
        rounds.append((plain_in, plain_through, into, through, mailbox))
    names = ("plain SQLite, in", "plain SQLite, in and out", "spool, in", "spool, in and out", "mailbox")
    size = len(encode_event(entries[0].event))
    print(f"{_EVENTS:,} events of {size} bytes, medians of {_ROUNDS} rounds")
    for name, times in zip(names, zip(*rounds, strict=True), strict=True):
        wall, cpu = (statistics.median(one[clock] for one in times) for clock in (0, 1))
        print(f"{name}: {_EVENTS / wall:,.0f} events/s, {cpu / _EVENTS * 1e6:.1f} µs of processor time each")
    for what, over, under in (
        ("into the spool / plain SQLite in", 0, 2),
        ("through the spool / plain SQLite in, read and out", 1, 3),
        ("through the spool / mailbox", 4, 3),
    ):
        ratios = [[one[over][clock] / one[under][clock] for one in rounds] for clock in (0, 1)]
        wall, cpu = (f"{statistics.median(some):.2f} ({min(some):.2f} to {max(some):.2f})" for some in ratios)
        print(f"{what}: {wall}; by processor time {cpu}")


if __name__ == "__main__":
    run()
