"""Events for Apache Spark: one event per fact that an operator acts on."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from spark_events._version import __version__

if sys.version_info < (3, 10):  # noqa: UP036 (pip rejects an older Python; importing from the jar's path does not)
    raise ImportError(f"spark-events needs Python 3.10 or newer; {sys.executable} is Python {sys.version.split()[0]}")

if TYPE_CHECKING:
    from spark_events.enrichment import (
        Auto,
        Budget,
        Buffer,
        Cache,
        CircuitBreaker,
        Context,
        Key,
        Limits,
        OnFailure,
        Rate,
        Replay,
        Retry,
        enrich,
        enrich_batch,
    )
    from spark_events.errors import (
        ConfigError,
        EnrichmentError,
        InvalidChoiceError,
        InvalidEventError,
        InvalidPlanError,
        MissingExtraError,
        PermanentError,
        SessionError,
        SparkEventsError,
        StreamStoppedError,
        ThrottledError,
        TransientError,
        WaitTimeoutError,
    )
    from spark_events.event import Event, EventBuilder, Severity, decode_event
    from spark_events.fleet.replay_all import replay_all
    from spark_events.reporters.file.reading import read
    from spark_events.reporters.memory_reporter import MemoryReporter
    from spark_events.reporters.reporter import Reporter, ReporterFactory
    from spark_events.stream.configure import configure, jar_path, spark_conf
    from spark_events.stream.event_stream import EventStream
    from spark_events.stream.shim import add_event
    from spark_events.stream.start import start

__all__ = [
    "Auto",
    "Budget",
    "Buffer",
    "Cache",
    "CircuitBreaker",
    "ConfigError",
    "Context",
    "EnrichmentError",
    "Event",
    "EventBuilder",
    "EventStream",
    "InvalidChoiceError",
    "InvalidEventError",
    "InvalidPlanError",
    "Key",
    "Limits",
    "MemoryReporter",
    "MissingExtraError",
    "OnFailure",
    "PermanentError",
    "Rate",
    "Replay",
    "Reporter",
    "ReporterFactory",
    "Retry",
    "SessionError",
    "Severity",
    "SparkEventsError",
    "StreamStoppedError",
    "ThrottledError",
    "TransientError",
    "WaitTimeoutError",
    "__version__",
    "add_event",
    "configure",
    "decode_event",
    "enrich",
    "enrich_batch",
    "jar_path",
    "read",
    "replay_all",
    "spark_conf",
    "start",
]

#: Modules of the public names, except errors and the names of ``spark_events.enrichment``.
_MODULES = {
    **dict.fromkeys(("Event", "EventBuilder", "Severity", "decode_event"), "spark_events.event"),
    "read": "spark_events.reporters.file.reading",
    "replay_all": "spark_events.fleet.replay_all",
    "MemoryReporter": "spark_events.reporters.memory_reporter",
    **dict.fromkeys(("Reporter", "ReporterFactory"), "spark_events.reporters.reporter"),
    "EventStream": "spark_events.stream.event_stream",
    "add_event": "spark_events.stream.shim",
    **dict.fromkeys(("configure", "jar_path", "spark_conf"), "spark_events.stream.configure"),
    "start": "spark_events.stream.start",
}


def __getattr__(name: str) -> Any:
    # Import lazily: executors lack msgspec, which events need, and an unused part should not delay the import.
    if name not in __all__:
        raise AttributeError(f"module 'spark_events' has no attribute {name!r}")
    other = "spark_events.errors" if name.endswith("Error") else "spark_events.enrichment"
    return getattr(import_module(_MODULES.get(name, other)), name)


def __dir__() -> list[str]:
    # List the public names for completion in notebooks and shells.
    return sorted({*globals(), *__all__})
