"""States of an alert, and the transitions between them.

::

                        failure after the cooldown:
                        a new alert, for the n-th time
                          ┌──────────────────────────┐
              failure     ▼            recovery      │
    (none) ─────────────▶ OPEN ─────────────────────▶ CLOSED ── no failure until it expires ──▶ (none)
                          │  ▲                          │
                 failure: │  │                          │ failure within the cooldown: the alert flaps
       counted, or sent   └──┘                          ▼
     once per cooldown                        ┌─▶ OPEN, flaps ──┐
                                      failure │                 │ recovery: deferred
                                              └── RECOVERED ◀───┘
                                                      │ no failure for the cooldown, or the reporter closes
                                                      ▼
                                           (the recovery is sent)

The functions are pure. Times are seconds of one clock of the caller, which no change of the wall clock affects. Times
of events are only compared with each other. A message counts as recent only if both clocks agree: neither a clock that
was set back, nor a late delivery, may suppress a failure.

A CLOSED alert is remembered until it expires, so that a message can say how often the alert was open. After the
cooldown, it has no other effect, except that a late copy of its last failure does not open it again.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

import msgspec

__all__ = ["Alarm", "Alert", "AlertsConfig", "Phase", "closed", "closing", "deferred", "failed", "notified", "quiet_in"]


@dataclasses.dataclass(frozen=True, slots=True)
class AlertsConfig:
    """Limits of alerts; times in seconds.

    Attributes:
        cooldown: time after a message in which further failures are only counted; also the time without a failure
            after which a flapping alert recovers.
        expires_after: time after the last message at which an open alert ends if no event closes it, and a closed alert
            is forgotten.
        adoption_delay: additional time after which a process sends a recovery that another process has deferred. The
            other process, if it still runs, sends the recovery first.
        clock_tolerance: difference between the clocks of two machines at which an alert does not expire too early.
        most_known: maximum number of alerts in memory; beyond that, the alert with the oldest change is forgotten, a
            closed one first.
    """

    cooldown: float = 600.0
    expires_after: float = 7 * 86_400.0
    adoption_delay: float = 30.0
    clock_tolerance: float = 3_600.0
    most_known: int = 10_000


class Phase(enum.Enum):
    """Phase of an alert; see the diagram of the module."""

    OPEN = "open"
    RECOVERED = "recovered"
    CLOSED = "closed"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One alert of a destination. It has many fields, because it is the content of one file.

    Attributes:
        key: key of the incident.
        since: time of the first failure.
        since_at: time of its event, in milliseconds since the epoch.
        sent: time of the last message.
        sent_at: time of the event in that message, in milliseconds since the epoch.
        count: number of failures, or of other occurrences.
        severity: number of the highest severity that was sent.
        last: id of the last event, so that a repeated delivery is not counted.
        expires: time at which the alert is forgotten.
        flaps: whether the alert was opened again within the cooldown.
        times: number of times that the alert was opened, until it was forgotten.
        first_at: time of the event that opened it for the first time, in milliseconds since the epoch. 0 in files of
            earlier versions, which count only the current opening.
        is_closing: whether a request that closes the alert was begun. Until it has ended, nobody knows whether the
            alert is open, so the next failure must be sent.
        identity: attributes of the first event that identify the alert at the destination.
        quiet_since: RECOVERED: time of the recovery.
        recovery: RECOVERED: the event to send, as JSON.
    """

    key: str
    phase: Phase
    since: float
    since_at: int
    sent: float = msgspec.field(name="told")
    sent_at: int = msgspec.field(name="told_at")
    count: int
    severity: int
    last: str
    expires: float
    flaps: bool = False
    times: int = 1
    first_at: int = 0
    is_closing: bool = False
    identity: dict[str, str] = {}
    quiet_since: float = 0.0
    recovery: str = ""

    @property
    def first(self) -> int:
        """Time of the event that opened the alert for the first time, in milliseconds since the epoch."""
        return self.first_at or self.since_at


class Alarm(NamedTuple):
    """Event that reports a failure, overdue work or another problem.

    Attributes:
        at: time of the event, in milliseconds since the epoch.
        severity: number of the severity.
        is_occurrence: whether each event is a further occurrence. Otherwise, events of an open alert only report that
            it lasts.
    """

    key: str
    event_id: str
    at: int
    severity: int
    identity: dict[str, str]
    is_occurrence: bool


def failed(alert: Alert | None, alarm: Alarm, now: float, config: AlertsConfig) -> tuple[Alert, bool]:
    """Return the alert after an alarm, and whether to send a message about it."""
    if alert is not None and alert.last == alarm.event_id:
        return alert, False
    is_recent = alert is not None and _is_recent(alert, alarm.at, now, config)
    if alert is None or (alert.phase is Phase.CLOSED and not is_recent):
        first = Alert(
            key=alarm.key,
            phase=Phase.OPEN,
            since=now,
            since_at=alarm.at,
            sent=now,
            sent_at=alarm.at,
            count=1,
            severity=alarm.severity,
            last=alarm.event_id,
            expires=_end(now, config),
            times=1 if alert is None else alert.times + 1,
            first_at=alarm.at if alert is None else min(alert.first, alarm.at),
            identity=alarm.identity,
        )
        return first, True
    is_again = alert.phase is not Phase.OPEN
    again = msgspec.structs.replace(
        alert,
        phase=Phase.OPEN,
        count=alert.count + (1 if is_again or alarm.is_occurrence else 0),
        times=alert.times + (1 if is_again else 0),
        first_at=min(alert.first, alarm.at) if is_again else alert.first,
        severity=max(alert.severity, alarm.severity),
        last=alarm.event_id,
        is_closing=False,
        recovery="",
    )
    if alert.phase is Phase.CLOSED:
        reopened = msgspec.structs.replace(again, flaps=True, severity=alarm.severity)
        return notified(reopened, alarm.at, now, config), True
    is_sent = alert.is_closing or not is_recent or alarm.severity > alert.severity
    return (notified(again, alarm.at, now, config) if is_sent else again), is_sent


def notified(alert: Alert, at: int, now: float, config: AlertsConfig) -> Alert:
    """Return the alert after a message about an event of the time ``at``."""
    return msgspec.structs.replace(alert, sent=now, sent_at=at, expires=_end(now, config))


def deferred(alert: Alert, recovery: str, now: float) -> Alert:
    """Return a flapping alert whose recovery waits until no failure has occurred for the cooldown."""
    return msgspec.structs.replace(alert, phase=Phase.RECOVERED, quiet_since=now, recovery=recovery)


def quiet_in(alert: Alert, is_own: bool, now: float, config: AlertsConfig) -> float:
    """Return the time until a deferred recovery is sent, in seconds; 0 if it is due.

    Args:
        alert: the alert.
        is_own: whether this process has deferred the recovery.
        now: the time.
        config: limits.
    """
    delay = 0.0 if is_own else config.adoption_delay
    return max(0.0, alert.quiet_since + config.cooldown + delay - now)


def closing(alert: Alert) -> Alert:
    """Return the alert while its recovery is being sent."""
    return msgspec.structs.replace(alert, is_closing=True)


def closed(alert: Alert, now: float, config: AlertsConfig) -> Alert | None:
    """Return the alert after its recovery was sent; None if it has expired."""
    expires = _end(alert.sent, config, config.cooldown)
    if expires <= now:
        return None
    return msgspec.structs.replace(alert, phase=Phase.CLOSED, expires=expires, is_closing=False, recovery="")


def _is_recent(alert: Alert, at: int, now: float, config: AlertsConfig) -> bool:
    ages = (now - alert.sent, (at - alert.sent_at) / 1000)
    return all(0 <= age < config.cooldown for age in ages)


def _end(sent: float, config: AlertsConfig, least: float = 0.0) -> float:
    return sent + max(config.expires_after, least) + config.clock_tolerance
