"""Store of alerts: decides which events are sent, and remembers the alerts in memory and in files.

The file of an alert applies, because other drivers may change it: they open, count and close alerts of the same work.
What this process could not write applies as long as the file still has the content that the process wanted to replace.
Without a folder, for example in a container or without a home directory, the store works in memory, and a new run does
not know the alerts of earlier runs.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from spark_events.event import Event, decode_event, encode_event
from spark_events.reporters.webhook.alerts import states
from spark_events.reporters.webhook.alerts.files import AlertFiles
from spark_events.reporters.webhook.alerts.incident import identity_of, is_alert, key_of, kind_of, more_keys_of
from spark_events.reporters.webhook.alerts.states import Alarm, Alert, AlertsConfig, Phase

__all__ = ["Alerts", "Notice"]

_LOG = logging.getLogger(__name__)
#: Kinds of incidents whose events do not report further occurrences while the alert is open.
_LASTING = ("overdue", "reporter")
#: Rounding error of times that are converted from one clock to another, in seconds.
_RESOLUTION = 0.001


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

    def identity(self, key: str) -> Mapping[str, str]:
        """Return the identifying attributes of an alert: those of its first event if it is known."""
        return self.known[key].identity if key in self.known else identity_of(self.event)


class _Kept(NamedTuple):
    """Alert in memory.

    Attributes:
        alert: the alert; None if it is closed.
        over: content of the file that this alert replaces; None for no file. If the file has another content, another
            driver has written it, and the file applies.
        is_own: whether this process has changed the alert.
    """

    alert: Alert | None
    over: bytes | None
    is_own: bool


class Alerts:
    """Alerts of one destination.

    Args:
        files: files of the alerts; None: keep the alerts only in memory.
        config: limits.
        monotonic: clock of this process, in seconds.
        wall: seconds since the epoch; only for times in files and requests.
    """

    def __init__(
        self,
        files: AlertFiles | None,
        config: AlertsConfig,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._files = files
        self._config = config
        self._monotonic = monotonic
        self._wall = wall
        self._kept: dict[str, _Kept] = {}
        # Keys of alerts whose recovery is deferred, and of alerts whose file could not be written.
        self._deferred: dict[str, None] = {}
        self._unwritten: dict[str, None] = {}
        # Operations that have failed and were logged.
        self._warned: set[str] = set()

    def open(self) -> None:
        """Delete expired files, and adopt recoveries that an earlier process deferred."""
        if self._files is None:
            return
        try:
            paths = list(self._files.paths())
        except OSError as error:
            self._warn_once("read", error)
            return
        for path in paths:
            try:
                loaded = self._files.load(path)
                if loaded is None:
                    continue
                content, modified = loaded
                alert = self._decoded(content)
                damaged_for = self._wall() - modified - self._config.clock_tolerance
                is_mine = alert is not None and path == self._files.path(alert.key)
                if alert is not None and is_mine and alert.phase is Phase.RECOVERED:
                    self._keep(alert.key, _Kept(alert, content, False))
                elif damaged_for >= self._config.expires_after if alert is None else self._is_expired(alert):
                    self._files.delete(path)
            except OSError as error:
                self._warn_once("delete", error)

    def notice(self, event: Event) -> Notice | None:
        """Return the notice for an event; None if the event is only counted, or its recovery is deferred.

        After the destination has accepted the notice, call :meth:`accepted`. Without that call, the same event has the
        same notice again.
        """
        self.write_again()
        if event.attributes.get("incident.role") == "recovery":
            return self._recovery(event)
        return self._alarm(event)

    def accepted(self, notice: Notice, keys: tuple[str, ...]) -> None:
        """Store that the destination has accepted the part of a notice that concerns these keys."""
        for key in keys:
            if not notice.is_recovery:
                self._put(key, notice.known[key])
            elif (alert := self._find(key)) is not None and alert.phase is not Phase.CLOSED:
                self._put(key, states.closed(alert, self._monotonic(), self._config))

    def is_open(self, key: str) -> bool:
        """Return whether an alert is known to be open at the destination."""
        alert = self._find(key)
        return alert is not None and alert.phase is not Phase.CLOSED

    def next_due(self) -> float | None:
        """Return the seconds until the next deferred recovery; None if no recovery is deferred."""
        return min((self._quiet_in(key) for key in self._deferred), default=None)

    def due(self, everything: bool = False) -> list[Notice]:
        """Return the deferred recoveries that are due.

        Args:
            everything: also return those that are not due yet, because the reporter closes.
        """
        chosen = [key for key in self._deferred if everything or self._quiet_in(key) <= 0]
        return [notice for key in chosen if (notice := self._deferred_notice(key)) is not None]

    def write_again(self) -> None:
        """Write the files that could not be written before."""
        for key in list(self._unwritten):
            kept = self._kept.get(key)
            if kept is None or self._read(key, kept) != kept.over:
                # Another driver has changed the file in the meantime.
                del self._unwritten[key]
            elif not self._put(key, kept.alert):
                return

    def _alarm(self, event: Event) -> Notice | None:
        key, now = key_of(event), self._monotonic()
        alarm = Alarm(
            key,
            event.event_id,
            event.observed_ts_millis,
            event.severity.number,
            identity_of(event),
            kind_of(key) not in _LASTING,
        )
        before = self._find(key)
        after, tells = states.failed(before, alarm, now, self._config)
        if after is before:
            return None
        if not tells:
            was_own = key in self._kept and self._kept[key].is_own
            if self._put(key, after) or was_own:
                return None
            # The file of another process may be out of date, because the folder cannot be written.
            after = states.told(after, alarm.at, now, self._config)
        expires = max(self._wall(), event.observed_ts_millis / 1000) + after.expires - now
        has_end = is_alert(event) and bool(event.attributes.get("incident.key"))
        return Notice(event, (key,), {key: after}, now, can_close=has_end, expires_ms=round(expires * 1000))

    def _recovery(self, event: Event) -> Notice | None:
        known: dict[str, Alert] = {}
        others: list[str] = []
        for key in dict.fromkeys((key_of(event), *more_keys_of(event))):
            alert = self._find(key)
            if alert is None or alert.phase is Phase.CLOSED:
                others.append(key)
            elif alert.phase is Phase.OPEN and alert.flaps:
                self._put(key, states.deferred(alert, _recovery_of(event, key), self._monotonic()))
            elif alert.phase is Phase.OPEN:
                known[key] = self._closing(alert)
        if not known and not others:
            return None
        return Notice(event, (*known, *others), known, self._monotonic(), is_recovery=True)

    def _deferred_notice(self, key: str) -> Notice | None:
        alert = self._find(key)
        if alert is None or alert.phase is not Phase.RECOVERED:
            # Another driver has reported a failure, or has sent the recovery.
            self._deferred.pop(key, None)
            return None
        event = decode_event(alert.recovery.encode())
        return Notice(event, (key,), {key: self._closing(alert)}, self._monotonic(), is_recovery=True)

    def _closing(self, alert: Alert) -> Alert:
        """Note in the file that a request closes the alert, because this process or another may die meanwhile."""
        if not alert.is_closing:
            alert = states.closing(alert)
            self._put(alert.key, alert)
        return alert

    def _quiet_in(self, key: str) -> float:
        alert = self._kept[key].alert
        assert alert is not None
        return states.quiet_in(alert, self._monotonic(), self._config)

    def _find(self, key: str) -> Alert | None:
        """Return the current alert of a key; None if there is none or it has expired."""
        kept = self._kept.get(key)
        content = self._read(key, kept)
        if kept is None or content != kept.over:
            kept = _Kept(None if content is None else self._decoded(content), content, False)
            self._keep(key, kept)
        alert = kept.alert
        return None if alert is None or self._is_expired(alert) else alert

    def _is_expired(self, alert: Alert) -> bool:
        return alert.expires <= self._monotonic() and alert.phase is not Phase.RECOVERED

    def _read(self, key: str, kept: _Kept | None) -> bytes | None:
        """Return the content of a file; if it cannot be read, the content that the alert in memory replaces."""
        try:
            return None if self._files is None else self._files.read(key)
        except OSError as error:
            self._warn_once("read", error)
            return None if kept is None else kept.over

    def _put(self, key: str, alert: Alert | None) -> bool:
        """Change an alert in memory and in its file; return whether the file was changed."""
        content, error = self._written(key, alert)
        self._unwritten.pop(key, None)
        if error is not None:
            self._unwritten[key] = None
        self._keep(key, _Kept(alert, content, True))
        return error is None

    def _written(self, key: str, alert: Alert | None) -> tuple[bytes | None, OSError | None]:
        """Write or delete a file; return the content of the file afterwards, and the error if that failed."""
        if self._files is None:
            return None, None
        failure: OSError | None = None
        if alert is not None:
            content = msgspec.json.encode(_moved(alert, self._offset()))
            try:
                self._files.write(key, content)
            except OSError as error:
                self._warn_once("store", error)
                failure = error
            else:
                return content, None
        if alert is None or alert.phase is Phase.CLOSED:
            # A closed alert must not stay open in its file. A file can be deleted even if the disk is full.
            try:
                self._files.delete(self._files.path(key))
            except OSError as error:
                self._warn_once("delete", error)
                failure = error
            else:
                return None, None
        return self._read(key, self._kept.get(key)), failure

    def _keep(self, key: str, kept: _Kept) -> None:
        self._kept.pop(key, None)
        self._deferred.pop(key, None)
        if kept.alert is None and kept.over is None:
            return
        self._kept[key] = kept
        if kept.alert is not None and kept.alert.phase is Phase.RECOVERED:
            self._deferred[key] = None
        if len(self._kept) > self._config.most_known:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._deferred.pop(oldest, None)
            self._unwritten.pop(oldest, None)

    def _decoded(self, content: bytes) -> Alert | None:
        """Return the alert in a file, with its times by the clock of this process; None for a damaged file."""
        try:
            alert = _moved(msgspec.json.decode(content, type=Alert), -self._offset())
        except msgspec.DecodeError as error:
            self._warn_once("read", error)
            return None
        now = self._monotonic()

        def past(moment: float) -> float:
            # A time in the future was written by a machine whose clock is ahead, or before the clock was set back. Its
            # age is unknown, so the cooldown counts as over.
            return min(moment, now) if moment <= now + _RESOLUTION else now - self._config.cooldown

        return msgspec.structs.replace(
            alert, since=min(alert.since, now), told=past(alert.told), quiet_since=past(alert.quiet_since)
        )

    def _offset(self) -> float:
        return self._wall() - self._monotonic()

    def _warn_once(self, verb: str, error: Exception) -> None:
        if verb not in self._warned:
            self._warned.add(verb)
            _LOG.warning(
                "cannot %s files of alerts: %s; this process keeps its alerts in memory, but after a restart an alert"
                " may be sent twice, or stay open in a chat; check the files and the permissions of %s",
                verb,
                error,
                None if self._files is None else self._files.folder,
            )


def _moved(alert: Alert, seconds: float) -> Alert:
    """Return the alert with all times moved to another clock."""
    return msgspec.structs.replace(
        alert,
        since=alert.since + seconds,
        told=alert.told + seconds,
        quiet_since=alert.quiet_since + seconds,
        expires=alert.expires + seconds,
    )


def _recovery_of(event: Event, key: str) -> str:
    """Return the recovery of one alert as JSON."""
    attributes = {name: value for name, value in event.attributes.items() if name != "incident.more_keys"}
    about = type(event.attributes)({**attributes, "incident.key": key})
    return encode_event(msgspec.structs.replace(event, attributes=about)).decode()
