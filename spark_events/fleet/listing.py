"""Event logs of a place, with the sizes and times by which a log that has not changed is recognised."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from spark_events.errors import SparkEventsError
from spark_events.records.event_log.log_files import EventLog, find_logs
from spark_events.records.event_log.log_paths import place_of

__all__ = ["Grouping", "ListedLog", "grouped", "listed_logs"]

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Grouping:
    """Limits of a group of logs that one task reads, because Spark needs longer for a task than for a small log.

    Attributes:
        most_bytes: size from which a log is alone, and that a group does not exceed.
        most_logs: number of logs.
    """

    most_bytes: int = 32 << 20
    most_logs: int = 64


@dataclasses.dataclass(frozen=True, slots=True)
class ListedLog:
    """One log, as the listing of its folder showed it.

    Attributes:
        log: the log.
        size: bytes of all its files.
        modified: time of the last change of any file, in milliseconds since the epoch.
    """

    log: EventLog
    size: int
    modified: int

    @property
    def version(self) -> tuple[str, int, int]:
        """Path, size and time; a log with the same version is not read again."""
        return self.log.key, self.size, self.modified


def listed_logs(path: str, since: int | None) -> Iterator[ListedLog]:
    """Yield the logs at a path or URL that were changed since a time in milliseconds; open none of them.

    Raises:
        SparkEventsError: nothing exists there, or the place cannot be reached.
    """

    def unlisted(error: OSError) -> None:
        _LOG.warning("cannot list %s: %s; its logs are not read", error.filename, error.strerror or error)

    try:
        place = place_of(path)
        # Executors have other working folders.
        for log in find_logs(place.absolute() if isinstance(place, Path) else place, unlisted):
            try:
                states = [file.stat() for file in log.files]
            except OSError as error:
                # Spark renames a log when its application ends; the next call finds the new name.
                _LOG.warning("cannot read %s: %s; skipped", error.filename, error.strerror or error)
                continue
            size = sum(state.st_size for state in states)
            modified = round(1000 * max((state.st_mtime for state in states), default=0.0))
            # An empty log has no event yet.
            if size and (since is None or modified >= since):
                yield ListedLog(log, size, modified)
    except OSError as error:
        raise SparkEventsError(f"cannot read {error.filename or path}: {error.strerror or error}") from None


def grouped(logs: Iterable[ListedLog], limits: Grouping = Grouping()) -> Iterator[list[ListedLog]]:
    """Yield groups of logs, those with the largest logs first, so that a large log is not the last to be read."""
    group: list[ListedLog] = []
    size = 0
    for log in sorted(logs, key=lambda log: log.size, reverse=True):
        if group and (len(group) == limits.most_logs or size + log.size > limits.most_bytes):
            yield group
            group, size = [], 0
        group.append(log)
        size += log.size
    if group:
        yield group
