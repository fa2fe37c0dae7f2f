"""A file that is followed: nothing is lost and nothing doubled, whatever becomes of it."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import event

from spark_events.cli import growing as module
from spark_events.cli.growing import growing
from spark_events.event import decode_event, encode_lines


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests say when it is time to look."""
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    add(path, 0)
    return path


def add(path: Path, *numbers: int) -> None:
    with path.open("ab") as file:
        file.write(encode_lines([event(number) for number in numbers]))


def put_aside(path: Path, second: int) -> Path:
    """As the reporter does."""
    aside = path.with_name(f"{path.name}.20260131T1000{second:02}.000000Z")
    path.rename(aside)
    return aside


def packed(path: Path) -> None:
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


def seen(lines: Iterator[bytes | None], looks: int = 2) -> list[int]:
    """The events that some looks have found."""
    found = []
    while looks:
        line = next(lines)
        if line is None:
            looks -= 1
        else:
            found.append(int(decode_event(line).body))
    return found


def test_the_next_file_is_read_from_its_beginning(path: Path) -> None:
    """What was written before the old one was put aside comes first, each event once."""
    lines = growing(path)
    assert seen(lines) == [0]
    add(path, 1, 2)
    put_aside(path, 1)
    add(path, 3)
    assert seen(lines) == [1, 2, 3]
    add(path, 4)
    assert seen(lines) == [4]


def test_a_file_that_is_away_is_waited_for(path: Path) -> None:
    """The old one is followed for so long, under whatever name."""
    lines = growing(path)
    assert seen(lines) == [0]
    aside = path.with_name("events.jsonl.1")
    path.rename(aside)
    assert seen(lines) == []
    add(aside, 1)
    assert seen(lines) == [1]
    add(path, 2)
    assert seen(lines) == [2]


def test_a_file_that_is_deleted_and_made_anew_is_another_one(path: Path) -> None:
    """Older ones that lie beside it are none of those that came between."""
    put_aside(path, 1)
    add(path, 1)
    lines = growing(path)
    assert seen(lines) == [1]
    path.unlink()
    assert seen(lines) == []
    add(path, 2)
    assert seen(lines) == [2]


@pytest.mark.parametrize("compress", [(), (1,), (2,), (1, 2, 3)])
def test_files_that_came_and_went_between_two_looks_are_read(path: Path, compress: tuple[int, ...]) -> None:
    """Behind a pager that waits for its reader, several are put aside, and perhaps compressed."""
    lines = growing(path)
    assert seen(lines) == [0]
    for number in (1, 2, 3):
        aside = put_aside(path, number)
        if number in compress:
            packed(aside)
        add(path, number)
    assert seen(lines) == [1, 2, 3]
    put_aside(path, 4)
    add(path, 4)
    assert seen(lines) == [4]


def test_a_line_is_waited_for(path: Path) -> None:
    """Until it is whole, or nobody can write it any more."""
    line = encode_lines([event(1)])
    lines = growing(path)
    with path.open("ab", buffering=0) as file:
        file.write(line[:40])
        assert seen(lines) == [0]
        file.write(line[40:])
        assert seen(lines) == [1]
        file.write(line[:-1])
    put_aside(path, 1)
    add(path, 2)
    assert seen(lines) == [1, 2]


@pytest.mark.parametrize("events", [(7,), (7, 8, 9, 10, 11)])
def test_a_file_that_is_emptied_is_read_from_its_beginning(path: Path, events: tuple[int, ...]) -> None:
    """As by copytruncate; also when it has more in it than before at the next look."""
    add(path, 1)
    lines = growing(path)
    assert seen(lines) == [0, 1]
    os.truncate(path, 0)
    add(path, *events)
    assert seen(lines) == list(events)


def test_a_line_that_is_taken_back_doubles_nothing(path: Path) -> None:
    """A reporter does so with what did not fit on the disk."""
    lines = growing(path)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(encode_lines([event(1)])[:100])
    assert seen(lines) == [0]
    os.truncate(path, size)
    assert seen(lines) == []
    add(path, 2)
    assert seen(lines) == [2]
