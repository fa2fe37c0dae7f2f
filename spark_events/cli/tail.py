"""``spark-events tail``: print a file of events as readable text."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections import deque
from fnmatch import fnmatchcase
from pathlib import Path

from spark_events.cli.arguments import add_min_severity
from spark_events.cli.follow import follow
from spark_events.cli.output import note, show
from spark_events.errors import SparkEventsError
from spark_events.event import Event, Severity
from spark_events.event.text import on_one_line
from spark_events.report.wording import counted
from spark_events.reporters.file.reading import STDIN, event_of, lines_of
from spark_events.reporters.log import format_event

_COLOURS = {Severity.WARN: "\033[33m", Severity.ERROR: "\033[31m", Severity.FATAL: "\033[1;31m"}
_DIM, _RESET = "\033[2m", "\033[0m"
#: Attributes with many lines are printed last, below the cause.
_STACKS = ("exception.stacktrace", "spark.deadline.stack")
#: Minimum width of a terminal for wrapped lines, in columns.
_LEAST_WIDTH = 40


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "tail",
        help="print the events of a file that a 'file' reporter wrote",
        description="Prints events from a file of JSON lines, oldest first, with the time in the local time zone.",
    )
    parser.add_argument("path", help="the file, as in spark.events.reporter.<name>.path; - for standard input")
    parser.add_argument("-f", "--follow", action="store_true", help="follow the file as it grows and through rotation")
    parser.add_argument(
        "-n", "--lines", type=int, metavar="N", help="print only the last N matching events of the existing file"
    )
    add_min_severity(parser)
    parser.add_argument(
        "--app",
        action="append",
        metavar="APP",
        help="only events of the application with this id or name, which may contain * (repeatable)",
    )
    parser.add_argument(
        "--name",
        action="append",
        metavar="EVENT",
        help="only events of this name, which may contain *, for example JobFailureEvent (repeatable)",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="also print the event's id and all attributes")
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    damaged = 0
    # Last matching events of the existing file; None without -n, and after the existing file has been read.
    last = None if chosen.lines is None else deque[Event](maxlen=min(max(0, chosen.lines), sys.maxsize))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0

    def render(event: Event) -> None:
        show(_render(event, width, chosen.verbose), flush=chosen.follow, is_clean=True)

    try:
        lines = follow(Path(chosen.path)) if chosen.follow and chosen.path != STDIN else lines_of(chosen.path)
        for line in lines:
            if line is None:
                while last:
                    render(last.popleft())
                last = None
            elif (event := event_of(line)) is None:
                damaged += 1
            elif not _is_chosen(event, chosen):
                continue
            elif last is None:
                render(event)
            else:
                last.append(event)
    except BrokenPipeError:
        # This error comes from the output, not from the file; main() handles it.
        raise
    except OSError as error:
        raise SparkEventsError(f"cannot read {chosen.path}: {error.strerror or error}") from None
    finally:
        # Without -f, or if the file cannot be read to its end, no None follows the lines.
        while last:
            render(last.popleft())
    if damaged:
        skipped = counted(damaged, "line that is not an event", "lines that are not events")
        note(f"{chosen.path}: skipped {skipped}")
    return 0


def _is_chosen(event: Event, chosen: argparse.Namespace) -> bool:
    if event.severity < Severity(chosen.min_severity):
        return False
    if chosen.name and not any(fnmatchcase(event.name, pattern) for pattern in chosen.name):
        return False
    if not chosen.app:
        return True
    application = [str(event.attributes.get(key, "")) for key in ("spark.app.id", "spark.app.name")]
    return any(fnmatchcase(one, pattern) for one in application for pattern in chosen.app)


def _render(event: Event, width: int, verbose: bool) -> str:
    """Return an event as a string.

    Args:
        event: the event.
        width: columns of the terminal; 0 if the output is not a terminal: lines are printed without colour or
            wrapping.
        verbose: whether to add the attributes.
    """
    line = _wrapped(format_event(event, time_format="%Y-%m-%d %H:%M:%S%z"), width, "    ")
    if width and event.severity in _COLOURS:
        line = f"{_COLOURS[event.severity]}{line}{_RESET}"
    if not verbose:
        return line
    ordered = sorted(event.attributes.items(), key=lambda item: item[0] in _STACKS)
    details = "\n".join(_detail(key, str(value), width) for key, value in [("event_id", event.event_id), *ordered])
    return f"{line}\n{_DIM}{details}{_RESET}" if width else f"{line}\n{details}"


def _detail(key: str, value: str, width: int) -> str:
    """Return an attribute as lines of text, without terminal control characters."""
    first, *others = (on_one_line(line.rstrip("\r").expandtabs(4)) for line in value.strip().split("\n"))
    lines = [f"    {on_one_line(key)} = {first}", *(f"        {line}" for line in others)]
    return "\n".join(_wrapped(line, width, "            ") for line in lines)


def _wrapped(line: str, width: int, indent: str) -> str:
    """Break a line between words at the terminal's width; longer words stay whole."""
    if width < _LEAST_WIDTH:
        return line
    return textwrap.fill(
        line,
        width,
        subsequent_indent=indent,
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
