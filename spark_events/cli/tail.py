"""``spark-events tail``: a file of events, as a person reads them."""

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
from spark_events.cli.growing import GZIP, growing
from spark_events.cli.output import show
from spark_events.errors import SparkEventsError
from spark_events.event import Event, Severity, decode_event
from spark_events.event.text import on_one_line
from spark_events.reporters.log import format_event

__all__ = ["add_to"]

_COLOURS = {Severity.WARN: "\033[33m", Severity.ERROR: "\033[31m", Severity.FATAL: "\033[1;31m"}
_DIM, _RESET = "\033[2m", "\033[0m"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = commands.add_parser(
        "tail",
        help="show the events of a file that a 'file' reporter wrote",
        description="Shows events from a file of JSON lines, oldest first.",
    )
    parser.add_argument("path", type=Path, help="the file, as events.reporter.<name>.path names it")
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="go on as the file grows, and with the next one when it is put aside",
    )
    parser.add_argument(
        "-n", "--lines", type=int, metavar="N", help="of those that are there, only the last N that fit"
    )
    add_min_severity(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="with all attributes")
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    least = Severity(chosen.min_severity)
    damaged = 0

    def tell(event: Event) -> None:
        show(_render(event, sys.stdout.isatty(), chosen.verbose), flush=chosen.follow)

    try:
        lines = growing(chosen.path) if chosen.follow else _lines(chosen.path)
        # The last so many that fit, as long as there may be more of them; then all that come.
        last = None if chosen.lines is None else deque[Event](maxlen=min(max(0, chosen.lines), sys.maxsize))
        for line in lines:
            if line is None:
                while last:
                    tell(last.popleft())
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
                tell(event)
            else:
                last.append(event)
    except BrokenPipeError:
        # Not the file: whoever reads our output. That is main's affair.
        raise
    except (OSError, EOFError, zlib.error) as error:
        # A compressed one that came between, and is damaged, has no strerror.
        raise SparkEventsError(f"cannot read {chosen.path}: {getattr(error, 'strerror', None) or error}") from None
    if damaged:
        print(f"spark-events: {damaged} lines of {chosen.path} are not events", file=sys.stderr)
    return 0


def _lines(path: Path) -> Iterator[bytes | None]:
    """In the form of :func:`growing`, but to the end; what a reporter has put aside may be compressed."""
    damage = None
    with path.open("rb") as file:
        try:
            yield from gzip.GzipFile(fileobj=file) if file.peek(2).startswith(GZIP) else file
        except EOFError:
            damage = "it ends in the middle of a compressed block"
        except (zlib.error, gzip.BadGzipFile) as error:
            damage = f"it cannot be decompressed to its end ({error})"
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
    """One line, and one more for each that a text has; as in the line above it, nothing steers the terminal."""
    lines = (on_one_line(line.rstrip("\r").expandtabs(4)) for line in value.strip().split("\n"))
    return f"    {on_one_line(key)} = " + "\n        ".join(lines)
