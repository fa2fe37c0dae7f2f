"""Settings of the reporter ``otlp``; absent settings are read from the standard environment variables."""

from __future__ import annotations

import dataclasses
from urllib.parse import urlsplit

from spark_events.config import Kind, Secret, boolean, choice, integer, option, positive_duration, secret, size, text

__all__ = ["OtlpConfig"]


def _address(value: str) -> str:
    """Validate an endpoint: ``http://host:4318/path``, or ``host:4317`` with gRPC."""
    parts = urlsplit(value if "://" in value else f"//{value}")
    if parts.scheme not in ("", "http", "https") or not parts.hostname or parts.username or parts.query:
        raise ValueError
    # Raises ValueError for an invalid port.
    _ = parts.port
    return value


#: Address of an OTLP receiver.
address: Kind[str] = Kind("http://host:port or https://host:port, with gRPC also host:port", _address)

_PATH = text("the path of a PEM file")


@dataclasses.dataclass(frozen=True, slots=True)
class OtlpConfig:
    """Settings below ``events.reporter.<name>.`` for type ``otlp``."""

    protocol: str | None = option(
        "protocol", choice("grpc", "http/protobuf"), None, doc="grpc, if neither this nor the variable is set."
    )
    endpoint: str | None = option(
        "endpoint", address, None, doc="Where the receiver is; http://localhost:4317, with HTTP 4318, if not set."
    )
    headers: Secret | None = option(
        "headers", secret, None, doc="Headers of every request, name=value, separated by commas, percent-encoded."
    )
    compression: str | None = option("compression", choice("none", "gzip"), None, doc="none, if it is not set.")
    insecure: bool | None = option(
        "insecure", boolean, None, doc="Whether gRPC to an endpoint without http:// or https:// goes without TLS."
    )
    certificate: str | None = option(
        "certificate", _PATH, None, doc="Whom to trust; the usual authorities, if it is not set."
    )
    client_certificate: str | None = option(
        "client.certificate", _PATH, None, doc="Who we are, for receivers that ask."
    )
    client_key: str | None = option("client.key", _PATH, None, doc="The key of the client's certificate.")
    timeout: float | None = option(
        "timeout", positive_duration, None, doc="For one attempt; the variable can only shorten it."
    )
    service_name: str | None = option(
        "service.name", text("a name"), None, doc="The application's name, if it is not set."
    )
    service_version: str | None = option(
        "service.version", text("a version"), None, doc="Spark's version, if it is not set."
    )
    attribute_max_length: int = option(
        "attribute.max-length",
        integer(64, 1 << 24),
        32_768,
        doc="Maximum length of a text in characters; longer texts are cut and marked.",
    )
    request_max_size: int = option(
        "request.max-size", size, 4 << 20, doc="Larger requests are split; what the receiver takes at most."
    )
