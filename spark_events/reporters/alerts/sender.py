"""Sender of alerts: one request after another, deferred recoveries when they are due."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from spark_events.event import Event, Severity, without_surrogates
from spark_events.reporters.alerts.alert_requests import AlertFormat
from spark_events.reporters.alerts.incident import is_alarm, is_alert, is_detail, key_of, member_of, more_keys_of
from spark_events.reporters.alerts.store import Alerts, Notice
from spark_events.reporters.batch_progress import RefusedError
from spark_events.reporters.reporter import Rest

__all__ = ["AlertSender", "SenderConfig"]

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class SenderConfig:
    """Limits for requests that the sender itself starts; times in seconds.

    Attributes:
        least: lowest severity of events to send; events that close an alert are exempt.
        timeout: time limit of a request for a deferred recovery.
        retry_after: pause after such a request has failed.
        together: time after a message about failures in which further ones are collected, if the format has a request
            for several alerts.
    """

    least: Severity = Severity.ERROR
    timeout: float = 10.0
    retry_after: float = 30.0
    together: float = 60.0


@dataclasses.dataclass(slots=True)
class _Progress:
    """Progress with one event, whose requests may need several attempts.

    Attributes:
        settled: keys whose requests the destination has accepted or refused.
        refused: the last refusal.
    """

    event_id: str
    settled: set[str] = dataclasses.field(default_factory=set)
    refused: RefusedError | None = None


class AlertSender:
    """Send the alerts of one destination.

    Args:
        form: converts alerts to requests.
        alerts: decides what is sent.
        post: sends the body of one request; returns if the destination has accepted it.
        config: limits.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        form: AlertFormat,
        alerts: Alerts,
        post: Callable[[bytes], Awaitable[None]],
        config: SenderConfig,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._form = form
        self._alerts = alerts
        self._post = post
        self._config = config
        self._sleep = sleep
        # The timer of deferred recoveries and the reporter's thread must not change the alerts concurrently.
        self._lock = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None
        # A retry of the same event continues with the remaining requests.
        self._progress = _Progress("")
        # Highest severity of the alarms of this batch that were sent.
        self._highest_sent: Severity | None = None

    @property
    def rest(self) -> Rest:
        """How long further events wait after this batch, so that a chat receives one list instead of many messages."""
        if self._highest_sent is None or not self._form.is_for_people:
            return Rest()
        return Rest(self._config.together, self._highest_sent)

    def open(self) -> None:
        """Adopt the alerts of earlier processes; call this in the event loop."""
        self._alerts.open()
        self._start_timer()

    def parts(self, events: Sequence[Event]) -> list[Sequence[Event]]:
        """Return the parts of a batch in reverse order: one per request.

        Alarms are one part if the format has a request for several alerts, and so are recoveries. Events about the
        failure of an alarm are skipped, if the format sends every event as an alert or the alarm is in the batch.
        """
        self._highest_sent = None
        whole = [without_surrogates(event) for event in events]
        if self._form.plain is None:
            whole = [event for event in whole if not is_detail(event)]
        else:
            alarms = {key_of(event) for event in whole if is_alarm(event)}
            whole = [event for event in whole if member_of(event) not in alarms]
        parts: list[list[Event]] = []
        for event in whole:
            part = self._list_for(event, parts) if is_alert(event) else self._plain_for(parts)
            if part is None:
                parts.append([event])
            else:
                part.append(event)
        return list(parts[::-1])

    def _list_for(self, alert: Event, parts: Sequence[list[Event]]) -> list[Event] | None:
        """Return the first list that an alarm or a recovery may join: no later part is about the same alert."""
        if self._form.several is None:
            return None
        found, keys = None, _keys_of(alert)
        for part in reversed(parts):
            if not is_alert(part[0]):
                continue
            if any(not keys.isdisjoint(_keys_of(one)) for one in part):
                break
            if is_alarm(part[0]) is is_alarm(alert):
                found = part
        return found

    def _plain_for(self, parts: Sequence[list[Event]]) -> list[Event] | None:
        """Return the last part if an event that is not an alert may join it."""
        if self._form.plain is None or not parts or is_alert(parts[-1][0]):
            return None
        return parts[-1] if len(parts[-1]) < self._form.most else None

    async def send(self, events: Sequence[Event]) -> None:
        """Send one part of a batch; a repeated call after an error continues where the error occurred.

        Raises:
            Exception: the destination did not accept a request.
        """
        try:
            async with self._lock:
                if self._form.plain is None or is_alert(events[0]):
                    await self._send_alerts(events)
                else:
                    await self._send_plain(events)
        finally:
            self._start_timer()

    async def close(self) -> None:
        """Send the recoveries that this process has deferred; what fails remains in the files."""
        await self.release()
        async with self._lock:
            self._alerts.write_again()
            await self._send_deferred(self._alerts.due(is_closing=True))

    async def release(self) -> None:
        """Stop the timer of deferred recoveries, and send nothing."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            await asyncio.wait([timer])

    async def _send_alerts(self, events: Sequence[Event]) -> None:
        if len(events) > 1 and self._form.several is not None:
            notices = [notice for event in events if (notice := self._alerts.notice(event)) is not None]
            # Of a recovery without a known open alert, nothing was said before.
            listed = [notice for notice in notices if notice.known]
            if len(listed) > 1:
                await self._post(_encoded(self._form.several(listed)))
                for notice in listed:
                    self._accepted(notice, notice.keys)
                notices = [notice for notice in notices if not notice.known]
            events = [notice.event for notice in notices]
        for event in events:
            await self._send_alert(event)

    async def _send_alert(self, event: Event) -> None:
        notice = self._alerts.notice(event)
        if notice is None:
            return
        if self._form.is_for_people and notice.is_recovery and not notice.known:
            # No open alert is known, so send a plain message, unless the severity filter excludes the event.
            if self._form.plain is not None and event.severity >= self._config.least:
                await self._send_plain([event])
            return
        if self._progress.event_id != event.event_id:
            self._progress = _Progress(event.event_id)
        await self._send_notice(notice, self._progress, self._post)

    async def _send_notice(self, notice: Notice, progress: _Progress, post: Callable[[bytes], Awaitable[None]]) -> None:
        for request in self._form.requests(notice):
            if progress.settled.issuperset(request.keys):
                continue
            try:
                await post(_encoded(request.body))
            except RefusedError as error:
                # Continue, because the other keys must be closed too.
                progress.refused = error
            else:
                self._accepted(notice, request.keys)
            progress.settled.update(request.keys)
        progress.event_id = ""
        if progress.refused is not None:
            raise progress.refused

    def _accepted(self, notice: Notice, keys: tuple[str, ...]) -> None:
        self._alerts.accepted(notice, keys)
        if not notice.is_recovery:
            severity = notice.event.severity
            self._highest_sent = severity if self._highest_sent is None else max(severity, self._highest_sent)

    async def _send_plain(self, events: Sequence[Event]) -> None:
        assert self._form.plain is not None
        # A failure that belongs to an open alert is part of that alert.
        others = [event for event in events if not ((key := member_of(event)) and self._alerts.is_open(key))]
        if others:
            await self._post(_encoded(self._form.plain(others)))

    def _start_timer(self) -> None:
        if self._alerts.next_due() is not None and (self._timer is None or self._timer.done()):
            self._timer = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        while (left := self._alerts.next_due()) is not None:
            await self._sleep(left)
            async with self._lock:
                is_done = await self._send_deferred(self._alerts.due())
            if not is_done:
                await self._sleep(self._config.retry_after)

    async def _send_deferred(self, notices: Sequence[Notice]) -> bool:
        """Send deferred recoveries; return False if a later attempt is needed."""
        for notice in notices:
            try:
                await self._send_notice(notice, _Progress(""), self._post_in_time)
            except RefusedError as error:
                # A further attempt would be refused too.
                _LOG.error("the recovery of alert %s was refused: %s; dropping it", notice.keys[0], error)
                self._alerts.accepted(notice, notice.keys)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                _LOG.warning("cannot send the deferred recovery of alert %s: %s", notice.keys[0], reason)
                return False
        return True

    async def _post_in_time(self, body: bytes) -> None:
        await asyncio.wait_for(self._post(body), self._config.timeout)


def _keys_of(event: Event) -> set[str]:
    return {key_of(event), *more_keys_of(event)}


def _encoded(body: Any) -> bytes:
    return msgspec.json.encode(body)
