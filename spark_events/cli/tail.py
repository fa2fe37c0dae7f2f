"""``spark-events tail``: print a file of events for people to read."""

from __future__ import annotations

import argparse
import gzip
import sys
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from spark_events.cli.arguments import add_min_severity
from spark_events.cli.follow import GZIP, follow
from spark_events.cli.output import show
from spark_events.errors import SparkEventsError
from spark_events.event import Event, Severity, decode_event
from spark_events.event.text import on_one_line
from spark_events.reporters.log import format_event

_COLOURS = {Severity.WARN: "\033[33m", Severity.ERROR: "\033[31m", Severity.FATAL: "\033[1;31m"}
_DIM, _RESET = "\033[2m", "\033[0m"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "tail",
        help="print the events of a file that a 'file' reporter wrote",
        description="Prints events from a file of JSON lines, oldest first.",
    )
    parser.add_argument("path", type=Path, help="the file, as in events.reporter.<name>.path")
    parser.add_argument("-f", "--follow", action="store_true", help="follow the file as it grows and through rotation")
    parser.add_argument(
        "-n", "--lines", type=int, metavar="N", help="print only the last N matching events of the present file"
    )
    add_min_severity(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="print all attributes")
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    least = Severity(chosen.min_severity)
    damaged = 0

    def render(event: Event) -> None:
        show(_render(event, sys.stdout.isatty(), chosen.verbose), flush=chosen.follow)

    try:
        lines = follow(chosen.path) if chosen.follow else _lines(chosen.path)
        # Holds the last matching events until the file's present end; None from then on, and without -n.
        last = None if chosen.lines is None else deque[Event](maxlen=min(max(0, chosen.lines), sys.maxsize))
        for line in lines:
            if line is None:
                while last:
                    render(last.popleft())
                last = None
                continue
            try:
                event = decode_event(line.decode("utf-8", "replace").encode())
            except msgspec.DecodeError:
                damaged += 1
                continue
            if event.severity < least:
                continue
            if last is None:
                render(event)
            else:
                last.append(event)
    except BrokenPipeError:
        # Raised by the output, not by the file; main() handles it.
        raise
    except (OSError, EOFError, zlib.error) as error:
        # Errors of damaged compressed files have no strerror.
        raise SparkEventsError(f"cannot read {chosen.path}: {getattr(error, 'strerror', None) or error}") from None
    if damaged:
        print(f"spark-events: skipped {damaged} lines of {chosen.path} that are not events", file=sys.stderr)
    return 0


def _lines(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a file, compressed or not, in the form of :func:`follow`, and stop at its end."""
    damage = None
    with path.open("rb") as file:
        try:
            yield from gzip.GzipFile(fileobj=file) if file.peek(2).startswith(GZIP) else file
        except EOFError:
            damage = "the file ends in the middle of a compressed block"
        except (zlib.error, gzip.BadGzipFile) as error:
            damage = f"the rest of the file cannot be decompressed ({error})"
    yield None
    if damage:
        raise SparkEventsError(f"{path}: {damage}")


def _render(event: Event, colour: bool, verbose: bool) -> str:
    line = format_event(event, time_format="%Y-%m-%d %H:%M:%S")
    if colour and event.severity in _COLOURS:
        line = f"{_COLOURS[event.severity]}{line}{_RESET}"
    if not verbose:
        return line
    details = "\n".join(_detail(key, str(value)) for key, value in event.attributes.items())
    return f"{line}\n{_DIM}{details}{_RESET}" if colour else f"{line}\n{details}"


def _detail(key: str, value: str) -> str:
    """Return an attribute, each line of its text on a line of its own, without terminal control characters."""
    lines = (on_one_line(line.rstrip("\r").expandtabs(4)) for line in value.strip().split("\n"))
    return f"    {on_one_line(key)} = " + "\n        ".join(lines)
