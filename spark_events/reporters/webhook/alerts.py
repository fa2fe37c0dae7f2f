"""Alerts: which events open or close an alert, and which notices are sent.

Each open alert has a small file, from which the next run of the application restores the alert and its cooldown.
Without these files, for example in a container or without a home directory, a new run does not know the alerts of
earlier runs. A chat then receives no message when such an alert recovers; other formats are not affected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
import time
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import msgspec

from spark_events.event import Event

__all__ = ["Alerts", "Notice", "OpenAlert"]

_LOG = logging.getLogger(__name__)
_SECONDS = 1_000
#: Names of the files of alerts; see :meth:`Alerts._path`. The folder may contain other files.
_FILE = re.compile(r"[0-9a-f]{32}\.json")


class OpenAlert(msgspec.Struct, frozen=True):
    """State of an open alert.

    Attributes:
        key: the key of the alert's incident.
        since: time of the alert's first event, in milliseconds since the epoch.
        sent: time of the last event that was sent.
        count: number of events since the alert was opened.
        severity: number of the highest severity that was sent.
        last: id of the last event, so that a repeated delivery is not counted.
        expires: in a file, the time at which the alert expires, in milliseconds since the epoch. Reporters with
            different settings may share the folder.
    """

    key: str
    since: int
    sent: int
    count: int
    severity: int
    last: str
    expires: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """Event to send, with the alert that it opens or closes; without an alert, a plain message.

    Attributes:
        keys: keys of the alerts that the event opens or closes; empty for a plain message.
        is_recovery: whether the event closes these alerts.
        known: state of the open alerts, including this event. A recovery may also close alerts without a known state.
        can_close: whether an event will close the alert.
    """

    event: Event
    keys: tuple[str, ...]
    is_recovery: bool = False
    known: Mapping[str, OpenAlert] = dataclasses.field(default_factory=dict)
    can_close: bool = True

    @property
    def was(self) -> OpenAlert | None:
        """State of the first known alert."""
        return next(iter(self.known.values()), None)


class Alerts:
    """Open alerts of one destination.

    Args:
        destination: string that identifies the destination; confidential, so only a hash of it is stored.
        folder: folder of the files; None: keep the alerts only in memory.
        cooldown: time in which a repeated event of an open alert is only counted, in seconds.
        expires_after: time until an open alert expires, in seconds, if no event closes it.
        most_known: maximum number of alerts in memory; beyond that, the alert with the oldest change is forgotten.
    """

    def __init__(
        self,
        destination: str,
        folder: Path | None,
        cooldown: float,
        expires_after: float,
        most_known: int = 10_000,
    ) -> None:
        self._destination = destination
        self._folder = folder
        self._cooldown = round(cooldown * _SECONDS)
        self._expires = round(expires_after * _SECONDS)
        self._most_known = most_known
        self._known: dict[str, OpenAlert] = {}
        # Operations that have failed and were logged.
        self._warned: set[str] = set()

    def notice(self, event: Event) -> Notice | None:
        """Return the notice for an alarm or a recovery.

        The result is None during the cooldown, in which alarms are only counted.
        """
        attributes = event.attributes
        role, key = attributes.get("incident.role"), str(attributes.get("incident.key", ""))
        if role == "recovery":
            keys = (key, *_more(attributes.get("incident.more_keys")))
            found = {one: known for one in keys if (known := self._find(one, event)) is not None}
            return Notice(event, keys, is_recovery=True, known=found)
        can_close = role == "alarm" and bool(key)
        if not can_close:
            # Events without an incident, for example those of the user's program, share one alert per event name.
            key = f"{attributes.get('spark.app.name') or attributes.get('spark.app.id') or 'spark'}/{event.name}"
        at, number = event.observed_ts_millis, event.severity.number
        known = self._find(key, event)
        if known is None:
            was = OpenAlert(key, at, at, 1, number, event.event_id)
        elif known.last == event.event_id:
            if known.sent != at:
                return None
            was = known
        elif at - known.sent < self._cooldown and number <= known.severity:
            self._store(msgspec.structs.replace(known, count=known.count + 1, last=event.event_id))
            return None
        else:
            number = max(number, known.severity)
            was = OpenAlert(key, known.since, at, known.count + 1, number, event.event_id)
        return Notice(event, (key,), known={key: was}, can_close=can_close)

    def sent(self, notice: Notice) -> None:
        """Update the stored alerts after the destination has accepted a notice.

        An open alert is stored; closed alerts are deleted.
        """
        if notice.is_recovery:
            for key in notice.keys:
                self._known.pop(key, None)
                if self._folder is not None:
                    try:
                        self._path(self._folder, key).unlink(missing_ok=True)
                    except OSError as error:
                        self._warn_once("delete", error)
        elif notice.was is not None:
            self._store(notice.was)

    def forget_expired(self) -> None:
        """Delete the files of alerts that have expired without a closing event."""
        if self._folder is None:
            return
        now = time.time()
        try:
            for path in self._folder.glob("*.json"):
                # Another driver may delete the file at the same time.
                with contextlib.suppress(FileNotFoundError):
                    is_old = _FILE.fullmatch(path.name) and path.stat().st_mtime < now - self._expires / _SECONDS
                    if is_old and _expires(path) <= now * _SECONDS:
                        path.unlink()
        except OSError as error:
            self._warn_once("delete", error)

    def _find(self, key: str, event: Event) -> OpenAlert | None:
        known = self._known.get(key)
        if self._folder is not None:
            try:
                known = msgspec.json.decode(self._path(self._folder, key).read_bytes(), type=OpenAlert)
            except (FileNotFoundError, NotADirectoryError):
                pass
            except (OSError, msgspec.DecodeError) as error:
                self._warn_once("read", error)
        is_open = known is not None and event.observed_ts_millis - known.sent < self._expires
        return known if is_open else None

    def _store(self, alert: OpenAlert) -> None:
        self._known.pop(alert.key, None)
        self._known[alert.key] = alert
        if len(self._known) > self._most_known:
            del self._known[next(iter(self._known))]
        if self._folder is None:
            return
        path = self._path(self._folder, alert.key)
        written = path.with_suffix(f".{os.getpid()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            written.write_bytes(msgspec.json.encode(msgspec.structs.replace(alert, expires=alert.sent + self._expires)))
            # Replace the file atomically, so that a reader gets either the old or the new file.
            written.replace(path)
        except OSError as error:
            self._warn_once("store", error)

    def _warn_once(self, verb: str, error: Exception) -> None:
        if verb not in self._warned:
            self._warned.add(verb)
            _LOG.warning(
                "cannot %s open alerts: %s; an alert may be sent twice, or be suppressed during the cooldown after "
                "its recovery; check the files and the permissions of %s",
                verb,
                error,
                self._folder,
            )

    def _path(self, folder: Path, key: str) -> Path:
        name = blake2b(f"{self._destination}\0{key}".encode("utf-8", "replace"), digest_size=16).hexdigest()
        return folder / f"{name}.json"


def _expires(path: Path) -> int:
    """Return the time at which the alert in a file expires; 0 for a damaged file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=OpenAlert).expires
    except msgspec.DecodeError:
        return 0


def _more(text: object) -> tuple[str, ...]:
    try:
        return tuple(msgspec.json.decode(str(text or "[]"), type=list[str]))
    except msgspec.DecodeError:
        # An event of the user's program has no incident.
        return ()
