"""Send events in tests: in one attempt, or in a complete delivery with retries."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from fakes import event

from spark_events import Event
from spark_events.dispatch.breaker import BreakerConfig
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.entries import Entry
from spark_events.reporters.otlp.otlp_reporter import OtlpReporter
from spark_events.reporters.otlp.target import OtlpConfig

GRPC, HTTP = "grpc", "http/protobuf"
BOTH = (GRPC, HTTP)


def config(protocol: str, endpoint: str, **changes: Any) -> OtlpConfig:
    return OtlpConfig(protocol=protocol, endpoint=endpoint, **changes)


def send(settings: OtlpConfig, *batches: Sequence[Event]) -> None:
    """Make one attempt per batch, and raise the reporter's error."""

    async def attempts() -> None:
        reporter = OtlpReporter(settings)
        reporter.open()
        try:
            for batch in batches:
                await reporter.report(batch)
        finally:
            await reporter.release()

    asyncio.run(attempts())


@contextlib.contextmanager
def delivery(settings: OtlpConfig, *, patience: float = 5.0, **changes: Any) -> Iterator[Delivery]:
    """Run a delivery with short retry pauses, and stop it within ``patience`` seconds."""
    sizes = {"retry_initial": 0.02, "retry_max": 0.1, "batch_size": 10, **changes}
    patient = BreakerConfig(failures=1000)
    made = Delivery("otlp", lambda: OtlpReporter(settings), DeliveryConfig(**sizes), 10_000, breaker=patient)
    made.start()
    try:
        yield made
    finally:
        made.request_stop(time.monotonic() + patience)
        made.join()


def put(to: Delivery, events: Sequence[Event]) -> None:
    to.put([Entry(0, event) for event in events])


def verdict(settings: OtlpConfig) -> Exception | None:
    """Return the error that one attempt raises, or None."""
    try:
        send(settings, [event(1)])
    except Exception as error:
        return error
    return None
