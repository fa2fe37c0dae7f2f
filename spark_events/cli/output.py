"""Output: text in columns, handling of write errors, and notes on standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from spark_events.errors import SparkEventsError


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a heading with rows below it, indented by two spaces; the last column is not padded."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


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


def show(text: str, *, flush: bool = False) -> None:
    """Print lines; raise the errors of :func:`writing`."""
    with writing():
        print(text, flush=flush)


def note(text: str) -> None:
    """Print a line to standard error."""
    print(f"spark-events: {text}", file=sys.stderr, flush=True)


def abandon() -> None:
    """Discard unwritten output; otherwise Python would try to write it again at exit."""
    # Ignore the error: in tests, standard output has no file descriptor.
    with contextlib.suppress(ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
