"""Keys of all settings that the code declares, for tests that compare documents with the code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from spark_events.config import Option, options, text
from spark_events.dispatch.breaker import BreakerConfig
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.dispatcher import DispatcherConfig
from spark_events.dispatch.pipeline_plan import EventsConfig, ReporterConfig
from spark_events.dispatch.selection import SelectionConfig
from spark_events.dispatch.spool.writer import SpoolConfig
from spark_events.reporters.reporter_types import factory
from spark_events.translate.deadlines.deadline_config import BacklogConfig, DeadlineConfig, QueryDeadlineConfig
from spark_events.translate.incidents.incident_config import IdentityConfig
from spark_events.translate.translation_config import SECTIONS, TranslateConfig

__all__ = ["SECTIONS_OF_ALL", "default_of", "of_a_reporter", "of_every_reporter", "of_the_driver"]

SECTIONS_OF_ALL = (DeliveryConfig, SelectionConfig, BreakerConfig, SpoolConfig)


def of_the_driver() -> Iterator[tuple[str, Option]]:
    """Return all keys, except the keys of reporters."""
    sections = [
        ("events", EventsConfig),
        ("events.dispatcher", DispatcherConfig),
        ("events", TranslateConfig),
        ("events", IdentityConfig),
        ("events.deadline", DeadlineConfig),
        ("events.deadline.backlog", BacklogConfig),
        ("events.deadline.query.<name>", QueryDeadlineConfig),
        *((f"events.{name}", section) for name, section in SECTIONS.items()),
    ]
    for prefix, section in sections:
        for declared in options(section):
            yield f"{prefix}.{declared.key}", declared
    yield "events.tags.<name>", Option("tags", "<name>", text(), None, "A tag.")


def of_every_reporter() -> dict[str, Option]:
    """Return the keys that every reporter has, without the prefix."""
    return {declared.key: declared for section in (ReporterConfig, *SECTIONS_OF_ALL) for declared in options(section)}


def of_a_reporter(type_name: str) -> dict[str, Option]:
    """Return the keys of a reporter type, without the prefix."""
    sections = (ReporterConfig, factory(type_name).Config, *SECTIONS_OF_ALL)
    return {declared.key: declared for section in sections for declared in options(section)}


def default_of(declared: Option) -> str | None:
    """Return the default as a user writes it, or None if the key has no default."""
    if declared.default is dataclasses.MISSING or declared.default is None:
        return None
    return declared.kind.format(declared.default) or None
