"""Settings of deadlines, ``events.deadline.…``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from spark_events.config import Kind, Settings, integer, option, positive_duration
from spark_events.config.value_kinds import WORDS, size
from spark_events.translate.deadlines.backlog_deadlines import BacklogLimit

__all__ = ["DeadlineConfig", "QueryDeadlineConfig", "read"]

_PREFIX = "events.deadline"
_BATCH = ".batch"
#: Duration above zero; ``off`` means no limit.
_LIMIT: Kind[float | None] = Kind(
    f"off, or {positive_duration.allowed}",
    lambda text: None if text == "off" else positive_duration.parse(text),
    lambda limit: "off" if limit is None else positive_duration.format(limit),
    harmless=WORDS,
)


@dataclasses.dataclass(frozen=True, slots=True)
class BacklogConfig:
    """Largest backlogs of a source, ``events.deadline.backlog.…``; None disables a rule."""

    records: int | None = option("records", integer(1, 2**53), None, doc="Maximum number of unread rows of a source.")
    bytes: int | None = option("bytes", size, None, doc="Maximum number of unread bytes of a source.")
    files: int | None = option("files", integer(1, 2**53), None, doc="Maximum number of unread files of a source.")
    seconds: float | None = option(
        "seconds", positive_duration, None, doc="Maximum time in which the query would process a source's unread rows."
    )
    time: float = option("time", positive_duration, 300.0, doc="Maximum time for which a backlog may exceed its limit.")


@dataclasses.dataclass(frozen=True, slots=True)
class DeadlineConfig:
    """Limits in seconds; None disables a rule.

    Attributes:
        backlog: limits of backlogs.
        queries: limits for the batches of single queries, by the query's name; each overrides ``batch``.
    """

    batch: float | None = option("batch", _LIMIT, None, doc="Time limit from a trigger to the commit of its batch.")
    progress: float | None = option(
        "progress", _LIMIT, None, doc="Time limit for a query that neither commits nor reports itself idle."
    )
    resources: float | None = option(
        "resources", _LIMIT, 120.0, doc="Time limit for a stage with waiting tasks while no task runs."
    )
    job: float | None = option("job", _LIMIT, None, doc="Time limit of a job outside micro-batches.")
    application: float | None = option("application", _LIMIT, None, doc="Time limit of the application.")
    lag: int | None = option(
        "lag", integer(1, 2**53), None, doc="Maximum number of unread rows of a source or a topic."
    )
    lag_time: float = option(
        "lag-time", positive_duration, 300.0, doc="Maximum time for which the number of unread rows may exceed lag."
    )
    backlog: BacklogConfig = BacklogConfig()
    queries: Mapping[str, float | None] = dataclasses.field(default_factory=dict)

    def backlog_limits(self) -> dict[str, BacklogLimit]:
        """Return the limits of the enabled rules about backlogs, by rule."""
        limits: dict[str, BacklogLimit] = {}
        if self.lag is not None:
            limits["lag"] = BacklogLimit(self.lag, round(self.lag_time * 1000))
        for unit in ("records", "bytes", "files", "seconds"):
            most = getattr(self.backlog, unit)
            if most is not None:
                limits[f"backlog.{unit}"] = BacklogLimit(most, round(self.backlog.time * 1000))
        return limits

    @property
    def watches_queries(self) -> bool:
        """Whether a rule that needs samples of the queries' threads is enabled."""
        return any(limit is not None for limit in (self.batch, self.progress, *self.queries.values()))

    @property
    def is_on(self) -> bool:
        """Whether any rule is enabled."""
        limits = (self.resources, self.job, self.application)
        return self.watches_queries or bool(self.backlog_limits()) or any(limit is not None for limit in limits)


@dataclasses.dataclass(frozen=True, slots=True)
class QueryDeadlineConfig:
    """Limit of one query, ``events.deadline.query.<name>.batch``."""

    batch: float | None = option(
        "batch",
        _LIMIT,
        None,
        doc="Time limit from a trigger of this query to the commit of its batch; overrides events.deadline.batch.",
    )


def read(settings: Settings) -> DeadlineConfig:
    """Read all limits; an invalid section gets its defaults, and ``settings`` records the error."""
    config = settings.read(DeadlineConfig, _PREFIX) or DeadlineConfig()
    backlog = settings.read(BacklogConfig, f"{_PREFIX}.backlog") or BacklogConfig()
    queries = {}
    for setting in settings.below(f"{_PREFIX}.query"):
        # A query's name may contain dots.
        name = setting.key.partition(f"{_PREFIX}.query.")[2].removesuffix(_BATCH)
        if setting.key.endswith(_BATCH) and name:
            own = settings.read(QueryDeadlineConfig, f"{_PREFIX}.query.{name}")
            queries[name] = None if own is None else own.batch
    return dataclasses.replace(config, backlog=backlog, queries=queries)
