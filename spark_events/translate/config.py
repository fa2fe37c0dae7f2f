"""What is reported, and how much of it: the settings of the translation."""

from __future__ import annotations

import dataclasses

from spark_events.config import Kind, Settings, boolean, duration, integer, option
from spark_events.loading import load
from spark_events.translate.enrichers import FailureEnricher, TypeEnricher

__all__ = ["BatchCommitConfig", "FailureConfig", "TranslateConfig", "WatermarkConfig", "read"]


@dataclasses.dataclass(frozen=True, slots=True)
class BatchCommitConfig:
    """``events.batch-commit.…``"""

    enabled: bool = option("enabled", boolean, True, doc="Whether committed micro-batches are reported at all.")
    min_interval: float = option(
        "min-interval",
        duration,
        0.0,
        doc="At most one event a query in this time; it carries the sums of the batches it stands for. 0s: each one.",
    )
    max_duration: float | None = option(
        "max-duration", duration, None, doc="A batch that took longer than this is reported as WARN."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class WatermarkConfig:
    """``events.watermark.…``"""

    idle_timeout: float = option(
        "idle-timeout",
        duration,
        60.0,
        doc="How long a watermark, a source or a partition must stand still to be called IDLE.",
    )


_BUILT_IN = {"type": "spark_events.translate.enrichers:TypeEnricher"}


def _made(name: str) -> FailureEnricher:
    make = load(_BUILT_IN.get(name, name))
    try:
        enricher: FailureEnricher = make()
    except (Exception, SystemExit) as error:
        # It is the user's own: whatever is wrong with it is a mistake in the settings.
        raise ValueError(f"{name} cannot be made: {type(error).__name__}: {error}") from None
    return enricher


def _enrichers(value: str) -> tuple[FailureEnricher, ...]:
    found = []
    for name in (part.strip() for part in value.split(",")):
        enricher = _made(name)
        if not callable(getattr(enricher, "enrich", None)):
            raise ValueError(f"{name} has no method enrich")
        found.append(enricher)
    return tuple(found)


def _format_enrichers(enrichers: tuple[FailureEnricher, ...]) -> str:
    return ", ".join(
        "type" if type(e) is TypeEnricher else f"{type(e).__module__}:{type(e).__name__}" for e in enrichers
    )


#: Failure enrichers, made from their names.
ENRICHERS: Kind[tuple[FailureEnricher, ...]] = Kind(
    "type, or package.module:Class, separated by commas", _enrichers, _format_enrichers
)


@dataclasses.dataclass(frozen=True, slots=True)
class FailureConfig:
    """``events.failure.…``"""

    stacktrace_limit: int = option(
        "stacktrace.limit", integer(256, 65_536), 16_384, doc="Stack traces are cut to so many characters."
    )
    enrichers: tuple[FailureEnricher, ...] = option(
        "enrichers",
        ENRICHERS,
        (TypeEnricher(),),
        doc="What labels failures: type, and package.module:Class of enrichers of your own, separated by commas.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TranslateConfig:
    """Everything above, and the two switches for what is quiet by default."""

    batch_commit: BatchCommitConfig = dataclasses.field(default_factory=BatchCommitConfig)
    watermark: WatermarkConfig = dataclasses.field(default_factory=WatermarkConfig)
    failure: FailureConfig = dataclasses.field(default_factory=FailureConfig)
    streaming_jobs: bool = False
    streaming_stages: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class StreamingJobsConfig:
    """``events.streaming-jobs.…``"""

    enabled: bool = option(
        "enabled", boolean, False, doc="Whether Spark jobs of micro-batches are reported though they do not fail."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class StreamingStagesConfig:
    """``events.streaming-stages.…``"""

    enabled: bool = option(
        "enabled", boolean, False, doc="Whether stages of micro-batches are reported though they do not fail."
    )


#: Where each section of the translation stands.
SECTIONS: dict[str, type] = {
    "events.batch-commit": BatchCommitConfig,
    "events.watermark": WatermarkConfig,
    "events.failure": FailureConfig,
    "events.streaming-jobs": StreamingJobsConfig,
    "events.streaming-stages": StreamingStagesConfig,
}


def read(settings: Settings) -> TranslateConfig:
    """Reads every section; one with a problem is its default, and the problem is in ``settings``."""
    jobs = settings.read(StreamingJobsConfig, "events.streaming-jobs") or StreamingJobsConfig()
    stages = settings.read(StreamingStagesConfig, "events.streaming-stages") or StreamingStagesConfig()
    return TranslateConfig(
        settings.read(BatchCommitConfig, "events.batch-commit") or BatchCommitConfig(),
        settings.read(WatermarkConfig, "events.watermark") or WatermarkConfig(),
        settings.read(FailureConfig, "events.failure") or FailureConfig(),
        jobs.enabled,
        stages.enabled,
    )
