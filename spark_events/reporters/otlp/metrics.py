"""Metrics of commits and of event delivery, exported over OTLP with OpenTelemetry's SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from spark_events._version import __version__
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter, load_extra

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

#: Delivery counters by reporter, with the same names as in the driver's metrics.
Counters: TypeAlias = Callable[[], Mapping[str, Mapping[str, int | float | str]]]

_PATH = "/v1/metrics"
#: Time limit for the last export, when the application ends, in milliseconds.
_LAST_EXPORT_MS = 2_000
_DURATION = "spark.batch.duration.trigger_execution_ms"
_BREAKER = {"closed": 0, "half-open": 1, "open": 2}


class OtlpMetrics(Reporter):
    """Compute metrics from events, and export them and the delivery counters periodically.

    The SDK's environment variables determine interval, headers, certificates, timeout and temporality
    (``OTEL_METRIC_EXPORT_INTERVAL``, ``OTEL_EXPORTER_OTLP_METRICS_*``). The meter provider is created at the first
    event, because its resource contains the application's name.

    Args:
        endpoint: URL of the receiver; ``/v1/metrics`` is appended to a URL without a path.
        counters: returns the counters of all reporters.
    """

    def __init__(self, endpoint: str, counters: Counters) -> None:
        for module in ("opentelemetry.sdk.metrics.export", "opentelemetry.exporter.otlp.proto.http.metric_exporter"):
            load_extra(module, "otlp")
        self._endpoint = endpoint.rstrip("/") + _PATH if urlsplit(endpoint).path in ("", "/") else endpoint
        self._counters = counters
        self._provider: Any = None

    def report(self, events: Sequence[Event]) -> None:
        if self._provider is None:
            self._start(events[0])
        for event in events:
            attributes = event.attributes
            if event.name == "BatchCommitEvent":
                self._commit(attributes)
            elif event.name == "EventsDroppedEvent":
                where = {"spark.events.dropped.where": attributes.get("spark.events.dropped.where", "")}
                self._records_dropped.add(attributes.get("spark.events.dropped.count", 0), where)

    def release(self) -> None:
        if self._provider is not None:
            self._provider.shutdown(_LAST_EXPORT_MS)

    def _start(self, event: Event) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        from spark_events.reporters.otlp.otlp_resources import SCHEMA_URL, SCOPE, resource_of, source_of

        reader = PeriodicExportingMetricReader(OTLPMetricExporter(self._endpoint))
        # Register no exit hook, because the dispatcher closes the reporter when the application ends.
        self._provider = MeterProvider([reader], resource_of(source_of(event), {}), shutdown_on_exit=False)
        meter = self._provider.get_meter(SCOPE, __version__, SCHEMA_URL)
        self._duration = meter.create_histogram("spark.batch.duration", "s", "Duration of a committed batch")
        self._rows = meter.create_counter("spark.batch.rows_input", "{row}", "Input rows of committed batches")
        self._batches = meter.create_counter("spark.batch.count", "{batch}", "Committed batches")
        self._lag = meter.create_gauge(
            "spark.batch.lag", "{row}", "Rows that the query has not read yet, after a commit"
        )
        self._records_dropped = meter.create_counter(
            "spark.events.records.dropped", "{record}", "Records lost before they reached a reporter"
        )
        meter.create_observable_counter(
            "spark.events.delivered", [self._delivered], "{event}", "Events that a reporter has delivered"
        )
        meter.create_observable_counter(
            "spark.events.dropped", [self._dropped], "{event}", "Events that a reporter has lost, by reason"
        )
        meter.create_observable_counter(
            "spark.events.failures", [self._of("failures")], "{attempt}", "Failed attempts of a reporter"
        )
        meter.create_observable_gauge(
            "spark.events.queue.usage", [self._of("queue_usage")], "1", "Fraction of a reporter's queue that is in use"
        )
        meter.create_observable_gauge(
            "spark.events.spool.depth", [self._of("spooled")], "{event}", "Events in a reporter's spool"
        )
        meter.create_observable_gauge(
            "spark.events.oldest.age",
            [self._of("oldest_age_ms", 1000)],
            "s",
            "Age of the oldest event that a reporter has not delivered",
        )
        meter.create_observable_gauge(
            "spark.events.latency", [self._latency], "s", "Duration of a reporter's last batches, retries included"
        )
        meter.create_observable_gauge(
            "spark.events.breaker", [self._breaker], "1", "Circuit breaker: 0 closed, 1 half-open, 2 open"
        )

    def _commit(self, attributes: Mapping[str, Any]) -> None:
        query = {
            key: attributes[key]
            for key in ("spark.streaming.query.name", "spark.streaming.query.id")
            if key in attributes
        }
        batches = max(1, attributes.get("spark.batch.count", 1))
        if _DURATION in attributes:
            # An event may cover several batches, so record the mean duration once per batch.
            for _ in range(batches):
                self._duration.record(attributes[_DURATION] / batches / 1000, query)
        self._batches.add(batches, query)
        self._rows.add(attributes.get("spark.batch.rows_input", 0), query)
        if "spark.batch.lag" in attributes:
            self._lag.set(attributes["spark.batch.lag"], query)

    def _delivered(self, _: CallbackOptions) -> Iterator[Observation]:
        return self._observed(lambda counts: [(counts["delivered"], {})])

    def _dropped(self, _: CallbackOptions) -> Iterator[Observation]:
        prefix = "dropped."
        return self._observed(
            lambda counts: [
                (count, {"spark.events.dropped.reason": key.removeprefix(prefix)})
                for key, count in counts.items()
                if key.startswith(prefix)
            ]
        )

    def _of(self, key: str, divisor: int = 1) -> Callable[[CallbackOptions], Iterator[Observation]]:
        """Return a function that observes one of the counters; its values are divided by ``divisor``."""
        return lambda _: self._observed(lambda counts: [(counts[key] / divisor if divisor > 1 else counts[key], {})])

    def _latency(self, _: CallbackOptions) -> Iterator[Observation]:
        return self._observed(
            lambda counts: [
                (counts["latency_p50_ms"] / 1000, {"quantile": "0.5"}),
                (counts["latency_p99_ms"] / 1000, {"quantile": "0.99"}),
            ]
        )

    def _breaker(self, _: CallbackOptions) -> Iterator[Observation]:
        return self._observed(lambda counts: [(_BREAKER.get(str(counts["breaker"]), 0), {})])

    def _observed(
        self, values: Callable[[Mapping[str, Any]], list[tuple[Any, dict[str, str]]]]
    ) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        for name, counts in self._counters().items():
            for value, more in values(counts):
                yield Observation(value, {"spark.events.reporter.name": name, **more})
