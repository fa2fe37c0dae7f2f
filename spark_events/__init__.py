"""Events for Apache Spark: the few facts an operator acts on, each reported once, truthfully."""

from spark_events._version import __version__
from spark_events.errors import (
    ConfigError,
    InvalidEventError,
    PermanentError,
    SparkEventsError,
    ThrottledError,
)
from spark_events.event import Event, EventBuilder, Severity
from spark_events.reporters.reporter import Reporter, ReporterFactory

__all__ = [
    "ConfigError",
    "Event",
    "EventBuilder",
    "InvalidEventError",
    "PermanentError",
    "Reporter",
    "ReporterFactory",
    "Severity",
    "SparkEventsError",
    "ThrottledError",
    "__version__",
]
