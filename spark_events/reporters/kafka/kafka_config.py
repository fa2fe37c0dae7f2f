"""Settings of the reporter ``kafka``; settings for librdkafka keep librdkafka's names."""

from __future__ import annotations

import dataclasses
import re

from spark_events.config import Kind, Secret, choice, option, options, secret, text
from spark_events.config.value_kinds import SafeReasonError
from spark_events.reporters.http.http_config import pem_file

#: Keys that are not settings of librdkafka.
_OF_REPORTER = frozenset({"topic", "key", "properties"})
#: Settings that the guarantees require.
_REQUIRED = {
    "enable.idempotence": True,
    # Stop after a failed message, so that later messages do not overtake it.
    "enable.gapless.guarantee": True,
    # librdkafka retries in order and without a limit; the dispatcher decides when to stop.
    "message.timeout.ms": 0,
}
#: Other names of required settings and of the reporter's own keys, and settings that would break a guarantee.
_FORBIDDEN = frozenset(
    {
        "metadata.broker.list",
        "sasl.mechanisms",
        "compression.codec",
        "delivery.timeout.ms",
        "delivery.report.only.error",
        "transactional.id",
    }
)


def _properties(value: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for number, part in enumerate(filter(None, (part.strip() for part in value.split(";"))), 1):
        name, separator, content = part.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"entry {number} has no =")
        if name.strip() in {*_REQUIRED, *_FORBIDDEN, *(declared.key for declared in options(KafkaConfig))}:
            raise SafeReasonError(
                f"{name.strip()} must not be set in properties: use the reporter's own key, see"
                " docs/reporters/kafka.md, or remove the setting"
            )
        pairs.append((name.strip(), content.strip()))
    if not pairs:
        raise ValueError("nothing")
    return tuple(pairs)


#: Settings for librdkafka. Confidential, because some of them are credentials.
properties: Kind[tuple[tuple[str, str], ...]] = Kind(
    "name=value of librdkafka's settings, several separated by ;",
    _properties,
    lambda pairs: "; ".join(f"{name}={value}" for name, value in pairs),
    True,
)


_BROKER = r"(?:\w+://)?[\w.-]+(?::[0-9]{1,5})?"
#: Addresses of brokers; messages quote them only without a login.
servers = text("host:port, several separated by ,", re.compile(rf"{_BROKER}(?:\s*,\s*{_BROKER})*"))


def hosts(given: str) -> str:
    """Return the addresses of brokers for messages: hosts and ports, without a login."""
    brokers = (broker.strip().rpartition("://")[2].rpartition("@")[2] for broker in given.split(","))
    return ", ".join(broker if re.fullmatch(_BROKER, broker) else "…" for broker in brokers)


@dataclasses.dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Settings below ``events.reporter.<name>.`` for type ``kafka``."""

    servers: str = option("bootstrap.servers", servers, doc="Addresses of the initial brokers.")
    topic: str = option("topic", text("the name of a topic"), doc="Topic to which events are written.")
    key: str = option(
        "key",
        choice("query", "application", "none"),
        "query",
        doc="Key of a message; messages with one key stay in order. query: the query, else the application.",
    )
    compression: str = option(
        "compression.type", choice("none", "gzip", "snappy", "lz4", "zstd"), "lz4", doc="How batches are compressed."
    )
    security: str = option(
        "security.protocol",
        choice("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
        "plaintext",
        doc="Protocol of the connection: with or without TLS, with or without a login.",
    )
    mechanism: str | None = option(
        "sasl.mechanism", choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), None, doc="Mechanism of the login."
    )
    username: str | None = option("sasl.username", text("a name"), None, doc="Name for the login.")
    password: Secret | None = option("sasl.password", secret, None, doc="The password of the login.")
    ca: str | None = option("ssl.ca.location", pem_file, None, doc="PEM file of the trusted certificate authorities.")
    certificate: str | None = option("ssl.certificate.location", pem_file, None, doc="A client certificate.")
    private_key: str | None = option(
        "ssl.key.location", pem_file, None, doc="PEM file of the client certificate's key."
    )
    key_password: Secret | None = option(
        "ssl.key.password", secret, None, doc="Password of the client certificate's key."
    )
    properties: tuple[tuple[str, str], ...] = option(
        "properties", properties, (), doc="Other settings of librdkafka, passed on unchanged."
    )

    def of_librdkafka(self) -> dict[str, object]:
        """Return the settings for librdkafka, including those that the guarantees require."""
        keys = {declared.key: getattr(self, declared.field) for declared in options(KafkaConfig)}
        own = {
            key: value.reveal() if isinstance(value, Secret) else value
            for key, value in keys.items()
            if value is not None and key not in _OF_REPORTER
        }
        return {
            "client.id": "spark-events",
            "linger.ms": 5,
            # Limit librdkafka's memory; the reporter never enqueues more than fits.
            "queue.buffering.max.kbytes": 32_768,
            # Use the same partitioner as Kafka's Java client.
            "partitioner": "murmur2_random",
            # Report an unknown topic early, before an attempt of the default length times out.
            "topic.metadata.propagation.max.ms": 5_000,
            "reconnect.backoff.max.ms": 5_000,
            # Disable librdkafka's log by default, because a callback reports errors to the dispatcher, which logs each
            # error once.
            "log_level": 0,
            **dict(self.properties),
            **own,
            **_REQUIRED,
        }
