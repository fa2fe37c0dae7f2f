"""Settings of the translation: kinds of events and their level of detail."""

from __future__ import annotations

import dataclasses
import logging

from spark_events.config import Kind, Settings, boolean, duration, integer, option, positive_duration
from spark_events.config.loading import load
from spark_events.config.value_kinds import CLASSES
from spark_events.translate.deadlines.deadline_config import DeadlineConfig
from spark_events.translate.deadlines.deadline_config import read as read_deadlines
from spark_events.translate.enrichers import FailureEnricher, TypeEnricher
from spark_events.translate.incidents.incident_config import AlarmConfig, IdentityConfig, LinkConfig, read_identity
from spark_events.translate.summaries.summary_config import SummaryConfig

_LOG = logging.getLogger(__name__)
#: Keys of earlier versions that have no effect, and the reason.
_RETIRED = {
    "events.incident.settle": "alarms are decided at once, from facts; remove the key",
}

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
    "type, or package.module:Class, separated by commas", _enrichers, _format_enrichers, harmless=CLASSES
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
    """All settings of the translation, below ``events``; most of them are in sections."""

    streaming_jobs: bool = option(
        "streaming-jobs.enabled",
        boolean,
        False,
        doc="Whether Spark jobs of micro-batches are reported even if they do not fail.",
    )
    streaming_stages: bool = option(
        "streaming-stages.enabled",
        boolean,
        False,
        doc="Whether stages of micro-batches are reported even if they do not fail.",
    )
    data_written: bool = option(
        "data-written.enabled",
        boolean,
        True,
        doc="Whether successful batch writes are reported; commits of micro-batches are BatchCommitEvents.",
    )
    streams_written: bool = option(
        "data-written.streams.enabled",
        boolean,
        False,
        doc="Whether successful writes of micro-batches are reported, too, each as an event of its own.",
    )
    heartbeat_interval: float | None = option(
        "heartbeat.interval", positive_duration, None, doc="Time between two HeartbeatEvents of the application."
    )
    batch_commit: BatchCommitConfig = dataclasses.field(default_factory=BatchCommitConfig)
    watermark: WatermarkConfig = dataclasses.field(default_factory=WatermarkConfig)
    failure: FailureConfig = dataclasses.field(default_factory=FailureConfig)
    executor: ExecutorConfig = dataclasses.field(default_factory=ExecutorConfig)
    deadline: DeadlineConfig = dataclasses.field(default_factory=DeadlineConfig)
    alarms: AlarmConfig = dataclasses.field(default_factory=AlarmConfig)
    identity: IdentityConfig = dataclasses.field(default_factory=IdentityConfig)
    link: LinkConfig = dataclasses.field(default_factory=LinkConfig)
    summary: SummaryConfig = dataclasses.field(default_factory=SummaryConfig)


#: Sections with settings of their own, by the last part of their prefix.
SECTIONS: dict[str, type] = {
    "batch-commit": BatchCommitConfig,
    "watermark": WatermarkConfig,
    "failure": FailureConfig,
    "executor": ExecutorConfig,
    "alarms": AlarmConfig,
    "link": LinkConfig,
    "summary": SummaryConfig,
}


def read(settings: Settings) -> TranslateConfig:
    """Read all sections; an invalid section gets its defaults, and ``settings`` records the error."""
    config = settings.read(TranslateConfig, "events") or TranslateConfig()
    sections = {
        name.replace("-", "_"): settings.read(section, f"events.{name}") or section()
        for name, section in SECTIONS.items()
    }
    for key, why in _RETIRED.items():
        if settings.retire(key):
            _LOG.warning("spark.%s has no effect: %s", key, why)
    return dataclasses.replace(config, deadline=read_deadlines(settings), identity=read_identity(settings), **sections)
