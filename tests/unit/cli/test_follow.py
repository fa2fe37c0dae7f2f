"""Tests of `tail -f`: rotation, truncation and deletion of the file neither lose nor repeat an event."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import event

from spark_events.cli.follow import follow
from spark_events.event import decode_event, encode_lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    add(path, 0)
    return path


def add(path: Path, *numbers: int) -> None:
    with path.open("ab") as file:
        file.write(encode_lines([event(number) for number in numbers]))


def rotate(path: Path, second: int) -> Path:
    """Rotate the file as the file reporter does."""
    aside = path.with_name(f"{path.name}.20260131T1000{second:02}.000000Z")
    path.rename(aside)
    return aside


def seen(lines: Iterator[bytes | None], looks: int = 2) -> list[int]:
    """Poll ``looks`` times, and return the numbers of the events read."""
    found = []
    while looks:
        line = next(lines)
        if line is None:
            looks -= 1
        else:
            found.append(int(decode_event(line).body))
    return found


def test_rotation_continues_at_the_beginning_of_the_new_file(path: Path) -> None:
    """After a rotation, the rest of the old file is read before the new file. Each event is read once."""
    lines = follow(path, pause=0)
    assert seen(lines) == [0]
    add(path, 1, 2)
    rotate(path, 1)
    add(path, 3)
    assert seen(lines) == [1, 2, 3]
    add(path, 4)
    assert seen(lines) == [4]


def test_missing_file_is_awaited(path: Path) -> None:
    """While no file exists at the path, the renamed file is still followed."""
    lines = follow(path, pause=0)
    assert seen(lines) == [0]
    aside = path.with_name("events.jsonl.1")
    path.rename(aside)
    assert seen(lines) == []
    add(aside, 1)
    assert seen(lines) == [1]
    add(path, 2)
    assert seen(lines) == [2]


def test_recreated_file_is_read_as_a_new_file(path: Path) -> None:
    """A file that is created again is read as a new file. Older rotated files are not read again."""
    rotate(path, 1)
    add(path, 1)
    lines = follow(path, pause=0)
    assert seen(lines) == [1]
    path.unlink()
    assert seen(lines) == []
    add(path, 2)
    assert seen(lines) == [2]


def test_an_unfinished_line_is_held(path: Path) -> None:
    """An incomplete line is yielded when its line break has been written, or after its file has been rotated."""
    line = encode_lines([event(1)])
    lines = follow(path, pause=0)
    with path.open("ab", buffering=0) as file:
        file.write(line[:40])
        assert seen(lines) == [0]
        file.write(line[40:])
        assert seen(lines) == [1]
        file.write(line[:-1])
    rotate(path, 1)
    add(path, 2)
    assert seen(lines) == [1, 2]


@pytest.mark.parametrize("events", [(7,), (7, 8, 9, 10, 11)])
def test_truncated_file_is_read_from_its_beginning(path: Path, events: tuple[int, ...]) -> None:
    """A truncated file is read from its beginning, even if at the next poll it has grown beyond its former size."""
    add(path, 1)
    lines = follow(path, pause=0)
    assert seen(lines) == [0, 1]
    os.truncate(path, 0)
    add(path, *events)
    assert seen(lines) == list(events)


def test_truncated_line_repeats_no_event(path: Path) -> None:
    """If a reporter rolls back a partial write, as on a full disk, no event is repeated."""
    lines = follow(path, pause=0)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(encode_lines([event(1)])[:100])
    assert seen(lines) == [0]
    os.truncate(path, size)
    assert seen(lines) == []
    add(path, 2)
    assert seen(lines) == [2]
