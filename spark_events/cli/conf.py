"""``spark-events conf``: print the lines for spark-defaults.conf."""

from __future__ import annotations

import argparse
import sys
import sysconfig
from pathlib import Path

from spark_events.cli.output import show
from spark_events.jars import jar_path


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "conf",
        help="print the lines to add to spark-defaults.conf, or the path of the jar",
        description="Prints the lines that enable spark-events, to be appended to spark-defaults.conf.",
    )
    parser.add_argument("--jar", action="store_true", help="print only the path of the jar")
    parser.set_defaults(run=_run)


def lines() -> list[str]:
    """Return the two required lines, and ``events.python`` if the shim could not find this Python itself."""
    jar = jar_path()
    found = ["spark.extraListeners            io.sparkevents.EventsListener", f"spark.driver.extraClassPath     {jar}"]
    if Path(sysconfig.get_path("purelib")).resolve() not in jar.parents:
        found.append(f"spark.events.python             {sys.executable}")
    return found


def _run(chosen: argparse.Namespace) -> int:
    if chosen.jar:
        show(str(jar_path()))
    else:
        show("\n".join(lines()))
    return 0
