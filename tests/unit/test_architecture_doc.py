"""Tests that docs/architecture.md names existing classes, and each class on the path of a record."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from fakes import PATIENCE, ROOT, START, application_start, eventually, goodbye, hello, read_events

from spark_events.sidecar.acknowledgements import MessageWriter
from spark_events.sidecar.driver_session import DriverSession
from spark_events.sidecar.pipe import RecordPipe

_TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_STEP = re.compile(r"^\| \d+ \| ([^|]+) \|", re.MULTILINE)


def named_steps() -> list[str]:
    return [name for step in _STEP.findall(_TEXT) for name in re.findall(r"`(\w+)`", step)]


def test_every_class_on_a_record_s_path_exists() -> None:
    sources = [*ROOT.glob("jvm-shim/src/**/*.java"), *ROOT.glob("spark_events/**/*.py")]
    defined = set(re.findall(r"\bclass (\w+)", "\n".join(path.read_text(encoding="utf-8") for path in sources)))
    named = named_steps()
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
    assert tracer.classes - {*named_steps(), "Acknowledgements", "FileReporter"} == set()
