"""Alerts in memory and in files: which of both applies.

The file of an alert applies, because other drivers may change it: they open, count and close alerts of the same work.
What this process could not write applies as long as the file still has the content that the process wanted to replace.
Without a folder, for example in a container or without a home directory, only the memory applies, and a new run does
not know the alerts of earlier runs. The files of closed alerts count how often an alert was open. A process deletes
expired files when it opens the folder, and then once a day.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from spark_events.reporters.alerts.alert_files import AlertFiles
from spark_events.reporters.alerts.states import Alert, AlertsConfig, Phase

__all__ = ["AlertMemory"]

_LOG = logging.getLogger(__name__)
#: Interval at which a process deletes expired files, in seconds.
_CLEAN_UP = 86_400.0
#: Rounding error of times that are converted from one clock to another, in seconds.
_RESOLUTION = 0.001


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


class AlertMemory:
    """Alerts of one destination, by key.

    Args:
        files: files of the alerts; None: keep the alerts only in memory.
        config: limits.
        monotonic: clock of this process, in seconds; the times of all alerts in memory are by this clock.
        wall: seconds since the epoch; only for times in files and requests.

    Attributes:
        now: the clock ``monotonic``.
    """

    def __init__(
        self,
        files: AlertFiles | None,
        config: AlertsConfig,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.now = monotonic
        self._wall = wall
        self._files = files
        self._config = config
        self._kept: dict[str, _Kept] = {}
        # Keys of alerts whose recovery is deferred, of closed alerts, and of alerts whose file could not be written.
        self._deferred: dict[str, None] = {}
        self._closed: dict[str, None] = {}
        self._unwritten: dict[str, None] = {}
        # Operations that have failed and were logged.
        self._warned: set[str] = set()
        self._cleaned_up = monotonic()

    def open(self) -> None:
        """Delete expired files, and adopt recoveries that an earlier process deferred."""
        self._clean_up(adopts=True)

    @property
    def deferred(self) -> Collection[str]:
        """Keys of the alerts whose recovery is deferred."""
        return self._deferred.keys()

    def is_own(self, key: str) -> bool:
        """Return whether this process has made the last known change of an alert."""
        return key in self._kept and self._kept[key].is_own

    def peek(self, key: str) -> Alert | None:
        """Return the last known state of an alert, without a look at its file."""
        return self._kept[key].alert if key in self._kept else None

    def find(self, key: str) -> Alert | None:
        """Return the current state of an alert; None if there is none or it has expired."""
        kept = self._kept.get(key)
        content = self._read(key, kept)
        if kept is None or content != kept.over:
            kept = _Kept(None if content is None else self._decoded(content), content, False)
            self._keep(key, kept)
        alert = kept.alert
        return None if alert is None or self._is_expired(alert) else alert

    def put(self, key: str, alert: Alert | None) -> bool:
        """Change an alert; return whether its file was changed."""
        content, error = self._written(key, alert)
        self._unwritten.pop(key, None)
        if error is not None:
            self._unwritten[key] = None
        self._keep(key, _Kept(alert, content, True))
        if self.now() - self._cleaned_up >= _CLEAN_UP:
            self._clean_up(adopts=False)
        return error is None

    def write_again(self) -> None:
        """Write the files that could not be written before."""
        for key in list(self._unwritten):
            kept = self._kept.get(key)
            if kept is None or self._read(key, kept) != kept.over:
                # Another driver has changed the file in the meantime.
                del self._unwritten[key]
            elif not self.put(key, kept.alert):
                return

    def wall_time(self, moment: float) -> float:
        """Return a time of this process's clock in seconds since the epoch."""
        return moment + self._wall() - self.now()

    def _clean_up(self, adopts: bool) -> None:
        self._cleaned_up = self.now()
        if self._files is None:
            return
        try:
            for path in list(self._files.paths()):
                self._adopt_or_delete(self._files, path, adopts)
        except OSError as error:
            self._warn_once("read", error)

    def _adopt_or_delete(self, files: AlertFiles, path: Path, adopts: bool) -> None:
        try:
            loaded = files.load(path)
            if loaded is None:
                return
            content, modified = loaded
            alert = self._decoded(content)
            if alert is None:
                is_expired = self._wall() - modified >= self._config.expires_after + self._config.clock_tolerance
            elif alert.phase is Phase.RECOVERED and path == files.path(alert.key):
                if adopts:
                    self._keep(alert.key, _Kept(alert, content, False))
                return
            else:
                # If the file could not be replaced, the newer alert in memory applies as long as the file exists.
                is_expired = alert.expires <= self.now() and alert.key not in self._unwritten
            if is_expired:
                files.delete(path)
        except OSError as error:
            self._warn_once("delete", error)

    def _is_expired(self, alert: Alert) -> bool:
        # A deferred recovery is sent however late.
        return alert.expires <= self.now() and alert.phase is not Phase.RECOVERED

    def _read(self, key: str, kept: _Kept | None) -> bytes | None:
        """Return the content of a file; if it cannot be read, the content that the alert in memory replaces."""
        try:
            return None if self._files is None else self._files.read(key)
        except OSError as error:
            self._warn_once("read", error)
            return None if kept is None else kept.over

    def _written(self, key: str, alert: Alert | None) -> tuple[bytes | None, OSError | None]:
        """Write or delete a file; return the content of the file afterwards, and the error if that failed."""
        if self._files is None:
            return None, None
        failure: OSError | None = None
        if alert is not None:
            content = msgspec.json.encode(_moved(alert, self.wall_time(0.0)))
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
        self._closed.pop(key, None)
        if kept.alert is None and kept.over is None:
            return
        self._kept[key] = kept
        if kept.alert is not None and kept.alert.phase is Phase.RECOVERED:
            self._deferred[key] = None
        if kept.alert is not None and kept.alert.phase is Phase.CLOSED:
            self._closed[key] = None
        if len(self._kept) > self._config.most_known:
            oldest = next(iter(self._closed or self._kept))
            del self._kept[oldest]
            self._closed.pop(oldest, None)
            self._deferred.pop(oldest, None)
            self._unwritten.pop(oldest, None)

    def _decoded(self, content: bytes) -> Alert | None:
        """Return the alert in a file, with its times by the clock of this process; None for a damaged file."""
        try:
            alert = _moved(msgspec.json.decode(content, type=Alert), -self.wall_time(0.0))
        except msgspec.DecodeError as error:
            self._warn_once("read", error)
            return None
        now = self.now()

        def past(moment: float) -> float:
            # A time in the future was written by a machine whose clock is ahead, or before the clock was set back. Its
            # age is unknown, so the cooldown counts as over.
            return min(moment, now) if moment <= now + _RESOLUTION else now - self._config.cooldown

        return msgspec.structs.replace(
            alert, since=min(alert.since, now), sent=past(alert.sent), quiet_since=past(alert.quiet_since)
        )

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
        sent=alert.sent + seconds,
        quiet_since=alert.quiet_since + seconds,
        expires=alert.expires + seconds,
    )
