"""Reporter that writes events to a Kafka topic and waits for the delivery reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from spark_events.errors import PermanentError, TransientError
from spark_events.event import Event, encode_event
from spark_events.reporters.kafka.kafka_batch import Batch, Message
from spark_events.reporters.kafka.kafka_config import KafkaConfig, hosts
from spark_events.reporters.reporter import REQUEST_LINGER, Reporter, load_extra

if TYPE_CHECKING:
    from spark_events.reporters.kafka.kafka_producer import Client

_KEYS = {"query": ("spark.streaming.query.id", "spark.app.id"), "application": ("spark.app.id",), "none": ()}


class KafkaReporter(Reporter):
    """Deliver events with an idempotent producer: no duplicates, no reordering.

    If an attempt is cancelled, its messages stay in the client, which continues to deliver them. The next attempt waits
    for these messages and does not send them again. If a message fails permanently, for example because its topic was
    deleted or is forbidden, the reporter replaces the client. It then sends that message and all later messages again.
    """

    Config: ClassVar[type[KafkaConfig]] = KafkaConfig
    linger = REQUEST_LINGER

    def __init__(self, config: KafkaConfig) -> None:
        load_extra("confluent_kafka", "kafka")
        from spark_events.reporters.kafka import kafka_producer

        kafka_producer.check(config)
        self.config = config
        self._library = kafka_producer
        self._client: Client | None = None
        self._batch = Batch(())

    async def report(self, events: Sequence[Event]) -> None:
        if self._batch.ids != tuple(event.event_id for event in events):
            self._batch = Batch(events)
            if self._client is not None:
                self._client.forget_problem()
        batch = self._batch
        if self._client is not None and self._client.is_broken:
            # The last attempt was cancelled before all its delivery reports arrived.
            self._replace()
        while not batch.is_done:
            if self._client is None:
                self._client = self._library.Client(self.config)
                batch.send_again()
            self._send(self._client, batch)
            await self._wait(self._client, batch)
            if failed := batch.failed():
                problem = self._client.problem()
                self._replace()
                self._judge(batch, failed, problem)
        self._batch = Batch(())
        if refused := batch.refused():
            message = f"Kafka refused {len(refused)} of {len(events)} events: {refused[-1]}"
            raise PermanentError(message, rejected=len(refused))

    def _send(self, client: Client, batch: Batch) -> None:
        """Enqueue as many messages as fit into the client's buffer."""
        for message in batch.unsent():
            if batch.one_by_one and batch.is_waiting:
                return
            try:
                client.send(message, self._key(message.event), encode_event(message.event))
            except BufferError:
                if not client.is_empty:
                    return
                message.is_answered, message.why = True, "the message is larger than queue.buffering.max.kbytes"
            except Exception as error:
                if (why := self._library.refusal(error)) is not None:
                    message.is_answered, message.why = True, why
                elif batch.is_waiting:
                    # A message in the client has failed, so the client accepts no further messages. The delivery
                    # reports will name the failed message.
                    return
                else:
                    self._replace()
                    raise TransientError(f"{self._where}: {error}") from None

    async def _wait(self, client: Client, batch: Batch) -> None:
        """Wait until every message has a delivery report, or an error ends the wait."""
        while not batch.is_done:
            await client.poll()
            # A failed client reports every message with a reason, so keep polling.
            if not client.is_broken:
                if (problem := client.problem()) is not None:
                    raise TransientError(f"{self._where}: {problem}")
                if next(batch.unsent(), None) is not None:
                    # The client's buffer may have free space again.
                    return
            if not batch.is_waiting:
                return

    def _replace(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _judge(self, batch: Batch, failed: list[Message], problem: str | None) -> None:
        """Reject the message that caused the failure; if no message caused it, raise a transient error.

        A broker refuses a whole request, so only single-message requests show which message is too large.
        """
        blamed = [message for message in failed if message.error in self._library.ABOUT_MESSAGES]
        if not blamed:
            raise TransientError(f"{self._where}: {problem or self._library.describe(failed[0].error or 0)}")
        if batch.one_by_one or len(failed) == 1:
            blamed[0].is_answered = True
            blamed[0].why = self._library.describe(blamed[0].error or 0)
        batch.one_by_one = True

    @property
    def _where(self) -> str:
        return f"Kafka at {hosts(self.config.servers)}"

    def _key(self, event: Event) -> bytes | None:
        for name in _KEYS[self.config.key]:
            if value := event.attributes.get(name):
                return str(value).encode("utf-8", "replace")
        return None

    async def release(self) -> None:
        self._replace()
