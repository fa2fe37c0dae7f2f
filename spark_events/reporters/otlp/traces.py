"""Reporter that exports finished batches, jobs and stages as OTLP spans."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from spark_events._version import __version__
from spark_events.config import Secret, option
from spark_events.errors import MissingExtraError
from spark_events.event import Event, without_surrogates
from spark_events.reporters.batch_progress import BatchProgress
from spark_events.reporters.otlp.spans import Parent, SpanOf, Spans, traceparent
from spark_events.reporters.otlp.target import OtlpConfig, address, header_values, target
from spark_events.reporters.reporter import REQUEST_LINGER, Reporter

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


@dataclasses.dataclass(frozen=True, slots=True)
class OtlpTracesConfig:
    """Settings below ``events.reporter.<name>.`` for type ``otlp-traces``.

    For unset keys, OpenTelemetry's variables apply: ``OTEL_EXPORTER_OTLP_TRACES_…`` and ``OTEL_EXPORTER_OTLP_…``.
    """

    endpoint: str | None = option(
        "endpoint", address, None, doc="HTTP address of the receiver; /v1/traces is added to a URL without a path."
    )
    headers: dict[str, Secret] | None = option(
        "headers",
        header_values,
        None,
        doc="Headers of every request, name=value, separated by commas, percent-encoded.",
    )
    parent: Parent | None = option(
        "parent", traceparent, None, doc="Traceparent of the span that submitted the application; sets the trace id."
    )


class OtlpTracesReporter(Reporter):
    """Export spans over HTTP, which every receiver supports; ignore events that end no batch, job or stage."""

    Config: ClassVar[type[OtlpTracesConfig]] = OtlpTracesConfig
    linger = REQUEST_LINGER
    default_includes: ClassVar[str] = "spark.job:JobStatusChangeEvent;*:BatchCommitEvent,StageSummaryEvent"

    def __init__(self, config: OtlpTracesConfig) -> None:
        settings = OtlpConfig(protocol="http/protobuf", endpoint=config.endpoint, headers=config.headers)
        where = target(settings, os.environ, "TRACES")
        try:
            from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

            from spark_events.reporters.otlp.over_http import HttpConnection
        except ImportError as error:
            raise MissingExtraError(f"{error}; run: pip install 'spark-events[otlp]'") from error
        self._encode = encode_spans
        self._connection = HttpConnection(where)
        self._spans = Spans(config.parent)
        self._batch = BatchProgress()

    def open(self) -> None:
        self._connection.open()

    async def report(self, events: Sequence[Event]) -> None:
        made = {
            event.event_id: _readable(span, event)
            for event in map(without_surrogates, events)
            if (span := self._spans.of(event))
        }

        async def send(part: Sequence[Event]) -> tuple[int, str]:
            request = self._encode([made[event.event_id] for event in part])
            return await self._connection.send(request.SerializeToString())

        self._batch = self._batch.of([event for event in events if event.event_id in made])
        await self._batch.deliver(send)

    async def release(self) -> None:
        await self._connection.close()


def _readable(span: SpanOf, event: Event) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    from spark_events.reporters.otlp.otlp_resources import SCHEMA_URL, SCOPE, resource_of, source_of

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
