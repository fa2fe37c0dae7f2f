"""Standard output, and what is said when it cannot be written to."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from spark_events.errors import SparkEventsError

__all__ = ["OutputError", "abandon", "show", "writing"]


class OutputError(SparkEventsError):
    """What was to be shown could not be written: a full disk, say."""


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Whatever fails in here is the output's failure, not that of a file that is read.

    Raises:
        OutputError: it cannot be written to.
        BrokenPipeError: its reader has seen enough.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write the output: {error.strerror or error}") from None


def show(text: str, *, flush: bool = False) -> None:
    """Prints lines; raises what :func:`writing` does."""
    with writing():
        print(text, flush=flush)


def abandon() -> None:
    """What has not been written is dropped. Python would try, and complain, once more at its exit."""
    # A test's output is no file.
    with contextlib.suppress(ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
