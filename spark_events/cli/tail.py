"""``spark-events tail``: print a file of events as readable text."""

from __future__ import annotations

import argparse
import heapq
import sys
import textwrap
import time
from collections import deque
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from spark_events.cli.arguments import add_min_severity
from spark_events.cli.follow import follow
from spark_events.cli.output import columns, note, show
from spark_events.cli.times import TIME, millis_of
from spark_events.config.quoting import quoted_source
from spark_events.errors import SparkEventsError
from spark_events.event import Event, Severity
from spark_events.event.stack_traces import shortened, without_repeats
from spark_events.event.text import moment, on_one_line, utc
from spark_events.report.wording import counted
from spark_events.reporters.file.reading import STDIN, event_of, lines_of
from spark_events.reporters.log_reporter import format_event, shows_colours

_COLOURS = {Severity.WARN: "\033[33m", Severity.ERROR: "\033[31m", Severity.FATAL: "\033[1;31m"}
_DIM, _RESET = "\033[2m", "\033[0m"
#: Attributes with many lines are printed last, below the cause.
_STACKS = ("exception.stacktrace", "spark.deadline.stack")
#: Maximum number of lines of one event with -v.
_MOST_LINES = 40
#: Number of events that are held to print them in the order of time: drivers and reporters write them slightly out of
#: order.
_HELD = 1_000
#: Lines that are kept for each stack trace.
_LEAST_STACK = 12
_MOST_NAMES = 10
#: Minimum width of a terminal for wrapped lines, in columns.
_LEAST_WIDTH = 40


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "tail",
        help="print the events of a file that a 'file' reporter wrote",
        description="Prints events from a file of JSON lines, in the order of time, with times in UTC.",
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
    parser.add_argument("--since", metavar="TIME", help=f"only events from this time on: {TIME}")
    parser.add_argument("--local", action="store_true", help="print times in the local time zone instead of UTC")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also print the event's id and attributes, at most 40 lines"
    )
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    if "://" in chosen.path:
        place = quoted_source(chosen.path)
        raise SparkEventsError(f"{place}: tail reads only files; for databases and storages, run spark-events report")
    damaged = 0
    now = time.time_ns() // 1_000_000
    since = None if chosen.since is None else millis_of("--since", chosen.since, now)
    # Last matching events of the existing file; None without -n, and after the existing file has been read.
    last = None if chosen.lines is None else deque[Event](maxlen=min(max(0, chosen.lines), sys.maxsize))
    in_colour = shows_colours(sys.stdout)
    width = columns() or 0
    held: list[tuple[int, int, Event]] = []
    names: set[str] = set()
    number, is_found = 0, False

    def render(event: Event) -> None:
        show(_render(event, width, in_colour, chosen.verbose, chosen.local), flush=chosen.follow, is_clean=True)

    def release(most: int) -> None:
        while len(held) > most:
            event = heapq.heappop(held)[-1]
            if last is None:
                render(event)
            else:
                last.append(event)

    try:
        lines = follow(Path(chosen.path)) if chosen.follow and chosen.path != STDIN else lines_of(chosen.path)
        for line in lines:
            if line is None:
                release(0)
                while last:
                    render(last.popleft())
                last = None
                continue
            event = event_of(line)
            if event is None:
                damaged += 1
                continue
            names.add(str(event.attributes.get("spark.app.name") or event.attributes.get("spark.app.id") or ""))
            if _is_of(event, chosen.app):
                is_found = True
                if _is_chosen(event, chosen, since):
                    number += 1
                    heapq.heappush(held, (event.observed_ts_millis, number, event))
                    release(_HELD)
    except BrokenPipeError:
        # This error comes from the output, not from the file; main() handles it.
        raise
    except OSError as error:
        raise SparkEventsError(f"cannot read {chosen.path}: {error.strerror or error}") from None
    finally:
        # Without -f, or if the file cannot be read to its end, no None follows the lines.
        release(0)
        while last:
            render(last.popleft())
    if damaged:
        skipped = counted(damaged, "line that is not an event", "lines that are not events")
        note(f"{chosen.path}: skipped {skipped}")
    if chosen.app and not is_found:
        known = sorted(filter(None, names))
        more = f" and {len(known) - _MOST_NAMES:,} more" if len(known) > _MOST_NAMES else ""
        there = ", ".join(known[:_MOST_NAMES]) or "none"
        raise SparkEventsError(f"--app: given {', '.join(chosen.app)}; the file has: {there}{more}")
    return 0


def _is_of(event: Event, patterns: Sequence[str] | None) -> bool:
    application = [str(event.attributes.get(key, "")) for key in ("spark.app.id", "spark.app.name")]
    return not patterns or any(fnmatchcase(one, pattern) for one in application for pattern in patterns)


def _is_chosen(event: Event, chosen: argparse.Namespace, since: int | None) -> bool:
    if event.severity < Severity(chosen.min_severity) or (since is not None and event.observed_ts_millis < since):
        return False
    return not chosen.name or any(fnmatchcase(event.name, pattern) for pattern in chosen.name)


def _render(event: Event, width: int, in_colour: bool, verbose: bool, local: bool) -> str:
    """Return an event as a string.

    Args:
        event: the event.
        width: columns of the terminal; 0 if the output is not a terminal: lines are printed without wrapping.
        in_colour: whether to use ANSI escape codes.
        verbose: whether to add the attributes.
        local: whether times are in the local time zone instead of UTC.
    """
    millis = event.observed_ts_millis
    at = moment(millis, "%Y-%m-%d %H:%M:%S%z") if local else utc(millis)
    line = _wrapped(format_event(event, at=at), width, "    ")
    if in_colour and event.severity in _COLOURS:
        line = f"{_COLOURS[event.severity]}{line}{_RESET}"
    if not verbose:
        return line
    details = "\n".join(_details(event, width, _MOST_LINES - 1 - line.count("\n")))
    return f"{line}\n{_DIM}{details}{_RESET}" if in_colour else f"{line}\n{details}"


def _details(event: Event, width: int, most: int) -> Iterator[str]:
    """Yield the attributes in at most ``most`` lines, the stack trace last."""
    facts = [("event_id", event.event_id), *((key, str(value)) for key, value in event.attributes.items())]
    stacks = [(key, value) for key, value in facts if key in _STACKS]
    others = [(key, value) for key, value in facts if key not in _STACKS and not _is_repeated(value, stacks)]
    short = [line for key, value in others for line in _detail(key, value, width, not stacks)]
    left = most - len(stacks) * _LEAST_STACK
    if len(short) > left:
        short = [*short[: left - 1], f"    … {len(short) - left + 1:,} more lines of attributes"]
    yield from short
    left = most - len(short)
    for key, value in stacks:
        yield from shortened(without_repeats(_detail(key, value, 0, True)), left // len(stacks))


def _is_repeated(value: str, stacks: Sequence[tuple[str, str]]) -> bool:
    """Return whether a stack trace, which is printed too, contains a text of several lines; its middle may be cut."""
    lines = value.strip().splitlines()
    return len(lines) > 1 and any(lines[0] in stack and lines[-1].strip() in stack for _, stack in stacks)


def _detail(key: str, value: str, width: int, whole: bool) -> list[str]:
    """Return an attribute as lines of text, without terminal control characters.

    Args:
        key: the attribute.
        value: its value.
        width: columns of the terminal; 0: lines are not wrapped.
        whole: whether to return all lines of the value. Beside a stack trace, which contains the others, one is enough.
    """
    first, *others = (on_one_line(line.rstrip("\r").expandtabs(4)) for line in value.strip().split("\n"))
    if others and not whole:
        first, others = f"{first} … ({counted(len(others), 'more line')})", []
    lines = [f"    {on_one_line(key)} = {first}", *(f"        {line}" for line in others)]
    return [part for line in lines for part in _wrapped(line, width, "            ").split("\n")]


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
