"""Delivery state of the messages of a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from spark_events.event import Event


@dataclasses.dataclass(slots=True, eq=False)
class Message:
    """Kafka message of one event, with its delivery state.

    Attributes:
        is_sent: whether the client's buffer contains the message.
        is_answered: whether the message was delivered or refused.
        why: the reason for a refusal.
        error: error code of the last delivery attempt.
    """

    event: Event
    is_sent: bool = False
    is_answered: bool = False
    why: str | None = None
    error: int | None = None


class Batch:
    """Messages of one batch, kept across all attempts to deliver the batch.

    Args:
        events: oldest first.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.ids = tuple(event.event_id for event in events)
        self.messages = [Message(event) for event in events]
        #: Whether to send each message in a separate request, because the broker refused a request without naming a
        #: message.
        self.one_by_one = False

    def unsent(self) -> Iterator[Message]:
        """Yield the messages to send, oldest first."""
        return (message for message in self.messages if not message.is_sent and not message.is_answered)

    @property
    def is_waiting(self) -> bool:
        """Return whether a message still lacks its delivery report."""
        return any(message.is_sent and not message.is_answered and message.error is None for message in self.messages)

    @property
    def is_done(self) -> bool:
        """Return whether every message is delivered or refused."""
        return all(message.is_answered for message in self.messages)

    def failed(self) -> list[Message]:
        """Return the messages whose last attempt failed, oldest first."""
        return [message for message in self.messages if message.error is not None and not message.is_answered]

    def send_again(self) -> None:
        """Mark every undelivered message as unsent."""
        for message in self.messages:
            if not message.is_answered:
                message.is_sent = False
                message.error = None

    def refused(self) -> list[str]:
        """Return the reasons why messages were refused."""
        return [message.why for message in self.messages if message.why is not None]
