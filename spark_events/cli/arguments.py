"""Arguments that several commands have."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path

from spark_events.config import Settings
from spark_events.config.defaults import default_path, read_properties, settings_of
from spark_events.errors import SparkEventsError
from spark_events.event import Severity

__all__ = ["Configuration", "UsageError", "add_configuration", "add_min_severity", "configuration", "require_seconds"]

#: Longer than anybody waits, and not too long for the clocks.
_MOST_SECONDS = 1_000_000_000


class UsageError(SparkEventsError):
    """The command line itself is wrong, in a way that its parser cannot see."""


def add_min_severity(parser: argparse.ArgumentParser) -> None:
    """``--min-severity``, in any case; the name of a :class:`Severity`."""
    parser.add_argument(
        "--min-severity",
        type=str.upper,
        choices=[severity.value for severity in Severity],
        default=Severity.TRACE.value,
        help="leave out what is less severe",
    )


def require_seconds(option: str, given: float, *, above: bool = False) -> None:
    """Refuses what nobody can wait for: ``nan``, say.

    Args:
        option: what it was given to.
        given: seconds.
        above: 0 is refused, too.

    Raises:
        UsageError: with what is allowed.
    """
    # nan is neither above nor below anything.
    if not (given > 0 if above else given >= 0):
        raise UsageError(f"{option}: given {given:g}, allowed are seconds {'above' if above else 'from'} 0")
    if given > _MOST_SECONDS:
        raise UsageError(f"{option}: given {given:g}, allowed are seconds up to {_MOST_SECONDS:,}")


@dataclasses.dataclass(frozen=True, slots=True)
class Configuration:
    """What a driver would be told.

    Attributes:
        origin: the file.
        properties: what it says, but for what the command line says better.
        given: what the command line says; those of spark-events without the prefix ``spark.``.
    """

    origin: str
    properties: Mapping[str, str]
    given: Mapping[str, str]

    def settings(self) -> Settings:
        """What of it is for spark-events."""
        ours = {key: value for key, value in self.given.items() if key.startswith("events.")}
        return settings_of(self.properties, self.origin, extra=ours)

    def value(self, key: str) -> str | None:
        """One value; of spark-events, with or without ``spark.`` before its key."""
        plain = key.removeprefix("spark.")
        for source in (self.given, self.properties):
            for spelled in (key, f"spark.{plain}", plain):
                if spelled in source:
                    return source[spelled]
        return None


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """``--conf FILE`` and ``--set KEY=VALUE``."""
    parser.add_argument(
        "--conf", type=Path, metavar="FILE", help="instead of the spark-defaults.conf that Spark would read here"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="as spark-submit's --conf; wins over the file"
    )


def configuration(chosen: argparse.Namespace) -> Configuration:
    """What these arguments name.

    Raises:
        SparkEventsError: there is no such file.
        UsageError: what was set is not of the form ``KEY=VALUE``.
    """
    path: Path | None = chosen.conf or default_path()
    if path is None:
        raise SparkEventsError("where is the configuration? Set SPARK_HOME or SPARK_CONF_DIR, or give --conf FILE")
    properties = read_properties(path)
    given: dict[str, str] = {}
    for one in chosen.set:
        key, separator, value = (part.strip() for part in one.partition("="))
        if not separator or not key:
            raise UsageError(f"--set: given {one!r}, allowed is KEY=VALUE")
        plain = key.removeprefix("spark.")
        given[plain if plain.startswith("events.") else key] = value
        for spelled in (key, plain, f"spark.{plain}"):
            properties.pop(spelled, None)
    return Configuration(str(path), properties, given)
