"""``spark-events``: which commands there are."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

from spark_events._version import __version__
from spark_events.cli import check, conf, replay, send_test, tail
from spark_events.cli.arguments import UsageError
from spark_events.cli.output import OutputError, abandon, writing
from spark_events.errors import SparkEventsError

__all__ = ["main"]

#: What Python chooses by itself; PYTHONIOENCODING may say otherwise, and is obeyed.
_STRICT = ("strict", "surrogateescape")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code: 0, 1 for a failure, 2 for wrong usage, 130 for Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in _STRICT:
        # What a terminal of few characters cannot show must not be the end.
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = argparse.ArgumentParser(prog="spark-events", description="Events for Apache Spark.")
    parser.add_argument("--version", action="version", version=f"spark-events {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (conf, check, send_test, tail, replay):
        command.add_to(commands)
    chosen = parser.parse_args(arguments)
    code = 0
    try:
        code = _code(chosen)
        with writing():
            # What is still held back may be what does not fit.
            print(end="", flush=True)
        return code
    except OutputError as error:
        abandon()
        print(f"spark-events: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has seen enough.
        abandon()
        return code
    except KeyboardInterrupt:
        return 130


def _code(chosen: argparse.Namespace) -> int:
    try:
        code: int = chosen.run(chosen)
        return code
    except OutputError:
        raise
    except SparkEventsError as error:
        print(f"spark-events: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
