"""Deadlines of backlogs: a source that stays behind for too long.

The time is how long the backlog exceeds its limit, and not the age of the oldest unread row, which Spark does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spark_events.event.text import lasting
from spark_events.records.query_progress import StreamingProgress
from spark_events.translate.deadlines.edges import Edges, Work
from spark_events.translate.draft import Draft, counted
from spark_events.translate.offsets import lags
from spark_events.translate.queries import Run

__all__ = ["BacklogDeadlines", "BacklogLimit"]

#: Noun and attribute of a backlog, by rule; seconds have no noun.
_UNITS = {
    "lag": ("row", "spark.deadline.rows"),
    "backlog.records": ("row", "spark.deadline.rows"),
    "backlog.bytes": ("byte", "spark.deadline.bytes"),
    "backlog.files": ("file", "spark.deadline.files"),
    "backlog.seconds": ("", "spark.deadline.seconds"),
}


class BacklogLimit(NamedTuple):
    """Limit of a rule: the largest backlog, and how long it may be larger, in milliseconds."""

    most: float
    millis: int


class _Key(NamedTuple):
    """Rule, and ``<index>|<topic>`` of a source; the topic is empty, except for the rule ``lag``."""

    rule: str
    source: str


class _Behind(NamedTuple):
    """Start of the time above the limit, and the backlog after the last commit."""

    since: int
    amount: float


class BacklogDeadlines:
    """The backlogs of one run that exceed their limits.

    Args:
        run: the run.
        edges: the overdue deadlines of the application.
        limits: limits by rule; a missing rule is disabled.
    """

    def __init__(self, run: Run, edges: Edges, limits: Mapping[str, BacklogLimit]) -> None:
        self._run = run
        self._edges = edges
        self._limits = limits
        self._above: dict[_Key, _Behind] = {}

    def due(self) -> Iterator[int]:
        """Yield the times at which events are due without further records."""
        for key, behind in self._above.items():
            limit = self._limits[key.rule].millis
            if (at := self._edges.due(self._name(key), behind.since, limit)) is not None:
                yield at

    def clock_stepped(self, by: int) -> None:
        """Move all times by the step of the wall clock, in milliseconds."""
        self._above = {key: behind._replace(since=behind.since + by) for key, behind in self._above.items()}

    def committed(self, progress: StreamingProgress, at: int, proven: bool) -> Iterator[Draft]:
        """Apply a commit.

        Args:
            progress: the progress of the batch.
            at: time of its commit.
            proven: whether the record is from an event log, whose times prove how long a backlog lasted.
        """
        if not self._limits:
            return
        for key, amount in self._amounts(progress):
            if key in self._above and proven:
                yield from self._judge(key, at)
            if amount > self._limits[key.rule].most:
                since = self._above[key].since if key in self._above else at
                self._above[key] = _Behind(since, amount)
            elif key in self._above:
                yield from self._caught_up(key, at, f"{_text(key.rule, amount)} left")

    def ended(self, at: int) -> Iterator[Draft]:
        """Close all backlogs, because the run has ended."""
        for key in list(self._above):
            yield from self._caught_up(key, at, "the query ended")

    def inspected(self, now: int, forgiven: int) -> Iterator[Draft]:
        """Yield the events that are due; the time before ``forgiven``, when the driver was paused, does not count."""
        self._above = {key: behind._replace(since=max(behind.since, forgiven)) for key, behind in self._above.items()}
        for key in self._above:
            yield from self._judge(key, now)

    def _amounts(self, progress: StreamingProgress) -> Iterator[tuple[_Key, float]]:
        backlogs = self._run.backlogs.after(progress)
        for index, source in enumerate(progress.sources):
            if "lag" in self._limits:
                for topic, rows in lags(source.end_offset, source.latest_offset).items():
                    yield _Key("lag", f"{index}|{topic}"), rows
            for unit, amount in backlogs[index]._asdict().items():
                if amount is not None and f"backlog.{unit}" in self._limits:
                    yield _Key(f"backlog.{unit}", f"{index}|"), amount

    def _judge(self, key: _Key, now: int) -> Iterator[Draft]:
        limit, behind = self._limits[key.rule], self._above[key]
        sentence = f"{self._title(key)} has had {_more_than(key.rule, limit.most)}"
        details = f": {_text(key.rule, behind.amount)} at the last commit"
        yield from self._edges.judge(self._work(key), limit.millis, behind.since, now, sentence, details)

    def _caught_up(self, key: _Key, at: int, how: str) -> Iterator[Draft]:
        work = self._work(key)
        del self._above[key]
        yield from self._edges.close(work, at, f"{self._title(key)} is no longer behind", f": {how}")

    def _title(self, key: _Key) -> str:
        index, _, topic = key.source.partition("|")
        what = f"Topic '{topic}'" if topic else f"Source {index}"
        return f"{what} of {self._run.subject}"

    def _work(self, key: _Key) -> Work:
        behind = self._above[key]
        index, _, topic = key.source.partition("|")
        attributes = {
            **self._run.scope_variables,
            "spark.deadline.source": int(index),
            "spark.deadline.topic": topic or None,
            _UNITS[key.rule][1]: behind.amount,
        }
        return Work(self._name(key), key.rule, (self._run.run_id, key.source, behind.since), attributes)

    def _name(self, key: _Key) -> str:
        return f"{key.rule}|{self._run.run_id}|{key.source}"


def _text(rule: str, amount: float) -> str:
    noun, _ = _UNITS[rule]
    return counted(round(amount), noun) if noun else f"{lasting(round(amount * 1000))} of work"


def _more_than(rule: str, most: float) -> str:
    noun, _ = _UNITS[rule]
    return f"more than {counted(round(most), f'unread {noun}') if noun else f'{_text(rule, most)} unread'}"
