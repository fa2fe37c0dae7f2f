"""Reporter that exports finished batches, jobs and stages as OTLP spans."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from spark_events._version import __version__
from spark_events.config import Secret, option, secret
from spark_events.errors import TransientError
from spark_events.event import Event, without_surrogates
from spark_events.reporters.otlp.spans import Parent, SpanOf, Spans, traceparent
from spark_events.reporters.otlp.target import address
from spark_events.reporters.reporter import REQUEST_LINGER, Reporter, load_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter


#: Time limit of one export, in seconds; the dispatcher's own limit is longer.
_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class OtlpTracesConfig:
    """Settings below ``events.reporter.<name>.`` for type ``otlp-traces``.

    For unset keys, OpenTelemetry's variables apply: ``OTEL_EXPORTER_OTLP_TRACES_…`` and ``OTEL_EXPORTER_OTLP_…``.
    """

    endpoint: str | None = option(
        "endpoint", address, None, doc="HTTP address of the receiver, including the path: /v1/traces."
    )
    headers: Secret | None = option(
        "headers", secret, None, doc="Headers of every request, name=value, separated by commas, percent-encoded."
    )
    parent: Parent | None = option(
        "parent", traceparent, None, doc="Traceparent of the span that submitted the application; sets the trace id."
    )


class OtlpTracesReporter(Reporter):
    """Export spans with the SDK's exporter; ignore events that end no batch, job or stage."""

    Config: ClassVar[type[OtlpTracesConfig]] = OtlpTracesConfig
    linger = REQUEST_LINGER
    default_includes: ClassVar[str] = "spark.job:JobStatusChangeEvent;*:BatchCommitEvent,StageSummaryEvent"

    def __init__(self, config: OtlpTracesConfig) -> None:
        load_extra("opentelemetry.sdk.trace", "otlp")
        self._config = config
        self._spans = Spans(config.parent)
        self._exporter: SpanExporter | None = None

    def open(self) -> None:
        self._exporter = _exporter(self._config)

    def report(self, events: Sequence[Event]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        assert self._exporter is not None
        made = [_readable(span, one) for event in events if (span := self._spans.of(one := without_surrogates(event)))]
        if made and self._exporter.export(made) is not SpanExportResult.SUCCESS:
            raise TransientError(
                "the receiver did not accept the spans; see the log of OpenTelemetry's exporter for the reason"
            )

    def close(self) -> None:
        if self._exporter is not None:
            self._exporter.shutdown()


def _exporter(config: OtlpTracesConfig) -> SpanExporter:
    # Use the exporter for HTTP, which every receiver supports.
    http = load_extra("opentelemetry.exporter.otlp.proto.http.trace_exporter", "otlp")
    headers = None
    if config.headers is not None:
        from opentelemetry.util.re import parse_env_headers

        headers = parse_env_headers(config.headers.reveal(), liberal=True)
    made: SpanExporter = http.OTLPSpanExporter(endpoint=config.endpoint, headers=headers, timeout=_SECONDS)
    return made


def _readable(span: SpanOf, event: Event) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    from spark_events.reporters.otlp.resources import SCHEMA_URL, SCOPE, resource_of, source_of

    def context(identifier: int, remote: bool) -> SpanContext:
        return SpanContext(span.trace, identifier, is_remote=remote, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return ReadableSpan(
        name=span.name,
        context=context(span.span, remote=False),
        parent=None if span.parent is None else context(span.parent, remote=True),
        resource=resource_of(source_of(event), {}),
        attributes=dict(event.attributes),
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.UNSET) if span.failed is None else Status(StatusCode.ERROR, span.failed),
        start_time=span.start * 1_000_000,
        end_time=span.end * 1_000_000,
        instrumentation_scope=InstrumentationScope(SCOPE, __version__, SCHEMA_URL),
    )
