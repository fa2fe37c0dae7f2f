"""Events about a run that could not report its own end, with the same ``event_id`` as the run's own events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

import msgspec

from spark_events.event import Attributes, AttributeValue, Event, Severity
from spark_events.event.heartbeat import HEARTBEAT
from spark_events.records.types import ApplicationEnd, ApplicationStart, JvmShutdown, decode
from spark_events.translate.incidents.incident_keys import ENVIRONMENT, Keys
from spark_events.translate.translator import Translator

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Prefixes of attributes that describe one event, and not its application.
_OWN = (
    "incident.",
    "openlineage.",
    "spark.app.end_reason",
    "spark.app.exit_",
    "spark.app.outcome_hint",
    "spark.entity",
    "spark.events.",
    "spark.heartbeat.",
    "spark.status.",
)
_KEY = "incident.key"
#: Role of a LOST event whose incident is already over, because the next run works.
_MEMBER = "member"


def scope_of(event: Event) -> Attributes:
    """Return the application's attributes in a heartbeat or a status change of the application.

    The result contains the key of the application's incident, if the event is a sign of life with this key.
    """
    about = {key: value for key, value in event.attributes.items() if not key.startswith(_OWN)}
    is_life = event.name == HEARTBEAT or event.attributes.get("spark.status.new") == "RUNNING"
    if is_life and _KEY in event.attributes:
        about[_KEY] = event.attributes[_KEY]
    return Attributes(about)


def key_of(scope: Mapping[str, AttributeValue]) -> str:
    """Return the key of the application's incident; ``scope`` is a result of :func:`scope_of`."""
    return str(scope.get(_KEY) or Keys((ENVIRONMENT,)).of_application(scope))


def utc(millis: int) -> str:
    """Format milliseconds since the epoch in UTC; return the number if the year is out of range."""
    try:
        return (_EPOCH + timedelta(milliseconds=millis)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except OverflowError:
        return str(millis)


def lost_event(
    start: ApplicationStart,
    scope: Mapping[str, AttributeValue],
    at: int,
    sequence: int,
    how: str,
    works: str = "",
) -> Event:
    """Return the LOST event of a run: the alarm of an incident, or WARN if the incident is already over.

    Args:
        start: identity of the run.
        scope: the run's own attributes and the key of its incident.
        at: the time at which the run was last known to be alive, in milliseconds since the epoch.
        sequence: sequence number of the event, one more than the run's last known number.
        how: how the loss was detected, as the last words of a sentence.
        works: description of a later run that has shown success since; empty if there is none.
    """
    # Use the sidecar's translator, which produces the same key, attributes and severity.
    translator = Translator(first_sequence=sequence)
    translator.restore(start)
    (event,) = translator.driver_lost(at, orderly=False, how=f"{how}; {works}" if works else how)
    about = {**scope, **event.attributes, _KEY: key_of(scope or event.attributes)}
    if not works:
        return msgspec.structs.replace(event, attributes=Attributes(about))
    # An alarm would open after the recovery that should close it, and never close.
    about["incident.role"] = _MEMBER
    return msgspec.structs.replace(event, severity=Severity.WARN, attributes=Attributes(about))


def late_end(
    start: ApplicationStart, scope: Mapping[str, AttributeValue], at: int, line: bytes, how: str
) -> list[Event]:
    """Return the events of an end that a driver stored, because it had no sidecar that could report the end.

    The events close no incident: a later run may have opened one since.

    Args:
        start: identity of the run.
        scope: the run's own attributes and the key of its incident.
        at: the time at which the run was last known to be alive, in milliseconds since the epoch.
        line: the driver's record of the end; if it is damaged, only the orderly end is known.
        how: why the end is reported late, as a clause.
    """
    translator = Translator()
    translator.restore(start)
    record = decode(line)
    if isinstance(record, ApplicationEnd):
        if record.ending == "STOPPED" and record.program_exit_code is None:
            # Work without a sidecar may have failed before the program called `stop()`.
            record = msgspec.structs.replace(record, ending="UNKNOWN")
        events = [*translator.translate(record), *translator.flush()]
    else:
        events = translator.driver_lost(record.at if isinstance(record, JvmShutdown) else at, orderly=True)
    return [_late(event, scope, how) for event in events]


def _late(event: Event, scope: Mapping[str, AttributeValue], how: str) -> Event:
    own = event.attributes
    about = {**scope, **own}
    if own.get("incident.role", "recovery") == "recovery":
        about = {key: value for key, value in about.items() if not key.startswith("incident.")}
    else:
        about[_KEY] = key_of(scope or own)
    return msgspec.structs.replace(event, body=f"{event.body} ({how})", attributes=Attributes(about))
