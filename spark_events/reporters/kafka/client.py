"""librdkafka's producer, as far as it is needed, for one event loop."""

from __future__ import annotations

import asyncio
import functools
import logging
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaError, KafkaException, Producer

from spark_events.reporters.kafka.batch import Message
from spark_events.reporters.kafka.config import KafkaConfig

__all__ = ["ABOUT_MESSAGES", "Client", "check", "refusal", "words"]

#: librdkafka's own log, for who asks for it by `debug` or `log_level`.
_LOG = logging.getLogger(f"{__name__}.librdkafka")
#: What it would say is told by its callbacks already; a request that is refused is even "fatal" to it.
_SILENT = logging.Logger("silent", logging.CRITICAL + 1)
#: How long one look for reports of delivery lasts if there are none, in seconds; a cancelled attempt leaves it behind.
_POLL_SECONDS = 0.1
#: What is wrong with a message, or with the others in its request.
ABOUT_MESSAGES = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
    }
)
#: After these there is nothing to wait for: somebody has to do something, or to come back.
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
    """Looks whether librdkafka would take the settings; connects to nobody.

    Raises:
        ValueError: it would not.
    """
    try:
        Producer({**config.of_librdkafka(), "bootstrap.servers": ""}, logger=_SILENT)
    except KafkaException as error:
        raise ValueError(error.args[0].str()) from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"properties: {error}") from None


def words(code: int) -> str:
    """What a code of librdkafka's or a broker's means."""
    error = KafkaError(code)
    return f"{error.name()}: {error.str()}"


def refusal(error: Exception) -> str | None:
    """Why a message is refused before it is sent; None when something else is wrong than the message."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return words(cause.code()) if cause is not None and cause.code() in ABOUT_MESSAGES else None


class Client:
    """One producer. What it is given it delivers in that order, or not at all and then nothing behind it either.

    Args:
        config: of the reporter.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._topic = config.topic
        self._loop = asyncio.get_running_loop()
        # Reports of delivery are taken by one thread, one after the other.
        self._thread = ThreadPoolExecutor(1, "spark-events-kafka")
        self._trouble: str | None = None
        self._last_words = ""
        self._all_down = False
        self.is_broken = False
        settings = {**config.of_librdkafka(), "bootstrap.servers": config.servers, "error_cb": self._complained}
        is_asked_for = not {"debug", "log_level"}.isdisjoint(name for name, _ in config.properties)
        self._producer: Producer | None = Producer(settings, logger=_LOG if is_asked_for else _SILENT)

    def send(self, message: Message, key: bytes | None, value: bytes) -> None:
        """Hands over a message; its fields say later what became of it.

        Raises:
            BufferError: there is no room for it now.
            KafkaException: it was not taken.
        """
        assert self._producer is not None
        headers: list[tuple[str, str | bytes | None]] = [
            ("content-type", b"application/json"),
            ("event_id", message.event.event_id.encode("utf-8", "replace")),
        ]
        # Before it is handed over: the report may come at once, in the thread that polls.
        message.sender = self
        try:
            self._producer.produce(
                self._topic, value, key, headers=headers, on_delivery=functools.partial(self._reported, message)
            )
        except Exception:
            message.sender = None
            raise

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing to deliver."""
        return self._producer is None or len(self._producer) == 0

    async def poll(self) -> None:
        """Waits a moment for reports of delivery."""
        await self._loop.run_in_executor(self._thread, self._poll, _POLL_SECONDS)

    def _poll(self, seconds: float) -> None:
        if self._producer is not None:
            self._producer.poll(seconds)

    async def forget_trouble(self) -> None:
        """What was said while nobody wanted anything (brokers close idle connections) does not count."""
        await self._loop.run_in_executor(self._thread, self._poll, 0)
        self._trouble = None
        self._all_down = False

    def trouble(self) -> str | None:
        """Why there is nothing to wait for; None while there is hope. It is told once."""
        trouble, self._trouble = self._trouble, None
        return trouble

    def _reported(self, message: Message, error: KafkaError | None, _: object) -> None:
        if error is None:
            message.is_answered = True
            self._all_down = False
        elif message.sender is self:
            # What another client has by now is not ours to complain of.
            message.error = error.code()

    def _complained(self, error: KafkaError) -> None:
        code = error.code()
        if error.fatal():
            self.is_broken = True
        if code == KafkaError._ALL_BROKERS_DOWN:
            # It is said once, whatever comes after it, and why was said before it.
            self._all_down = True
            self._trouble = self._trouble or f"no broker can be reached: {self._last_words or error.str()}"
            return
        self._last_words = error.str()
        if error.fatal() or self._all_down or code in _HOPELESS:
            name = error.name().lstrip("_")
            self._trouble = f"{name}: {error.str()}" if code in _HOPELESS else error.str()

    async def close(self) -> None:
        """Forgets what was not delivered, and is gone."""
        await self._loop.run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.poll(0)
