"""The settings of the reporter ``kafka``; keys of librdkafka's keep its names."""

from __future__ import annotations

import dataclasses

from spark_events.config import Kind, Secret, choice, option, secret, text

__all__ = ["OWN", "KafkaConfig", "properties"]

#: What a promise rests on, or has a key of its own (where secrets are not shown): not to be set by ``properties``.
OWN = frozenset(
    {
        "bootstrap.servers",
        "metadata.broker.list",
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "compression.type",
        "compression.codec",
        "enable.idempotence",
        "enable.gapless.guarantee",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "delivery.report.only.error",
        "transactional.id",
    }
)


def _properties(value: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in filter(None, (part.strip() for part in value.split(";"))):
        name, separator, content = part.partition("=")
        if not separator or not name.strip():
            raise ValueError("there is no = in a part")
        if name.strip() in OWN:
            raise ValueError(f"{name.strip()} is not for properties: it has a key of its own, or must be as it is")
        pairs.append((name.strip(), content.strip()))
    if not pairs:
        raise ValueError("nothing")
    return tuple(pairs)


#: Settings of librdkafka, as they are; confidential, for there is always one more kind of login.
properties: Kind[tuple[tuple[str, str], ...]] = Kind(
    "name=value of librdkafka's settings, several separated by ;",
    _properties,
    lambda pairs: "; ".join(f"{name}={value}" for name, value in pairs),
    True,
)


@dataclasses.dataclass(frozen=True, slots=True)
class KafkaConfig:
    """``events.reporter.<name>.…`` of type ``kafka``."""

    servers: str = option("bootstrap.servers", text("host:port, several separated by ,"), doc="Where the brokers are.")
    topic: str = option("topic", text("the name of a topic"), doc="The topic that events are written to.")
    key: str = option(
        "key",
        choice("query", "application", "none"),
        "query",
        doc="What messages are keyed by, and so keep their order by: the query (else the application), the "
        "application, or nothing.",
    )
    compression: str = option(
        "compression.type", choice("none", "gzip", "snappy", "lz4", "zstd"), "lz4", doc="How batches are compressed."
    )
    security: str = option(
        "security.protocol",
        choice("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
        "plaintext",
        doc="Whether with TLS, and whether with a login.",
    )
    mechanism: str | None = option(
        "sasl.mechanism", choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), None, doc="How to log in."
    )
    username: str | None = option("sasl.username", text("a name"), None, doc="Who logs in.")
    password: Secret | None = option("sasl.password", secret, None, doc="The password of the login.")
    ca: str | None = option(
        "ssl.ca.location", text("the path of a PEM file"), None, doc="The authorities that are trusted."
    )
    certificate: str | None = option(
        "ssl.certificate.location", text("the path of a PEM file"), None, doc="A client certificate."
    )
    private_key: str | None = option(
        "ssl.key.location", text("the path of a PEM file"), None, doc="The client certificate's key."
    )
    key_password: Secret | None = option("ssl.key.password", secret, None, doc="The password of that key.")
    properties: tuple[tuple[str, str], ...] = option(
        "properties", properties, (), doc="Other settings of librdkafka's, as they are."
    )

    def of_librdkafka(self) -> dict[str, object]:
        """All of it in librdkafka's words, together with what the reporter's promises rest on."""
        given = {
            "security.protocol": self.security,
            "compression.type": self.compression,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.username,
            "sasl.password": None if self.password is None else self.password.reveal(),
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.private_key,
            "ssl.key.password": None if self.key_password is None else self.key_password.reveal(),
        }
        return {
            "client.id": "spark-events",
            "linger.ms": 5,
            # Of its memory, at most so much: a batch is handed over only as far as there is room.
            "queue.buffering.max.kbytes": 32_768,
            # As Kafka's own clients place keys.
            "partitioner": "murmur2_random",
            # A topic that is not there is to be said before an attempt of the usual length is over.
            "topic.metadata.propagation.max.ms": 5_000,
            "reconnect.backoff.max.ms": 5_000,
            # Complaints come by a callback and are told by the dispatch, once; not in the log at every attempt.
            "log_level": 0,
            **dict(self.properties),
            **{name: value for name, value in given.items() if value is not None},
            "enable.idempotence": True,
            # What cannot be delivered stops all that is behind it, so that nothing overtakes.
            "enable.gapless.guarantee": True,
            # Its own retries, which keep the order, go on for as long as the dispatch wants them to.
            "message.timeout.ms": 0,
        }
