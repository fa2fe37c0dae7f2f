"""Tests of the record pipe with real file descriptors."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_events.sidecar.acknowledgements import Acknowledgements, MessageWriter
from spark_events.sidecar.pipe import RecordPipe, line_writer


class Pipe:
    """Pipe that closes each of its two descriptors at most once."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self._open = {self.read_end, self.write_end}

    def close(self, *ends: int) -> None:
        for end in ends or tuple(self._open):
            if end in self._open:
                self._open.remove(end)
                os.close(end)

    def write(self, data: bytes) -> None:
        os.write(self.write_end, data)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def test_read_returns_all_available_lines(pipe: Pipe) -> None:
    """One read returns every complete line that has been written."""
    pipe.write(b"one\ntwo\nthree\n")
    assert RecordPipe(pipe.read_end).read() == [b"one", b"two", b"three"]


def test_a_line_is_assembled_from_its_pieces(pipe: Pipe) -> None:
    """A line that arrives in chunks is returned when its line break has arrived."""
    records = RecordPipe(pipe.read_end)
    pipe.write(b"one\ntw")
    assert records.read() == [b"one"]
    pipe.write(b"o")
    assert records.read(timeout=0) == []
    pipe.write(b"\nthree\nfo")
    assert records.read() == [b"two", b"three"]
    assert not records.closed


def test_an_incomplete_last_line_is_dropped(pipe: Pipe) -> None:
    """A last line without a line break is dropped: the driver died while it wrote this line."""
    records = RecordPipe(pipe.read_end)
    pipe.write(b"whole\ncut o")
    pipe.close(pipe.write_end)
    assert records.read() == [b"whole"]
    assert records.read() == []
    assert records.closed


def test_reads_after_the_end_return_no_line(pipe: Pipe) -> None:
    records = RecordPipe(pipe.read_end)
    pipe.close(pipe.write_end)
    assert [records.read(), records.read(), records.read(timeout=0)] == [[], [], []]
    assert records.closed


def test_a_wait_ends_at_its_timeout(pipe: Pipe) -> None:
    """If no line arrives, the read returns no line after its timeout, and the pipe stays open."""
    records = RecordPipe(pipe.read_end)
    before = time.monotonic()
    assert records.read(timeout=0.02) == []
    assert time.monotonic() - before >= 0.015
    assert not records.closed


def test_a_line_longer_than_a_pipe_s_buffer_arrives_whole(pipe: Pipe) -> None:
    """A line larger than the buffer of a pipe, such as a stack trace of a megabyte, is received completely."""
    line = b"x" * 1_000_000
    writer = threading.Thread(target=lambda: [os.write(pipe.write_end, line), os.write(pipe.write_end, b"\n")])
    writer.start()
    assert RecordPipe(pipe.read_end).read() == [line]
    writer.join()


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b), max_size=10), st.data())
def test_lines_do_not_depend_on_chunks(lines: list[bytes], data: st.DataObject) -> None:
    """Any split of the input into chunks yields the same lines in the same order."""
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=5)))
    pipe, seen = Pipe(), []
    records = RecordPipe(pipe.read_end)
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        pipe.write(stream[start:end])
        seen += records.read(timeout=0)
    pipe.close()
    assert seen == lines


def answers_in(pipe: Pipe) -> list[dict[str, object]]:
    pipe.close(pipe.write_end)
    with os.fdopen(os.dup(pipe.read_end), "rb") as file:
        return [json.loads(line) for line in file]


def test_acknowledgements_never_decrease(pipe: Pipe) -> None:
    """The record numbers in acknowledgements strictly increase."""
    acknowledgements = Acknowledgements(MessageWriter(line_writer(pipe.write_end)), 1, 100)
    for record in range(1, 6):
        acknowledgements.translated(record, record + 1)
    for through in (0, 3, 3, 2, -1, 5):
        acknowledgements.complete(iter([(through, 0)]).__next__)
    assert answers_in(pipe) == [
        {"kind": "ack", "seq": 3, "sequence": 4},
        {"kind": "ack", "seq": 5, "sequence": 6},
    ]


def test_other_answers_have_their_fields(pipe: Pipe) -> None:
    """Every answer other than an acknowledgement is one line of JSON with all its fields, whatever their strings."""
    answers = MessageWriter(line_writer(pipe.write_end))
    answers.send("log", level="ERROR", message="two\nlines é")
    assert answers_in(pipe) == [{"kind": "log", "level": "ERROR", "message": "two\nlines é"}]


def test_an_exited_driver_causes_no_error(pipe: Pipe) -> None:
    """If the driver has exited and no process reads the answers, the answers are dropped without an error."""
    answers = MessageWriter(line_writer(pipe.write_end))
    pipe.close(pipe.read_end)
    answers.send("log", message="x")
    Acknowledgements(answers, 1, 100).complete(lambda: (1, 0))
    with pytest.raises(BrokenPipeError):
        pipe.write(b"the pipe is broken indeed")


def test_answers_of_many_threads_do_not_mix(pipe: Pipe) -> None:
    """Each answer is a complete line, even if several threads send answers at the same time."""
    answers = MessageWriter(line_writer(pipe.write_end))
    text = "x" * 300

    def send(number: int) -> None:
        for i in range(20):
            answers.send("log", sender=number, i=i, message=text)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = answers_in(pipe)
    assert len(seen) == 80
    for number in range(4):
        assert [a["i"] for a in seen if a["sender"] == number] == list(range(20))
