"""Command ``spark-events``: parse arguments and run a subcommand."""

from __future__ import annotations

import argparse
import io
import logging
import sys
from collections.abc import Sequence

from spark_events._version import __version__
from spark_events.cli import check, conf, follow_logs, replay, report, run, send_test, tail, uninstall, watch, why
from spark_events.cli.arguments import UsageError
from spark_events.cli.examples import add_examples
from spark_events.cli.output import CleanFormatter, OutputError, abandon, note, writing
from spark_events.errors import SparkEventsError

#: Python's default error handlers for output. Handlers that PYTHONIOENCODING has set are kept.
_STRICT = ("strict", "surrogateescape")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code: 0, 1 for a failure, 2 for wrong usage, 130 for Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in _STRICT:
        # Replace characters that the terminal's encoding lacks; otherwise they would abort the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    chosen = argument_parser().parse_args(arguments)
    handler = logging.StreamHandler()
    handler.setFormatter(CleanFormatter("spark-events: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    code = 0
    try:
        code = _code(chosen)
        with writing():
            # Flush here, because a full disk may be detected only now.
            print(end="", flush=True)
        return code
    except OutputError as error:
        abandon()
        note(str(error))
        return 1
    except BrokenPipeError:
        # The program that reads the output, such as `head`, has closed the pipe.
        abandon()
        return code
    except KeyboardInterrupt:
        return 130


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser with all commands; a test compares docs/cli.md with this parser."""
    parser = argparse.ArgumentParser(prog="spark-events", description="Events for Apache Spark.")
    parser.add_argument("--version", action="version", version=f"spark-events {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (conf, check, send_test, tail, replay, follow_logs, watch, report, why, run, uninstall):
        command.add_to(commands)
    for name, subparser in commands.choices.items():
        add_examples(name, subparser)
    return parser


def _code(chosen: argparse.Namespace) -> int:
    try:
        code: int = chosen.run(chosen)
        return code
    except OutputError:
        raise
    except SparkEventsError as error:
        note(str(error))
        return 2 if isinstance(error, UsageError) else 1
