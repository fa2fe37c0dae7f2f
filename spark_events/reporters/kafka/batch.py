"""What has become of each message of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_events.event import Event

__all__ = ["Batch", "Message"]


class Message:
    """One event as a message, and what has become of it."""

    __slots__ = ("error", "event", "is_answered", "sender", "why")

    def __init__(self, event: Event) -> None:
        self.event = event
        #: The client that has it; None: it is to be sent.
        self.sender: object = None
        #: Delivered, or refused (then ``why`` says why): it has come to its end.
        self.is_answered = False
        self.why: str | None = None
        #: The code of the error that ended the last attempt to deliver it.
        self.error: int | None = None


class Batch:
    """The events of one call of ``report``, however often that call is made.

    Args:
        events: oldest first.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.ids = tuple(event.event_id for event in events)
        self.messages = [Message(event) for event in events]
        #: One message of it was refused, but nobody knows which: they are sent one by one.
        self.one_by_one = False

    def unsent(self) -> Iterator[Message]:
        """What is to be sent, oldest first."""
        return (message for message in self.messages if message.sender is None and not message.is_answered)

    @property
    def is_waiting(self) -> bool:
        """Whether the delivery of any is still to be reported."""
        return any(
            message.sender is not None and not message.is_answered and message.error is None
            for message in self.messages
        )

    @property
    def is_done(self) -> bool:
        """Whether all have come to their end."""
        return all(message.is_answered for message in self.messages)

    def failed(self) -> list[Message]:
        """Those that were given back, oldest first."""
        return [message for message in self.messages if message.error is not None and not message.is_answered]

    def send_again(self) -> None:
        """What was not delivered is to be sent anew."""
        for message in self.messages:
            if not message.is_answered:
                message.sender = None
                message.error = None

    def refused(self) -> list[str]:
        """Why, of those that were refused for good."""
        return [message.why for message in self.messages if message.why is not None]
