"""Tests that docs/architecture.md names existing classes, each on the path of a record, and those on a row's path."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from enrich_engine import new_process
from fakes import PATIENCE, ROOT, START, application_start, eventually, goodbye, hello, read_events

from spark_events.enrichment.engine.run import Definition
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Retry
from spark_events.enrichment.worker.channel_client import TaskAttempt
from spark_events.enrichment.worker.partition import Partition
from spark_events.enrichment.worker.task import Task
from spark_events.sidecar.acknowledgements import MessageWriter
from spark_events.sidecar.driver_session import DriverSession
from spark_events.sidecar.pipe import RecordPipe

_TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_STEP = re.compile(r"^\| \d+ \| ([^|]+) \|", re.MULTILINE)


_RECORD_PATH, _ROW_PATH = _TEXT.split("## 3. Path of a row")


def named_steps(text: str) -> list[str]:
    return [name for step in _STEP.findall(text) for name in re.findall(r"`(\w+)`", step)]


def test_every_class_on_a_path_exists() -> None:
    sources = [*ROOT.glob("jvm-shim/src/**/*.java"), *ROOT.glob("spark_events/**/*.py")]
    defined = set(re.findall(r"\bclass (\w+)", "\n".join(path.read_text(encoding="utf-8") for path in sources)))
    named = [*named_steps(_RECORD_PATH), *named_steps(_ROW_PATH)]
    assert named != []
    assert [name for name in named if name not in defined] == []


class Tracer:
    """Set of the package's classes whose methods run while ``is_on`` is set, except on the watch thread."""

    def __init__(self) -> None:
        self.is_on = False
        self.classes: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_on and event == "call" and threading.current_thread().name != "spark-events-watch":
            owner = type(frame.f_locals.get("self"))
            if owner.__module__.startswith("spark_events."):
                self.classes.add(owner.__name__)


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    made = Tracer()
    threading.setprofile(made)
    yield made
    threading.setprofile(None)


def test_the_page_names_each_class_that_the_end_of_a_job_passes(tracer: Tracer, tmp_path: Path) -> None:
    """From the pipe to the file, the end of a successful job passes only classes that the page names."""
    read, write = os.pipe()
    file, messages = tmp_path / "events.jsonl", list[bytes]()

    def run() -> None:
        session = DriverSession.open(RecordPipe(read), MessageWriter(messages.append), lambda _: True)
        assert session is not None
        session.run()

    def send(*records: dict[str, object]) -> None:
        os.write(write, b"".join(json.dumps(one).encode() + b"\n" for one in records))

    def acknowledged(seq: int) -> bool:
        return any(b'"ack","seq":%d,' % seq in message for message in messages)

    running = threading.Thread(target=run)
    running.start()
    audit = {"events.reporter.audit.type": "file", "events.reporter.audit.path": str(file)}
    job = {"at": START, "time": START, "job_id": 1}
    send(hello(audit), {**application_start(), "seq": 1}, {"kind": "job_start", "seq": 2, **job})
    eventually(lambda: acknowledged(2))
    tracer.is_on = True
    send({"kind": "job_end", "seq": 3, **job})
    eventually(lambda: acknowledged(3))
    tracer.is_on = False
    send(goodbye())
    running.join(PATIENCE)
    os.close(read)
    os.close(write)
    assert [one["attributes"].get("spark.status.new") for one in read_events(file)][2] == "FINISHED"
    assert tracer.classes - {*named_steps(_RECORD_PATH), "Acknowledgements", "FileReporter"} == set()


def test_the_page_names_only_classes_that_a_row_passes(tracer: Tracer) -> None:
    """In the worker process, a row whose first attempt fails passes each class that the page names for its path."""
    attempts = list[int]()

    async def fn(row: Any, ctx: Any) -> dict[str, int]:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionError
        return {"twice": 2 * row.id}

    output = pa.schema([pa.field("twice", pa.int64())])
    task = Task(b"", b"", output.serialize().to_pybytes(), ("id",), ("id",), scope="", settles=True)
    plan = Plan(fn, max_in_flight=2, retry=Retry(initial=0, jitter=0))
    with new_process():
        sys.setprofile(tracer)
        tracer.is_on = True
        partition = Partition(task, plan, Definition("calls", "answers", "resource", "row"), TaskAttempt(), "")
        batch = pa.RecordBatch.from_pydict({"id": [20, 21]})
        answered = pa.Table.from_batches(list(partition.run(iter([batch]))))
        tracer.is_on = False
        sys.setprofile(None)
    assert answered.column("twice").to_pylist() == [40, 42]
    assert sorted(attempts) == [1, 1, 2, 2]
    # The driver's classes, the one that Spark calls, and the limiters' protocol, which has no instance.
    assert set(named_steps(_ROW_PATH)) - tracer.classes == {
        "Request", "DriverChannel", "Ledger", "JobState", "Mapper", "Limiter",
    }  # fmt: skip
