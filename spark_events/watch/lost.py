"""LOST event of an application, the same event that the application's sidecar would have reported."""

from __future__ import annotations

from spark_events.bridge.records import ApplicationStart
from spark_events.event import Event
from spark_events.translate.translator import Translator


def lost_event(start: ApplicationStart, at: int, sequence: int, how: str) -> Event:
    """Return the LOST event, with the same ``event_id`` as the sidecar's own event.

    Args:
        start: identity of the application.
        at: the time at which the application was last known to run, in milliseconds since the epoch.
        sequence: sequence number of the event, one more than the application's last known number.
        how: how the loss was detected, as the last words of a sentence.
    """
    # Use the sidecar's translator, which produces the same key, attributes and severity.
    translator = Translator(first_sequence=sequence)
    translator.restore(start)
    (event,) = translator.driver_lost(at, orderly=False, how=how)
    return event
