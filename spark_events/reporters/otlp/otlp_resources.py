"""Resource of the application that an event belongs to, built with OpenTelemetry's SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from opentelemetry.sdk.resources import (
    HOST_NAME,
    SERVICE_INSTANCE_ID,
    SERVICE_NAME,
    SERVICE_VERSION,
    OTELResourceDetector,
    Resource,
)
from opentelemetry.semconv.schemas import Schemas

from spark_events.event import AttributeValue, Event
from spark_events.event.text import plain

#: Name of the instrumentation scope of all events and metrics.
SCOPE = "spark_events"
#: Version of the semantic conventions that define the attribute names ``error.*``, ``exception.*``, ``service.*``, ….
SCHEMA_URL = Schemas.V1_36_0.value
#: Attributes of events that become attributes of the OTLP resource.
OF_RESOURCE = frozenset({"spark.app.id", "spark.version", HOST_NAME})

#: Values of an event from which its resource is built.
Source: TypeAlias = tuple[AttributeValue | None, ...]


def source_of(event: Event) -> Source:
    """Return the values that distinguish resources: application, version, id, attempt and host."""
    get = event.attributes.get
    return (
        get("spark.app.name"),
        get("spark.version"),
        get("spark.app.id"),
        get("spark.app.attempt_id"),
        get(HOST_NAME),
    )


def resource_of(source: Source, settings: Mapping[str, str]) -> Resource:
    """Return the resource of an application.

    The reporter's settings override ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME``; these variables override
    the application's values. Detectors in ``OTEL_EXPERIMENTAL_RESOURCE_DETECTORS`` run too.

    Args:
        source: the application, from :func:`source_of`.
        settings: resource attributes from the reporter's settings.
    """
    name, version, app_id, attempt, host = (None if one is None else plain(str(one)) for one in source)
    instance = f"{app_id}/{attempt}" if app_id and attempt else app_id
    attributes = {
        SERVICE_NAME: name or "unknown_service:spark",
        SERVICE_VERSION: version,
        SERVICE_INSTANCE_ID: instance,
        "spark.app.id": app_id,
        "spark.version": version,
        HOST_NAME: host,
    }
    application = Resource.create({key: value for key, value in attributes.items() if value}, SCHEMA_URL)
    return application.merge(OTELResourceDetector().detect()).merge(Resource(dict(settings)))
