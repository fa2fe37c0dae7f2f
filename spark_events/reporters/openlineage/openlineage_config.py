"""Settings of the reporter ``openlineage``."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from spark_events.config import Kind, Secret, option, positive_duration, secret, text
from spark_events.reporters.http.http_config import web_url


def _date_time(given: str) -> str:
    """Return an ISO 8601 date and time with a time zone.

    Raises:
        ValueError: the string is not a date and time with a time zone.
    """
    if datetime.fromisoformat(given.replace("Z", "+00:00")).tzinfo is None:
        raise ValueError("the zone is missing")
    return given


@dataclasses.dataclass(frozen=True, slots=True)
class OpenLineageConfig:
    """Settings below ``events.reporter.<name>.`` for type ``openlineage``."""

    url: Secret | None = option(
        "url",
        web_url,
        None,
        doc="Address of the OpenLineage API; default: the client's configuration (OPENLINEAGE_URL, openlineage.yml).",
    )
    api_key: Secret | None = option("api-key", secret, None, doc="API key, sent as a bearer token; needs url.")
    namespace: str = option("namespace", text("a namespace"), "default", doc="Namespace of the jobs.")
    interval: float = option(
        "interval", positive_duration, 60.0, doc="Shortest time between two RUNNING events of one run."
    )
    nominal_time: str | None = option(
        "nominal-time",
        Kind("a date and time with zone, such as 2026-01-31T03:00:00Z", _date_time),
        None,
        doc="Time for which the run was scheduled; default: the start of the application.",
    )

    def __post_init__(self) -> None:
        if self.api_key is not None and self.url is None:
            raise ValueError(
                "api-key: set without url; set url too, or set the API key in the OpenLineage client's configuration"
            )
