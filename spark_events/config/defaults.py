"""Reader of spark-defaults.conf, a Java properties file, by the rules of Spark and of the shim."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from spark_events.config import Setting, Settings
from spark_events.errors import SparkEventsError

_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*(?:\s*[=:]\s*|\s+)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def default_path() -> Path | None:
    """Return the path at which Spark expects the file; None if the environment does not determine it."""
    if folder := os.environ.get("SPARK_CONF_DIR"):
        return Path(folder) / "spark-defaults.conf"
    home = os.environ.get("SPARK_HOME")
    if not home:
        found = importlib.util.find_spec("pyspark")
        if found is None or found.origin is None:
            return None
        home = str(Path(found.origin).parent)
    return Path(home) / "conf" / "spark-defaults.conf"


def read_properties(path: Path) -> dict[str, str]:
    """Read all properties of a file.

    Raises:
        SparkEventsError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SparkEventsError(f"cannot read {path}: {error.strerror}") from None
    return dict(_properties(text))


def settings_of(
    properties: Mapping[str, str],
    origin: str,
    without: tuple[str, ...] = (),
    extra: Mapping[str, str] | None = None,
    resolves: bool = True,
) -> Settings:
    """Return the settings of spark-events in Spark's properties.

    Args:
        properties: contents of the file.
        origin: name of the file, for messages.
        without: prefixes of keys to skip.
        extra: settings that override settings of the file, with or without the prefix ``spark.``.
        resolves: whether references to variables and files are resolved.
    """
    found: dict[str, Setting] = {}
    for key, value in properties.items():
        own = key.removeprefix("spark.")
        if own.startswith("events.") and not own.startswith(without):
            found[key] = Setting(key, value, origin)
    for key, value in (extra or {}).items():
        own = key.removeprefix("spark.")
        found.pop(own, None)
        found[f"spark.{own}"] = Setting(key, value, "the command line")
    return Settings(found.values(), resolves)


def read_settings(path: Path, without: tuple[str, ...] = (), extra: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of spark-events from a file.

    Raises:
        SparkEventsError: the file cannot be read.
    """
    return settings_of(read_properties(path), str(path), without, extra)


def _properties(text: str) -> Iterator[tuple[str, str]]:
    for line in _logical_lines(text):
        match = _SEPARATOR.search(line)
        if match is None:
            yield _plain(line), ""
        else:
            # Backslashes before the separator belong to the key.
            end = match.start() + len(match[0]) - len(match[0].lstrip("\\"))
            yield _plain(line[:end]), _plain(line[match.end() :]).strip()


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for line in re.split(r"\r\n|\r|\n", text):
        stripped = line.lstrip(" \t\f")
        if not begun and (not stripped or stripped[0] in "#!"):
            continue
        begun += stripped
        if (len(begun) - len(begun.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        yield begun
        begun = ""
    if begun:
        yield begun


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) > 1 else _CONTROLS.get(m[1], m[1]), text)
