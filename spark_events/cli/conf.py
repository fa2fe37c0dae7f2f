"""``spark-events conf``: the lines for spark-defaults.conf."""

from __future__ import annotations

import argparse
import sys
import sysconfig
from pathlib import Path

from spark_events.cli.output import show
from spark_events.jars import jar_path

__all__ = ["add_to", "lines"]


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = commands.add_parser(
        "conf",
        help="print the lines for spark-defaults.conf, or the path of the jar alone",
        description="Prints the lines that switch events on, ready to be appended to spark-defaults.conf.",
    )
    parser.add_argument("--jar", action="store_true", help="print the path of the jar, nothing else")
    parser.set_defaults(run=_run)


def lines() -> list[str]:
    """The two lines that are enough, and a third where the shim could not find this Python by itself."""
    jar = jar_path()
    found = [
        "spark.extraListeners            io.sparkevents.EventsListener",
        f"spark.driver.extraClassPath     {jar}",
    ]
    if Path(sysconfig.get_path("purelib")).resolve() not in jar.parents:
        found.append(f"spark.events.python             {sys.executable}")
    return found


def _run(chosen: argparse.Namespace) -> int:
    if chosen.jar:
        show(str(jar_path()))
    else:
        show("\n".join(lines()))
    return 0
