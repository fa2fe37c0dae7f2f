"""Command-line arguments shared by several commands."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from spark_events.config import Kind, Settings, integer
from spark_events.config.defaults import default_path, read_properties, settings_of
from spark_events.config.quoting import quoted_key
from spark_events.errors import SparkEventsError
from spark_events.event import Severity

T = TypeVar("T")


class UsageError(SparkEventsError):
    """Invalid command line that argparse cannot detect."""


def add_min_severity(parser: argparse.ArgumentParser) -> None:
    """Add ``--min-severity``, the name of a :class:`Severity` in upper or lower case."""
    parser.add_argument(
        "--min-severity",
        type=str.upper,
        choices=[severity.value for severity in Severity],
        default=Severity.TRACE.value,
        help="omit events below this severity",
    )


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add ``--jobs N``."""
    parser.add_argument(
        "--jobs",
        type=parsed(integer(1, 1_000)),
        metavar="N",
        help="read event logs in N processes, one log each (default: the number of cores)",
    )


def parsed(kind: Kind[T]) -> Callable[[str], T]:
    """Return a parser of an option's value for argparse; durations such as ``30s`` become seconds."""

    def parse(given: str) -> T:
        try:
            return kind.parse(given)
        except ValueError:
            raise argparse.ArgumentTypeError(f"given {given!r}, expected {kind.allowed}") from None

    return parse


@dataclasses.dataclass(frozen=True, slots=True)
class Configuration:
    """Configuration that a driver would use if it started in this environment.

    Attributes:
        origin: path of the configuration file.
        properties: the file's properties, except those that the command line overrides.
        given: properties from the command line, with their keys as they were written.
    """

    origin: str
    properties: Mapping[str, str]
    given: Mapping[str, str]

    def settings(self, resolves: bool = True) -> Settings:
        """Return the settings of spark-events; ``resolves``: see :class:`~spark_events.config.Settings`."""
        ours = {key: value for key, value in self.given.items() if _plain(key).startswith("events.")}
        return settings_of(self.properties, self.origin, extra=ours, resolves=resolves)

    def value(self, key: str) -> str | None:
        """Return one value, or None; keys of spark-events match with and without ``spark.``."""
        every = {_plain(spelled): value for spelled, value in [*self.properties.items(), *self.given.items()]}
        return every.get(_plain(key))


def add_conf(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Add ``--conf FILE``."""
    parser.add_argument("--conf", type=Path, metavar="FILE", help=meaning)


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add ``--conf FILE`` and ``--set KEY=VALUE``."""
    add_conf(parser, "read FILE instead of Spark's spark-defaults.conf")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set one property, as spark-submit's --conf does; overrides the file",
    )


def _place() -> str:
    """Return the name of the variable or package from which :func:`default_path` derives the path."""
    for variable in ("SPARK_CONF_DIR", "SPARK_HOME"):
        if os.environ.get(variable):
            return variable
    return "the installed PySpark"


def configuration(chosen: argparse.Namespace) -> Configuration:
    """Read the configuration that the arguments select.

    Raises:
        SparkEventsError: when there is no configuration file.
        UsageError: when a ``--set`` is not of the form ``KEY=VALUE``.
    """
    path: Path | None = chosen.conf or default_path()
    if path is None:
        raise SparkEventsError(
            "no spark-defaults.conf: SPARK_CONF_DIR and SPARK_HOME are not set and PySpark is not installed in"
            f" {sys.executable}; set one of them, or pass --conf FILE"
        )
    if chosen.conf is None and not path.exists():
        raise SparkEventsError(
            f"no spark-defaults.conf: looked for {path}, from {_place()}; create it with"
            f" `mkdir -p {path.parent} && spark-events conf >> {path}`, or pass --conf FILE"
        )
    spelled: dict[str, tuple[str, str]] = {}
    for one in chosen.set:
        key, separator, value = (part.strip() for part in one.partition("="))
        if not separator or not key:
            raise UsageError(f"--set: given {quoted_key(one)!r}, allowed: KEY=VALUE")
        spelled[_plain(key)] = key, value
    properties = {key: value for key, value in read_properties(path).items() if _plain(key) not in spelled}
    return Configuration(str(path), properties, dict(spelled.values()))


def _plain(key: str) -> str:
    """Return a key of spark-events without the prefix ``spark.``, and any other key unchanged."""
    plain = key.removeprefix("spark.")
    return plain if plain.startswith("events.") else key
