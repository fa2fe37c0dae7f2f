"""Registry of reporter types, which imports only the configured types."""

from __future__ import annotations

import dataclasses
import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from spark_events.config import Kind, options
from spark_events.config.loading import load
from spark_events.config.value_kinds import CLASSES
from spark_events.reporters.reporter import Reporter, ReporterFactory

#: Built-in types and the import path of each.
BUILT_IN = {
    "database": "spark_events.reporters.database.database_reporter:DatabaseReporter",
    "email": "spark_events.reporters.email.email_reporter:EmailReporter",
    "file": "spark_events.reporters.file.file_reporter:FileReporter",
    "heartbeat": "spark_events.reporters.heartbeat.heartbeat_reporter:HeartbeatReporter",
    "kafka": "spark_events.reporters.kafka.kafka_reporter:KafkaReporter",
    "log": "spark_events.reporters.log_reporter:LogReporter",
    "memory": "spark_events.reporters.memory_reporter:MemoryReporter",
    "openlineage": "spark_events.reporters.openlineage.openlineage_reporter:OpenLineageReporter",
    "otlp": "spark_events.reporters.otlp.otlp_reporter:OtlpReporter",
    "otlp-traces": "spark_events.reporters.otlp.traces:OtlpTracesReporter",
    "termination-message": "spark_events.reporters.verdict.verdict_reporters:TerminationMessageReporter",
    "verdict": "spark_events.reporters.verdict.verdict_reporters:VerdictReporter",
    "webhook": "spark_events.reporters.webhook.webhook_reporter:WebhookReporter",
}
#: Entry point group in which other packages register reporter types.
ENTRY_POINTS = "spark_events.reporters"


def factory(type_name: str) -> ReporterFactory:
    """Return the factory of a reporter type.

    Args:
        type_name: a built-in type, an entry point, or ``package.module:Class``.

    Raises:
        ValueError: when the type is unknown or unusable; the message states the reason.
    """
    path = BUILT_IN.get(type_name)
    if path is None and ":" not in type_name:
        path = _entry_point(type_name).value
    found = load(path or type_name)
    fault = _fault(found)
    if fault is not None:
        raise ValueError(f"{(path or type_name).rpartition(':')[2]} {fault}")
    return cast(ReporterFactory, found)


def _entry_point(name: str) -> EntryPoint:
    found = entry_points(group=ENTRY_POINTS)
    if name in found.names:
        return found[name]
    others = f"; installed are also {', '.join(sorted(found.names))}" if found.names else ""
    raise ValueError(f"no such type{others}")


def _fault(found: Any) -> str | None:
    """Return the reason why the factory is unusable, or None."""
    if isinstance(found, type):
        if not issubclass(found, Reporter):
            return "is not a subclass of spark_events.Reporter"
        if inspect.isabstract(found):
            return f"does not define {' and '.join(sorted(found.__abstractmethods__))}"
        for method in (found.open, found.close):
            if _rejects(method, None):
                return f"cannot be used: its method {method.__name__}() must not require arguments"
        if _rejects(found.report, None, ()):
            return "cannot be used: its method report() must accept one argument, the events"
    elif not callable(found):
        return "is not a Reporter class or a function that returns one"
    elif not hasattr(found, "Config"):
        return "has no attribute Config, the dataclass that declares its settings"
    if _rejects(found, None):
        return "cannot be created: the constructor must accept one argument, an instance of Config"
    return _config_fault(found.Config)


def _config_fault(config: Any) -> str | None:
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        return "cannot be configured: its Config is not a dataclass"
    declared = {option.field for option in options(config)}
    plain = [field.name for field in dataclasses.fields(config) if field.name not in declared]
    if plain:
        return f"cannot be configured: {', '.join(plain)} of its Config is not declared with spark_events.config.option"
    return None


def _rejects(function: Any, *arguments: Any) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return True
    return False


#: Setting ``events.reporter.<name>.type``.
reporter_type: Kind[ReporterFactory] = Kind(
    f"one of {', '.join(BUILT_IN)}, or package.module:Class for your own reporter", factory, harmless=CLASSES
)
