"""From the ``type`` of a reporter to what makes it. Nothing is imported that is not configured."""

from __future__ import annotations

from typing import cast

from spark_events.config import Kind
from spark_events.loading import load
from spark_events.reporters.reporter import Reporter, ReporterFactory

__all__ = ["BUILT_IN", "factory", "reporter_type"]

#: The types that come with the package, and where each is.
BUILT_IN = {
    "database": "spark_events.reporters.database.reporter:DatabaseReporter",
    "file": "spark_events.reporters.file:FileReporter",
    "kafka": "spark_events.reporters.kafka.reporter:KafkaReporter",
    "log": "spark_events.reporters.log:LogReporter",
    "memory": "spark_events.reporters.memory:MemoryReporter",
    "webhook": "spark_events.reporters.webhook.reporter:WebhookReporter",
}


def factory(type_name: str) -> ReporterFactory:
    """The factory of a type.

    Raises:
        ValueError: there is none; the message says why.
    """
    path = BUILT_IN.get(type_name, type_name)
    found = load(path)
    attribute = path.rpartition(":")[2]
    if isinstance(found, type) and not issubclass(found, Reporter):
        raise ValueError(f"{attribute} is not a subclass of spark_events.Reporter")
    if not callable(found) or not hasattr(found, "Config"):
        raise ValueError(f"{attribute} has no Config that declares its keys")
    return cast(ReporterFactory, found)


#: The value of ``events.reporter.<name>.type``.
reporter_type: Kind[ReporterFactory] = Kind(
    f"one of {', '.join(BUILT_IN)}, or package.module:Class of a reporter of your own", factory
)
