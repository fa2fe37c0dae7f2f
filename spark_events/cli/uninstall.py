"""``spark-events uninstall``: print what to remove, in an order in which Spark can start after each step."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from spark_events.cli.output import show
from spark_events.config.defaults import default_path
from spark_events.errors import SparkEventsError

#: A setting, the listener, the plugin, the jar of the package, or the jar from a Maven repository.
_OURS = re.compile(r"^(spark\.)?events\.|io\.sparkevents[.:]|spark-events[^/:,]*\.jar")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "uninstall",
        help="print what to remove before `pip uninstall spark-events`; changes nothing",
        description=(
            "Prints the lines of spark-defaults.conf to remove before `pip uninstall spark-events`. Changes nothing."
            " Exit code: 1 while there are such lines, else 0."
        ),
    )
    parser.add_argument(
        "--conf",
        type=Path,
        metavar="FILE",
        help="read FILE instead of the spark-defaults.conf that Spark would read here",
    )
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    path: Path | None = chosen.conf or default_path()
    if path is None:
        raise SparkEventsError("no configuration found: set SPARK_HOME or SPARK_CONF_DIR, or pass --conf FILE")
    found = list(_found(path)) if chosen.conf or path.exists() else []
    if found:
        show(f"Remove these lines of {path} first. Without the jar, Spark does not start with the listener's line:")
        for number, text in found:
            show(f"  {number:4}  {text}")
        show("If a line also names other listeners or jars, remove only the part of spark-events.")
        show("Then: pip uninstall spark-events, and delete the jar if `spark-events conf --install` copied it.")
    else:
        show(f"{path} has no line of spark-events. Run: pip uninstall spark-events")
    show("Other places that may have such lines: --conf, --properties-file and the session builder of your jobs.")
    return 1 if found else 0


def _found(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SparkEventsError(f"cannot read {path}: {error.strerror}") from None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped.startswith(("#", "!")) and _OURS.search(stripped):
            yield number, stripped
