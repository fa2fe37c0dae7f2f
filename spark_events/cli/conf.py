"""``spark-events conf``: print the lines for spark-defaults.conf."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import sysconfig
from pathlib import Path

from spark_events.cli.output import show
from spark_events.errors import SparkEventsError
from spark_events.jars import jar_path


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "conf",
        help="print the lines to add to spark-defaults.conf, or the path of the jar",
        description="Prints the lines that enable spark-events, to be appended to spark-defaults.conf.",
    )
    parser.add_argument("--jar", action="store_true", help="print only the path of the jar")
    parser.add_argument(
        "--install",
        type=Path,
        metavar="DIR",
        help="copy the jar to DIR and print the lines with the path of the copy, which stays valid for other Python "
        "versions and after the package is uninstalled; repeat after each upgrade",
    )
    parser.set_defaults(run=_run)


def lines(jar: Path | None = None) -> list[str]:
    """Return the two required lines, and a line for ``events.python`` if the shim could not find this Python."""
    jar = jar or jar_path()
    found = ["spark.extraListeners            io.sparkevents.EventsListener", f"spark.driver.extraClassPath     {jar}"]
    if Path(sysconfig.get_path("purelib")).resolve() not in jar.parents:
        found.append(f"spark.events.python             {sys.executable}")
    return found


def install(folder: Path) -> Path:
    """Copy the jar into a folder and return the path of the copy.

    The new file replaces the old one instead of overwriting it, so running drivers keep the jar that they have opened.

    Raises:
        SparkEventsError: when the folder cannot be written.
    """
    jar = jar_path()
    target = folder.absolute() / jar.name
    scratch = target.with_name(f".{jar.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(jar, scratch)
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        raise SparkEventsError(f"cannot copy the jar to {folder}: {error.strerror or error}") from None
    return target


def _run(chosen: argparse.Namespace) -> int:
    jar = jar_path() if chosen.install is None else install(chosen.install)
    # Begin with an empty line: the file to which the output is appended may end without a line break.
    show(str(jar) if chosen.jar else "\n".join(["", *lines(jar)]))
    return 0
