"""``spark-events uninstall``: print the configuration lines to remove before the package is removed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from spark_events.cli.output import show
from spark_events.config.defaults import default_path
from spark_events.config.quoting import quoted_key
from spark_events.errors import SparkEventsError

#: Key of a setting of spark-events at the beginning of a line.
_KEY = re.compile(r"(spark\.)?events\.[^\s=:]*")
#: Pattern of configuration lines that mention spark-events: a setting, the listener, the plugin, the package's jar, or
#: the jar from a Maven repository.
_OURS = re.compile(r"^(spark\.)?events\.|io\.sparkevents[.:]|spark-events[^/:,]*\.jar")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "uninstall",
        help="print the configuration lines to remove before `pip uninstall spark-events`; change nothing",
        description=(
            "Prints the lines of spark-defaults.conf to remove before `pip uninstall spark-events`. Changes nothing."
            " Exit code: 1 if the file has such lines, else 0."
        ),
    )
    parser.add_argument(
        "--conf",
        type=Path,
        metavar="FILE",
        help="read FILE instead of Spark's spark-defaults.conf",
    )
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    path: Path | None = chosen.conf or default_path()
    if path is None:
        raise SparkEventsError("no configuration found: set SPARK_HOME or SPARK_CONF_DIR, or pass --conf FILE")
    found = list(_found(path)) if chosen.conf or path.exists() else []
    if found:
        show(
            f"First remove these lines from {path}, because Spark does not start if a listener is set and its jar "
            f"is missing:"
        )
        for number, text in found:
            show(f"  {number:4}  {text}")
        show("If a line also contains other listeners or jars, remove only the entry of spark-events.")
        show("Then: pip uninstall spark-events, and delete the jar if `spark-events conf --install` copied it.")
    else:
        show(f"{path} has no lines of spark-events. Run: pip uninstall spark-events")
    show(
        "Also check other places that may set such properties: --conf, --properties-file and the session builder of "
        "your jobs."
    )
    return 1 if found else 0


def _found(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SparkEventsError(f"cannot read {path}: {error.strerror}") from None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped.startswith(("#", "!")) and _OURS.search(stripped):
            own = _KEY.match(stripped)
            # The value of a setting may be a secret.
            yield number, f"{quoted_key(own[0])} …" if own else stripped
