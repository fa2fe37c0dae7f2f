"""Address and options of the receiver: settings, then OTEL_EXPORTER_OTLP_<signal>_*, then OTEL_EXPORTER_OTLP_*.

The environment variables have the same meaning as for OpenTelemetry's Python exporter.
"""

from __future__ import annotations

import dataclasses
import re
import ssl
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from spark_events.config import Kind, Secret, boolean, choice, integer, invalid, option, positive_duration, size, text
from spark_events.config.quoting import quoted
from spark_events.config.value_kinds import PATHS, WORDS
from spark_events.errors import ConfigError
from spark_events.reporters.http.http_config import pem_file
from spark_events.reporters.otlp.spans import Parent, traceparent

T = TypeVar("T")


def _address(value: str) -> str:
    """Validate an endpoint: ``http://host:4318/path``, or ``host:4317`` with gRPC."""
    parts = urlsplit(value if "://" in value else f"//{value}")
    if parts.scheme not in ("", "http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise ValueError
    # Reading the port raises ValueError if the port is invalid.
    _ = parts.port
    return value


_PLAIN_HOST = re.compile(r"[\w.-]+:[0-9]{1,5}")
#: Address of an OTLP receiver.
address: Kind[str] = Kind(
    "http://host:port or https://host:port, with gRPC also host:port", _address, harmless=_PLAIN_HOST
)

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _headers(given: str) -> dict[str, Secret]:
    """Parse headers in the format of W3C baggage; error messages do not quote the secret values."""
    found = {}
    for number, pair in enumerate(given.split(","), 1):
        if not pair.strip():
            continue
        name, separator, value = pair.partition("=")
        name, value = unquote(name).strip().lower(), unquote(value).strip()
        if not separator or not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"header {number} is not name=value")
        if not all(" " <= character <= "~" for character in value):
            raise ValueError(f"the value of {name} contains a character that is not allowed in headers")
        found[name] = Secret(value)
    return found


#: Headers by lower-case name. Confidential, because most of them are credentials.
header_values: Kind[dict[str, Secret]] = Kind(
    "name=value, several separated by commas, percent-encoded",
    _headers,
    lambda found: ",".join(f"{name}={quote(value.reveal())}" for name, value in found.items()),
    True,
)
#: Protocols and compressions of requests.
_GRPC, _HTTP = "grpc", "http/protobuf"
_protocol, _compression = choice(_GRPC, _HTTP), choice("none", "gzip")
#: Default timeout of an attempt, in seconds.
_TIMEOUT = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class OtlpConfig:
    """Settings below ``events.reporter.<name>.`` for type ``otlp``."""

    protocol: str | None = option(
        "protocol",
        _protocol,
        None,
        doc="Protocol; default: from OTEL_EXPORTER_OTLP_LOGS_PROTOCOL or OTEL_EXPORTER_OTLP_PROTOCOL, else grpc.",
    )
    endpoint: str | None = option(
        "endpoint",
        address,
        None,
        doc="Address of the receiver; default: http://localhost:4317 for gRPC, http://localhost:4318 for HTTP.",
    )
    headers: dict[str, Secret] | None = option(
        "headers",
        header_values,
        None,
        doc="Headers of every request, name=value, separated by commas, percent-encoded.",
    )
    compression: str | None = option(
        "compression",
        _compression,
        None,
        doc="Compression of requests; default: from the environment variable, else none.",
    )
    insecure: bool | None = option(
        "insecure", boolean, None, doc="Whether gRPC connects without TLS to an endpoint without http:// or https://."
    )
    certificate: str | None = option(
        "certificate",
        pem_file,
        None,
        doc="PEM file of the trusted certificate authorities; default: those of the HTTP or gRPC library.",
    )
    client_certificate: str | None = option(
        "client.certificate", pem_file, None, doc="PEM file of the client certificate, for receivers that require one."
    )
    client_key: str | None = option("client.key", pem_file, None, doc="PEM file of the client certificate's key.")
    timeout: float | None = option(
        "timeout", positive_duration, None, doc="Timeout of one attempt; the environment variable can only shorten it."
    )
    service_name: str | None = option(
        "service.name", text("a name"), None, doc="Resource attribute service.name; default: the application's name."
    )
    service_version: str | None = option(
        "service.version", text("a version"), None, doc="Resource attribute service.version; default: Spark's version."
    )
    attribute_max_length: int = option(
        "attribute.max-length",
        integer(64, 1 << 24),
        32_768,
        doc="Maximum length of a text in characters; longer texts are cut and marked.",
    )
    request_max_size: int = option(
        "request.max-size",
        size,
        4 << 20,
        doc="Maximum size of a request; larger requests are split. Use the receiver's limit.",
    )
    trace_ids: bool = option(
        "trace-ids", boolean, False, doc="Whether records have the trace and span ids of the reporter otlp-traces."
    )
    trace_parent: Parent | None = option(
        "trace-parent",
        traceparent,
        None,
        doc="Traceparent from which the trace id is read, as for the reporter otlp-traces.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Settings merged with the environment.

    Attributes:
        is_http: whether the protocol is HTTP; otherwise gRPC.
        address: a URL with HTTP, ``host:port`` with gRPC.
        is_secure: whether the connection uses TLS.
        headers: header values by lower-case name.
        timeout: seconds for one request.
    """

    is_http: bool
    address: str
    is_secure: bool
    headers: Mapping[str, str] = dataclasses.field(repr=False)
    is_compressed: bool
    certificate: str | None
    client_certificate: str | None
    client_key: str | None
    timeout: float

    def context(self) -> ssl.SSLContext:
        """Return a TLS context with the configured certificates.

        Raises:
            ValueError: a file is missing or invalid; the message names it.
        """
        from spark_events.reporters.http.post import trust

        keys = ("certificate", "client.certificate")
        return trust(self.certificate, self.client_certificate, self.client_key, keys)


class _Variables:
    """Environment variables for a signal; the variables for all signals are the defaults."""

    def __init__(self, environment: Mapping[str, str], signal: str) -> None:
        self._environment = environment
        self._signal = signal
        self.path = f"/v1/{signal.lower()}"

    def find(self, name: str) -> tuple[str, str] | None:
        """Return the name and value of the variable that is set; an empty variable counts as unset."""
        for full in (f"OTEL_EXPORTER_OTLP_{self._signal}_{name}", f"OTEL_EXPORTER_OTLP_{name}"):
            if value := self._environment.get(full, "").strip():
                return full, value
        return None

    def read(self, name: str, kind: Kind[T]) -> T | None:
        """Return the parsed value of a variable, or None if it is not set.

        Raises:
            ConfigError: the value is invalid.
        """
        found = self.find(name)
        if found is None:
            return None
        full, value = found
        try:
            return kind.parse(value)
        except ValueError as error:
            raise ConfigError([invalid(full, value, kind, error)]) from None


def _in_any_case(kind: Kind[str]) -> Kind[str]:
    return Kind(kind.allowed, lambda value: kind.parse(value.lower()), harmless=kind.harmless)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        raise ValueError from None
    if not seconds > 0:
        raise ValueError
    return seconds


#: Paths of files, and seconds, as OpenTelemetry's Python exporter reads them.
_path, _timeout = text(harmless=PATHS), Kind("a number of seconds above 0", _seconds, harmless=WORDS)


def target(config: OtlpConfig, environment: Mapping[str, str], signal: str = "LOGS") -> Target:
    """Merge the settings with the environment.

    Args:
        config: settings of the reporter.
        environment: environment variables.
        signal: ``LOGS`` or ``TRACES``, for the names of the variables and the path of the URL.

    Raises:
        ConfigError: a variable, or a key in combination with a variable, is invalid; the message names it.
    """
    variables = _Variables(environment, signal)
    is_http = (config.protocol or variables.read("PROTOCOL", _in_any_case(_protocol)) or _GRPC) == _HTTP
    endpoint, origin = _endpoint(config, variables, is_http)
    if is_http:
        where, is_secure = _http(endpoint, origin, variables.path)
    else:
        is_insecure = variables.read("INSECURE", boolean) if config.insecure is None else config.insecure
        where, is_secure = _grpc(endpoint, origin, bool(is_insecure))
    client_certificate = config.client_certificate or variables.read("CLIENT_CERTIFICATE", _path)
    client_key = config.client_key or variables.read("CLIENT_KEY", _path)
    if (client_certificate is None) != (client_key is None):
        missing = "client.key" if client_key is None else "client.certificate"
        raise ConfigError([f"{missing}: not set; a client certificate needs its key, and a key its certificate"])
    headers = variables.read("HEADERS", header_values) if config.headers is None else config.headers
    compression = config.compression or variables.read("COMPRESSION", _in_any_case(_compression))
    # The variable can only shorten the timeout, so a value mistakenly given in milliseconds has no effect.
    timeout = config.timeout or min(_TIMEOUT, variables.read("TIMEOUT", _timeout) or _TIMEOUT)
    return Target(
        is_http=is_http,
        address=where,
        is_secure=is_secure,
        headers={name: value.reveal() for name, value in (headers or {}).items()},
        is_compressed=compression == "gzip",
        certificate=config.certificate or variables.read("CERTIFICATE", _path),
        client_certificate=client_certificate,
        client_key=client_key,
        timeout=timeout,
    )


def _endpoint(config: OtlpConfig, variables: _Variables, is_http: bool) -> tuple[str, str]:
    if config.endpoint is not None:
        return config.endpoint, "endpoint"
    found = variables.find("ENDPOINT")
    if found is None:
        return ("http://localhost:4318" if is_http else "http://localhost:4317"), "endpoint"
    name, endpoint = found
    variables.read("ENDPOINT", address)
    if is_http and name == "OTEL_EXPORTER_OTLP_ENDPOINT":
        # The variable for all signals contains a base address; the variable for one signal contains the complete
        # address.
        endpoint = endpoint.rstrip("/") + variables.path
    return endpoint, name


def _http(endpoint: str, origin: str, path: str) -> tuple[str, bool]:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https"):
        given = quoted(origin, endpoint, address)
        raise ConfigError([f"{origin}: given {given}, allowed over HTTP: http://host:port or https://host:port"])
    if origin == "endpoint" and parts.path in ("", "/"):
        endpoint = endpoint.rstrip("/") + path
    return endpoint, parts.scheme == "https"


def _grpc(endpoint: str, origin: str, is_insecure: bool) -> tuple[str, bool]:
    if "://" not in endpoint:
        return endpoint, not is_insecure
    parts = urlsplit(endpoint)
    if parts.path not in ("", "/"):
        raise ConfigError(
            [
                f"{origin}: given {quoted(origin, endpoint, address)}, a gRPC endpoint must not have a path, unlike an"
                " http/protobuf endpoint"
            ]
        )
    return parts.netloc, parts.scheme == "https"
