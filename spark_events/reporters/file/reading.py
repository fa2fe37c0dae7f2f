"""Read the files that the ``file`` reporter writes."""

from __future__ import annotations

import gzip
import logging
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from spark_events.errors import SparkEventsError
from spark_events.event import Event, decode_event
from spark_events.reporters.file.rotation import Archive

#: Path that stands for standard input.
STDIN = "-"
#: First bytes of a gzip file.
GZIP = b"\x1f\x8b"

_LOG = logging.getLogger(__name__)


def read(path: str | os.PathLike[str], *, rotated: bool = False) -> Iterator[Event]:
    """Yield the events of a file of JSON lines, oldest first.

    >>> for event in read("/var/log/spark/events.jsonl"):                         # doctest: +SKIP
    ...     print(event.name, event.attributes.get("failure.root_cause"))

    Lines that are not events are skipped; one warning in the log states their number.

    Args:
        path: a file that the ``file`` reporter wrote, compressed with gzip or not, or ``-`` for standard input.
        rotated: whether to read the earlier, rotated files too.

    Raises:
        OSError: when a file cannot be opened or read.
        SparkEventsError: when a compressed file is damaged; the events before the damage are yielded first.
    """
    name = os.fspath(path)
    older = Archive(Path(name), keep=0).files() if rotated and name != STDIN else []
    for file in (*map(str, older), name):
        skipped = 0
        for line in lines_of(file):
            event = event_of(line)
            if event is None:
                skipped += 1
            else:
                yield event
        if skipped:
            _LOG.warning("%s: skipped %d lines that are not events", file, skipped)


def event_of(line: bytes) -> Event | None:
    """Decode one line; return None if the line is not an event."""
    try:
        return decode_event(line.decode("utf-8", "replace").encode())
    except msgspec.DecodeError:
        return None


def lines_of(path: str) -> Iterator[bytes]:
    """Yield the lines of a file, compressed or not, or of standard input.

    Raises:
        OSError: when the file cannot be opened or read.
        SparkEventsError: when the file is compressed and damaged; the lines before the damage are yielded first.
    """
    is_stdin = path == STDIN
    with open(0 if is_stdin else path, "rb", closefd=not is_stdin) as file:
        try:
            yield from gzip.GzipFile(fileobj=file) if file.peek(2).startswith(GZIP) else file
        except EOFError:
            raise SparkEventsError(f"{path}: the file ends in the middle of a compressed block") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise SparkEventsError(f"{path}: the rest of the file cannot be decompressed ({error})") from None
