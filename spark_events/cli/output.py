"""Output: text in columns, handling of write errors, and notes on standard error."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence

from spark_events.errors import SparkEventsError
from spark_events.event.text import for_terminal, json_for_terminal, on_one_line


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a heading with rows below it, indented by two spaces; the last column is not padded."""
    lines = [head, *([on_one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def columns() -> int | None:
    """Return the width of the output: that of the terminal, or ``COLUMNS`` if it is set; None for a file or a pipe."""
    given = os.environ.get("COLUMNS", "")
    is_given = given.isdecimal() and int(given) > 0
    return shutil.get_terminal_size().columns if is_given or sys.stdout.isatty() else None


class OutputError(SparkEventsError):
    """Error while writing to standard output, for example because the disk is full."""


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Context manager that converts an OSError raised by the output to an OutputError.

    Raises:
        OutputError: when the output cannot be written.
        BrokenPipeError: when the program that reads the output has closed the pipe.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write the output: {error.strerror or error}") from None


def show(text: str, *, flush: bool = False, is_clean: bool = False) -> None:
    """Print text to standard output; escape its control characters, unless it is clean and has colours.

    Every command prints through this function: names and texts of applications may contain terminal control characters.

    Raises:
        OutputError: when the output cannot be written.
        BrokenPipeError: when the program that reads the output has closed the pipe.
    """
    with writing():
        print(text if is_clean else for_terminal(text), flush=flush)


def show_json(text: str) -> None:
    """Print JSON to standard output; escape its control characters as JSON does.

    Raises:
        OutputError: when the output cannot be written.
        BrokenPipeError: when the program that reads the output has closed the pipe.
    """
    with writing():
        print(json_for_terminal(text))


def note(text: str) -> None:
    """Print a line to standard error, without terminal control characters."""
    print(f"spark-events: {on_one_line(text)}", file=sys.stderr, flush=True)


class CleanFormatter(logging.Formatter):
    """Formatter of log records for a terminal: control characters are escaped, line breaks are kept."""

    def format(self, record: logging.LogRecord) -> str:
        return for_terminal(super().format(record))


def abandon() -> None:
    """Discard unwritten output; otherwise Python would try to write it again at exit."""
    # Ignore the error: in tests, standard output has no file descriptor.
    with contextlib.suppress(ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
