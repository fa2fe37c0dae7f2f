"""Client for librdkafka's producer, for use in one event loop."""

from __future__ import annotations

import asyncio
import functools
import logging

from confluent_kafka import KafkaError, KafkaException, Producer

from spark_events.reporters.kafka.kafka_batch import Message
from spark_events.reporters.kafka.kafka_config import KafkaConfig

#: Logger for librdkafka's own messages, which are logged if the user sets `debug` or `log_level`.
_LOG = logging.getLogger(f"{__name__}.librdkafka")
#: Logger that discards librdkafka's messages: callbacks report the same errors, and librdkafka logs even a refused
#: request as fatal.
_SILENT = logging.Logger("silent", logging.CRITICAL + 1)
#: Pause between polls without a delivery report, in seconds. A poll that waits would block the event loop.
_POLL_SECONDS = 0.005
#: Error codes for a refused message or request.
ABOUT_MESSAGES = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
    }
)
#: Error codes after which waiting for delivery reports is useless, until configuration, permissions or brokers change.
_HOPELESS = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def check(config: KafkaConfig) -> None:
    """Validate the settings with librdkafka, without connecting.

    Raises:
        ValueError: librdkafka rejects a setting.
    """
    try:
        Producer({**config.of_librdkafka(), "bootstrap.servers": ""}, logger=_SILENT)
    except KafkaException as error:
        raise ValueError(error.args[0].str()) from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"properties: {error}") from None


def describe(code: int) -> str:
    """Describe an error code of librdkafka or of a broker."""
    error = KafkaError(code)
    return f"{error.name()}: {error.str()}"


def refusal(error: Exception) -> str | None:
    """Return the reason why a message is refused; None if the error has another cause."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return describe(cause.code()) if cause is not None and cause.code() in ABOUT_MESSAGES else None


class Client:
    """Producer that delivers messages in order.

    If a message fails permanently, the producer delivers no later message.

    Args:
        config: settings of the reporter.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._topic = config.topic
        self._problem: str | None = None
        self._last_error = ""
        self._all_down = False
        self.is_broken = False
        settings = {**config.of_librdkafka(), "error_cb": self._on_error}
        is_asked_for = not {"debug", "log_level"}.isdisjoint(name for name, _ in config.properties)
        self._producer = Producer(settings, logger=_LOG if is_asked_for else _SILENT)

    def send(self, message: Message, key: bytes | None, value: bytes) -> None:
        """Enqueue a message; the delivery report later updates the message's fields.

        Raises:
            BufferError: the producer's buffer is full.
            KafkaException: the producer refuses the message.
        """
        headers: list[tuple[str, str | bytes | None]] = [
            ("content-type", b"application/json"),
            ("event_id", message.event.event_id.encode("utf-8", "replace")),
        ]
        self._producer.produce(
            self._topic, value, key, headers=headers, on_delivery=functools.partial(self._reported, message)
        )
        message.is_sent = True

    @property
    def is_empty(self) -> bool:
        """Return whether the producer's buffer contains no undelivered message."""
        return len(self._producer) == 0

    async def poll(self) -> None:
        """Handle delivery reports; pause if there are none."""
        await asyncio.sleep(0 if self._producer.poll(0) else _POLL_SECONDS)

    def forget_problem(self) -> None:
        """Discard errors that occurred between batches; for example, brokers close idle connections."""
        self._producer.poll(0)
        self._problem = None
        self._all_down = False

    def problem(self) -> str | None:
        """Return and clear the error that ends the wait for delivery reports; None if there is none."""
        problem, self._problem = self._problem, None
        return problem

    def _reported(self, message: Message, error: KafkaError | None, _: object) -> None:
        if error is None:
            message.is_answered = True
            self._all_down = False
        else:
            message.error = error.code()

    def _on_error(self, error: KafkaError) -> None:
        code = error.code()
        if error.fatal():
            self.is_broken = True
        if code == KafkaError._ALL_BROKERS_DOWN:
            # librdkafka reports this error code only once, after the error that caused it.
            self._all_down = True
            self._problem = self._problem or f"no broker reachable: {self._last_error or error.str()}"
            return
        self._last_error = error.str()
        if code in _HOPELESS:
            self._problem = f"{error.name().lstrip('_')}: {error.str()}"
        elif error.fatal():
            self._problem = error.str()
        elif self._all_down:
            self._problem = f"no broker reachable: {error.str()}"

    def close(self) -> None:
        """Discard undelivered messages and stop the producer; the client cannot be used any more."""
        self._producer.purge()
        self._producer.poll(0)
        # The producer refers to this object by its callbacks, so only deleting the attribute frees it at once.
        del self._producer
