"""Store of alerts: decides which events are sent, counted or deferred."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec

from spark_events.event import Event, decode_event, encode_event
from spark_events.reporters.alerts import states
from spark_events.reporters.alerts.alert_memory import AlertMemory
from spark_events.reporters.alerts.incident import identity_of, is_alert, key_of, kind_of, more_keys_of
from spark_events.reporters.alerts.states import Alarm, Alert, AlertsConfig, Phase

__all__ = ["Alerts", "Notice"]

#: Kinds of incidents whose events do not report further occurrences while the alert is open.
_LASTING = ("overdue", "reporter")


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """Event to send, with the alerts that it opens or closes.

    Attributes:
        keys: keys of the alerts that the event opens or closes; the keys of open alerts come first.
        is_recovery: whether the event closes these alerts.
        known: the known open alerts, including this event. A recovery may also close unknown alerts.
        can_close: whether an event will close the alert.
        now: time of the notice, by the clock of ``known``.
        expires_ms: when the alert ends if no event closes it, in milliseconds since the epoch.
    """

    event: Event
    keys: tuple[str, ...]
    known: Mapping[str, Alert]
    now: float
    is_recovery: bool = False
    can_close: bool = True
    expires_ms: int = 0

    @property
    def was(self) -> Alert | None:
        """The first known alert."""
        return next(iter(self.known.values()), None)

    @property
    def minutes(self) -> int:
        """Minutes since the first event of the first known alert.

        The events may arrive late, or the driver's clock may have been set back, so take the longer of both times.
        """
        if self.was is None:
            return 0
        by_event = (self.event.observed_ts_millis - self.was.since_at) / 1000
        return round(max(0.0, self.now - self.was.since, by_event)) // 60

    def identity(self, key: str) -> Mapping[str, str]:
        """Return the identifying attributes of an alert: those of its first event if it is known."""
        return self.known[key].identity if key in self.known else identity_of(self.event)


class Alerts:
    """Alerts of one destination.

    Args:
        memory: the known alerts.
        config: limits.
    """

    def __init__(self, memory: AlertMemory, config: AlertsConfig) -> None:
        self._memory = memory
        self._config = config

    def open(self) -> None:
        """Adopt the alerts of earlier processes."""
        self._memory.open()

    def write_again(self) -> None:
        """Write the files that could not be written before."""
        self._memory.write_again()

    def notice(self, event: Event) -> Notice | None:
        """Return the notice for an event; None if the event is only counted, or its recovery is deferred.

        After the destination has accepted the notice, call :meth:`accepted`. Without that call, the same event has the
        same notice again.
        """
        self._memory.write_again()
        if event.attributes.get("incident.role") == "recovery":
            return self._recovery(event)
        return self._alarm(event)

    def accepted(self, notice: Notice, keys: tuple[str, ...]) -> None:
        """Store that the destination has accepted the part of a notice that concerns these keys."""
        for key in keys:
            if not notice.is_recovery:
                self._memory.put(key, notice.known[key])
            elif (alert := self._memory.find(key)) is not None and alert.phase is not Phase.CLOSED:
                self._memory.put(key, states.closed(alert, self._memory.now(), self._config))

    def is_open(self, key: str) -> bool:
        """Return whether an alert is known to be open at the destination."""
        alert = self._memory.find(key)
        return alert is not None and alert.phase is not Phase.CLOSED

    def next_due(self) -> float | None:
        """Return the seconds until the next deferred recovery; None if no recovery is deferred."""
        return min((self._quiet_in(key) for key in self._memory.deferred), default=None)

    def due(self, is_closing: bool = False) -> list[Notice]:
        """Return the deferred recoveries that are due.

        Args:
            is_closing: whether the reporter closes. Then all recoveries that this process has deferred are due, but not
                those of other processes, whose work may still flap.
        """
        notices = []
        for key in list(self._memory.deferred):
            alert = self._memory.find(key)
            if alert is None or alert.phase is not Phase.RECOVERED:
                # Another driver has reported a failure, or has sent the recovery.
                continue
            if (is_closing and self._memory.is_own(key)) or self._quiet_in(key) <= 0:
                event = decode_event(alert.recovery.encode())
                known = {key: self._closing(alert)}
                notices.append(Notice(event, (key,), known, self._memory.now(), is_recovery=True))
        return notices

    def _alarm(self, event: Event) -> Notice | None:
        key, now = key_of(event), self._memory.now()
        alarm = Alarm(
            key,
            event.event_id,
            event.observed_ts_millis,
            event.severity.number,
            identity_of(event),
            kind_of(key) not in _LASTING,
        )
        before = self._memory.find(key)
        after, is_sent = states.failed(before, alarm, now, self._config)
        if after is before:
            return None
        if not is_sent:
            was_own = self._memory.is_own(key)
            if self._memory.put(key, after) or was_own:
                return None
            # The file of another process may be out of date, because the folder cannot be written.
            after = states.notified(after, alarm.at, now, self._config)
        behind = max(0.0, event.observed_ts_millis / 1000 - self._memory.wall_time(now))
        expires = self._memory.wall_time(after.expires) + behind
        has_end = is_alert(event) and bool(event.attributes.get("incident.key"))
        return Notice(event, (key,), {key: after}, now, can_close=has_end, expires_ms=round(expires * 1000))

    def _recovery(self, event: Event) -> Notice | None:
        known: dict[str, Alert] = {}
        others: list[str] = []
        for key in dict.fromkeys((key_of(event), *more_keys_of(event))):
            alert = self._memory.find(key)
            if alert is None or alert.phase is Phase.CLOSED:
                others.append(key)
            elif alert.phase is Phase.OPEN and alert.flaps:
                self._memory.put(key, states.deferred(alert, _recovery_of(event, key), self._memory.now()))
            elif alert.phase is Phase.OPEN:
                known[key] = self._closing(alert)
        if not known and not others:
            return None
        return Notice(event, (*known, *others), known, self._memory.now(), is_recovery=True)

    def _closing(self, alert: Alert) -> Alert:
        """Note in the file that a request closes the alert, because this process or another may die meanwhile."""
        if not alert.is_closing:
            alert = states.closing(alert)
            self._memory.put(alert.key, alert)
        return alert

    def _quiet_in(self, key: str) -> float:
        alert = self._memory.peek(key)
        assert alert is not None
        return states.quiet_in(alert, self._memory.is_own(key), self._memory.now(), self._config)


def _recovery_of(event: Event, key: str) -> str:
    """Return the recovery of one alert as JSON."""
    attributes = {name: value for name, value in event.attributes.items() if name != "incident.more_keys"}
    about = type(event.attributes)({**attributes, "incident.key": key})
    return encode_event(msgspec.structs.replace(event, attributes=about)).decode()
