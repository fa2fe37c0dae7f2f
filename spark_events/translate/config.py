"""Settings of the translation: kinds of events and their level of detail."""

from __future__ import annotations

import dataclasses

from spark_events.config import Kind, Settings, boolean, duration, integer, option, positive_duration
from spark_events.loading import load
from spark_events.translate.deadlines.config import DeadlineConfig, QueryDeadlineConfig
from spark_events.translate.deadlines.config import read as read_deadlines
from spark_events.translate.enrichers import FailureEnricher, TypeEnricher
from spark_events.translate.incidents.config import IncidentConfig, LinkConfig
from spark_events.translate.summaries.config import SummaryConfig

__all__ = ["BatchCommitConfig", "FailureConfig", "TranslateConfig", "WatermarkConfig", "read"]


@dataclasses.dataclass(frozen=True, slots=True)
class BatchCommitConfig:
    """Settings below ``events.batch-commit``."""

    enabled: bool = option("enabled", boolean, True, doc="Whether committed micro-batches are reported.")
    min_interval: float = option(
        "min-interval",
        duration,
        0.0,
        doc="Minimum time between two events of a query; each event sums up its batches. 0s: one event per batch.",
    )
    max_duration: float | None = option(
        "max-duration", duration, None, doc="A batch that takes longer is reported as WARN."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class WatermarkConfig:
    """Settings below ``events.watermark``."""

    idle_timeout: float = option(
        "idle-timeout",
        duration,
        60.0,
        doc="Time without a change after which a watermark, a source or a partition is IDLE.",
    )


_BUILT_IN = {"type": "spark_events.translate.enrichers:TypeEnricher"}


def _made(name: str) -> FailureEnricher:
    make = load(_BUILT_IN.get(name, name))
    try:
        enricher: FailureEnricher = make()
    except (Exception, SystemExit) as error:
        # The class is the user's code, so report any exception as a mistake in the settings.
        raise ValueError(f"{name} cannot be created: {type(error).__name__}: {error}") from None
    return enricher


def _enrichers(value: str) -> tuple[FailureEnricher, ...]:
    found = []
    for name in (part.strip() for part in value.split(",")):
        enricher = _made(name)
        if not callable(getattr(enricher, "enrich", None)):
            raise ValueError(f"{name} has no method enrich; define enrich(failure), which returns labels")
        found.append(enricher)
    return tuple(found)


def _format_enrichers(enrichers: tuple[FailureEnricher, ...]) -> str:
    return ", ".join(
        "type" if type(e) is TypeEnricher else f"{type(e).__module__}:{type(e).__name__}" for e in enrichers
    )


#: Failure enrichers, created from their names.
ENRICHERS: Kind[tuple[FailureEnricher, ...]] = Kind(
    "type, or package.module:Class, separated by commas", _enrichers, _format_enrichers
)


@dataclasses.dataclass(frozen=True, slots=True)
class FailureConfig:
    """Settings below ``events.failure``."""

    stacktrace_limit: int = option(
        "stacktrace.limit",
        integer(256, 65_536),
        16_384,
        doc="Maximum length of a stack trace, in characters; a longer stack trace is cut in the middle.",
    )
    enrichers: tuple[FailureEnricher, ...] = option(
        "enrichers",
        ENRICHERS,
        (TypeEnricher(),),
        doc="Failure enrichers, separated by commas: type (built in), or your own class as package.module:Class.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """Settings below ``events.executor``."""

    max_per_minute: int = option(
        "max-per-minute",
        integer(0, 1_000_000),
        10,
        doc="Maximum number of executor events per minute; a summary counts the others. 0: no executor events.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TranslateConfig:
    """All settings of the translation."""

    batch_commit: BatchCommitConfig = dataclasses.field(default_factory=BatchCommitConfig)
    watermark: WatermarkConfig = dataclasses.field(default_factory=WatermarkConfig)
    failure: FailureConfig = dataclasses.field(default_factory=FailureConfig)
    streaming_jobs: bool = False
    streaming_stages: bool = False
    heartbeat_interval: float | None = None
    executor: ExecutorConfig = dataclasses.field(default_factory=ExecutorConfig)
    deadline: DeadlineConfig = dataclasses.field(default_factory=DeadlineConfig)
    incident: IncidentConfig = dataclasses.field(default_factory=IncidentConfig)
    link: LinkConfig = dataclasses.field(default_factory=LinkConfig)
    summary: SummaryConfig = dataclasses.field(default_factory=SummaryConfig)


@dataclasses.dataclass(frozen=True, slots=True)
class StreamingJobsConfig:
    """Settings below ``events.streaming-jobs``."""

    enabled: bool = option(
        "enabled", boolean, False, doc="Whether Spark jobs of micro-batches are reported even if they do not fail."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class StreamingStagesConfig:
    """Settings below ``events.streaming-stages``."""

    enabled: bool = option(
        "enabled", boolean, False, doc="Whether stages of micro-batches are reported even if they do not fail."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class HeartbeatConfig:
    """Settings below ``events.heartbeat``."""

    interval: float | None = option(
        "interval", positive_duration, None, doc="Time between two HeartbeatEvents of the application."
    )


#: Each settings class and the prefix of its keys.
SECTIONS: dict[str, type] = {
    "events.batch-commit": BatchCommitConfig,
    "events.watermark": WatermarkConfig,
    "events.failure": FailureConfig,
    "events.streaming-jobs": StreamingJobsConfig,
    "events.streaming-stages": StreamingStagesConfig,
    "events.executor": ExecutorConfig,
    "events.deadline": DeadlineConfig,
    "events.deadline.query.<name>": QueryDeadlineConfig,
    "events.heartbeat": HeartbeatConfig,
    "events.incident": IncidentConfig,
    "events.link": LinkConfig,
    "events.summary": SummaryConfig,
}


def read(settings: Settings) -> TranslateConfig:
    """Read all sections; an invalid section gets its defaults, and ``settings`` records the error."""
    jobs = settings.read(StreamingJobsConfig, "events.streaming-jobs") or StreamingJobsConfig()
    stages = settings.read(StreamingStagesConfig, "events.streaming-stages") or StreamingStagesConfig()
    heartbeat = settings.read(HeartbeatConfig, "events.heartbeat") or HeartbeatConfig()
    return TranslateConfig(
        settings.read(BatchCommitConfig, "events.batch-commit") or BatchCommitConfig(),
        settings.read(WatermarkConfig, "events.watermark") or WatermarkConfig(),
        settings.read(FailureConfig, "events.failure") or FailureConfig(),
        jobs.enabled,
        stages.enabled,
        heartbeat.interval,
        settings.read(ExecutorConfig, "events.executor") or ExecutorConfig(),
        read_deadlines(settings),
        settings.read(IncidentConfig, "events.incident") or IncidentConfig(),
        settings.read(LinkConfig, "events.link") or LinkConfig(),
        settings.read(SummaryConfig, "events.summary") or SummaryConfig(),
    )
