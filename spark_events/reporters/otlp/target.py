"""Address and options of the receiver: settings, then OTEL_EXPORTER_OTLP_<signal>_*, then OTEL_EXPORTER_OTLP_*.

The environment variables have the same meaning as for OpenTelemetry's Python exporter.
"""

from __future__ import annotations

import dataclasses
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from spark_events.config import Kind, Secret, boolean, choice, integer, option, positive_duration, secret, size, text
from spark_events.errors import ConfigError
from spark_events.reporters.http.config import pem_file
from spark_events.reporters.otlp.spans import Parent, traceparent
from spark_events.reporters.otlp.verdicts import UnavailableError


def _address(value: str) -> str:
    """Validate an endpoint: ``http://host:4318/path``, or ``host:4317`` with gRPC."""
    parts = urlsplit(value if "://" in value else f"//{value}")
    if parts.scheme not in ("", "http", "https") or not parts.hostname or parts.username or parts.query:
        raise ValueError
    # Reading the port raises ValueError if the port is invalid.
    _ = parts.port
    return value


#: Address of an OTLP receiver.
address: Kind[str] = Kind("http://host:port or https://host:port, with gRPC also host:port", _address)


@dataclasses.dataclass(frozen=True, slots=True)
class OtlpConfig:
    """Settings below ``events.reporter.<name>.`` for type ``otlp``."""

    protocol: str | None = option(
        "protocol",
        choice("grpc", "http/protobuf"),
        None,
        doc="Protocol; default: from OTEL_EXPORTER_OTLP_LOGS_PROTOCOL or OTEL_EXPORTER_OTLP_PROTOCOL, else grpc.",
    )
    endpoint: str | None = option(
        "endpoint",
        address,
        None,
        doc="Address of the receiver; default: http://localhost:4317 for gRPC, http://localhost:4318 for HTTP.",
    )
    headers: Secret | None = option(
        "headers", secret, None, doc="Headers of every request, name=value, separated by commas, percent-encoded."
    )
    compression: str | None = option(
        "compression",
        choice("none", "gzip"),
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


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_GRPC, _HTTP = "grpc", "http/protobuf"


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

    def value(self, name: str) -> str | None:
        found = self.find(name)
        return None if found is None else found[1]

    def choice(self, name: str, *allowed: str) -> str | None:
        found = self.find(name)
        if found is None or found[1].lower() in allowed:
            return None if found is None else found[1].lower()
        raise ConfigError([f"{found[0]}: given {found[1]!r}, expected one of {', '.join(allowed)}"])


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
    is_http = (config.protocol or variables.choice("PROTOCOL", _GRPC, _HTTP) or _GRPC) == _HTTP
    endpoint, origin = _endpoint(config, variables, is_http)
    where, is_secure = (
        _http(endpoint, origin, variables.path) if is_http else _grpc(endpoint, origin, _is_insecure(config, variables))
    )
    client_certificate = config.client_certificate or variables.value("CLIENT_CERTIFICATE")
    client_key = config.client_key or variables.value("CLIENT_KEY")
    if (client_certificate is None) != (client_key is None):
        missing = "client.key" if client_key is None else "client.certificate"
        raise ConfigError([f"{missing}: not set; a client certificate needs its key, and a key its certificate"])
    return Target(
        is_http=is_http,
        address=where,
        is_secure=is_secure,
        headers=_all_headers(config, variables),
        is_compressed=(config.compression or variables.choice("COMPRESSION", "none", "gzip")) == "gzip",
        certificate=config.certificate or variables.value("CERTIFICATE"),
        client_certificate=client_certificate,
        client_key=client_key,
        timeout=_timeout(config, variables),
    )


def _endpoint(config: OtlpConfig, variables: _Variables, is_http: bool) -> tuple[str, str]:
    if config.endpoint is not None:
        return config.endpoint, "endpoint"
    found = variables.find("ENDPOINT")
    if found is None:
        return ("http://localhost:4318" if is_http else "http://localhost:4317"), "endpoint"
    try:
        address.parse(found[1])
    except ValueError:
        raise ConfigError([f"{found[0]}: given {found[1]!r}, expected {address.allowed}"]) from None
    if is_http and found[0] == "OTEL_EXPORTER_OTLP_ENDPOINT":
        # The variable for all signals contains a base address; the variable for one signal contains the complete
        # address.
        return found[1].rstrip("/") + variables.path, found[0]
    return found[1], found[0]


def _http(endpoint: str, origin: str, path: str) -> tuple[str, bool]:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https"):
        raise ConfigError([f"{origin}: given {endpoint!r}, allowed over HTTP: http://host:port or https://host:port"])
    if origin == "endpoint" and parts.path in ("", "/"):
        endpoint = endpoint.rstrip("/") + path
    return endpoint, parts.scheme == "https"


def _grpc(endpoint: str, origin: str, is_insecure: bool) -> tuple[str, bool]:
    if "://" not in endpoint:
        return endpoint, not is_insecure
    parts = urlsplit(endpoint)
    if parts.path not in ("", "/"):
        raise ConfigError(
            [f"{origin}: given {endpoint!r}, a gRPC endpoint must not have a path, unlike an http/protobuf endpoint"]
        )
    return parts.netloc, parts.scheme == "https"


def _is_insecure(config: OtlpConfig, variables: _Variables) -> bool:
    if config.insecure is not None:
        return config.insecure
    return variables.choice("INSECURE", "true", "false") == "true"


def _all_headers(config: OtlpConfig, variables: _Variables) -> dict[str, str]:
    if config.headers is not None:
        return _headers(config.headers.reveal(), "headers")
    found = variables.find("HEADERS")
    return {} if found is None else _headers(found[1], found[0])


def _headers(given: str, origin: str) -> dict[str, str]:
    """Parse headers in the format of W3C baggage; error messages do not quote the secret values."""
    headers = {}
    for number, pair in enumerate(given.split(","), 1):
        if not pair.strip():
            continue
        name, separator, value = pair.partition("=")
        name, value = unquote(name).strip().lower(), unquote(value).strip()
        if not separator or not _HEADER_NAME.fullmatch(name):
            raise ConfigError([f"{origin}: header {number} is not name=value"])
        if not all(" " <= character <= "~" for character in value):
            raise ConfigError([f"{origin}: the value of {name} contains a character that is not allowed in headers"])
        headers[name] = value
    return headers


def _timeout(config: OtlpConfig, variables: _Variables) -> float:
    own = config.timeout or 10.0
    found = variables.find("TIMEOUT")
    if config.timeout is not None or found is None:
        return own
    try:
        # The variable is in seconds, as in OpenTelemetry's Python exporter. It can only shorten the timeout, so a value
        # mistakenly given in milliseconds has no effect.
        seconds = float(found[1])
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ConfigError([f"{found[0]}: given {found[1]!r}, expected a number of seconds above 0"])
    return min(own, seconds)


def context(target: Target) -> ssl.SSLContext | None:
    """Return a context with the configured certificates, or None if there are none.

    Raises:
        UnavailableError: a file is missing or invalid; the message names it.
    """
    if target.certificate is None and target.client_certificate is None:
        return None
    try:
        made = ssl.create_default_context(cafile=target.certificate)
    except OSError as error:
        raise UnavailableError(f"{target.certificate}: {_reason(error)}") from error
    if target.client_certificate is not None:
        try:
            # With an empty password, an encrypted key raises an error. Without a password, it would prompt on a
            # terminal.
            made.load_cert_chain(target.client_certificate, target.client_key, password="")
        except OSError as error:
            raise UnavailableError(f"{target.client_certificate} with {target.client_key}: {_reason(error)}") from error
    return made


def read(path: str | None) -> bytes | None:
    """Return the content of a PEM file that :func:`context` has validated."""
    return None if path is None else Path(path).read_bytes()


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not usable: {error.reason or error}"
    return error.strerror or str(error)
