"""Reporter that sends alerts, their recoveries, and digests of other events as e-mails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from spark_events.event import Event, Severity
from spark_events.reporters.alerts.alert_files import AlertFiles
from spark_events.reporters.alerts.alert_memory import AlertMemory
from spark_events.reporters.alerts.incident import is_alert, is_detail
from spark_events.reporters.alerts.sender import AlertSender, SenderConfig
from spark_events.reporters.alerts.states import AlertsConfig
from spark_events.reporters.alerts.store import Alerts
from spark_events.reporters.batch_progress import BatchProgress
from spark_events.reporters.email.email_config import EmailConfig
from spark_events.reporters.email.message import EMAIL, digest_of
from spark_events.reporters.email.server import MailServer
from spark_events.reporters.reporter import Reporter

_LOG = logging.getLogger(__name__)
#: Maximum number of events in a digest; older events are only counted.
_MOST = 500


class EmailReporter(Reporter):
    """Send one e-mail per alert and recovery, and with ``digest`` one e-mail per period about the other events.

    The events of a digest wait in memory: those of a process that is killed are lost.
    """

    Config: ClassVar[type[EmailConfig]] = EmailConfig
    notifies: ClassVar[bool] = True
    max_batch_size = EMAIL.batch_size
    lingers_through = Severity.FATAL

    def __init__(self, config: EmailConfig) -> None:
        self.linger = config.group_wait
        self._digest = config.digest
        self._server = MailServer(config)
        limits = AlertsConfig(cooldown=config.cooldown, expires_after=config.alerts_expire_after)
        destination = f"smtp://{config.host}:{config.used_port} {' '.join(config.to)}"
        files = None if config.folder is None else AlertFiles(destination, config.folder)
        alerts = Alerts(AlertMemory(files, limits), limits)
        self._alerts = AlertSender(EMAIL, alerts, self._post, SenderConfig(config.least_severity))
        self._batch = BatchProgress()
        self._others: deque[Event] = deque(maxlen=_MOST)
        self._more = 0
        self._timer: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._alerts.open()

    async def report(self, events: Sequence[Event]) -> None:
        self._keep([event for event in events if not is_alert(event)])
        alerts = [event for event in events if is_alert(event)]
        batch = self._batch.of(alerts)
        if batch is not self._batch:
            batch.left = self._alerts.parts(alerts)
        self._batch = batch
        try:
            await batch.deliver(self._send)
        finally:
            self.rest = self._alerts.rest

    async def _send(self, events: Sequence[Event]) -> tuple[int, str]:
        await self._alerts.send(events)
        return 0, ""

    async def _post(self, body: bytes) -> None:
        await asyncio.to_thread(self._server.send, **msgspec.json.decode(body))

    def _keep(self, events: Sequence[Event]) -> None:
        if self._digest is None:
            return
        # A retry of the same batch repeats its events.
        known = {event.event_id for event in self._others}
        for event in events:
            if event.event_id not in known and not is_detail(event):
                self._more += len(self._others) == _MOST
                self._others.append(event)
        if self._others and self._timer is None:
            self._timer = asyncio.get_running_loop().create_task(self._send_digests(self._digest))

    async def _send_digests(self, period: float) -> None:
        while self._others:
            await asyncio.sleep(period)
            try:
                await self._send_digest()
            except Exception as error:
                _LOG.warning("cannot send a digest of %d events: %s; trying again later", len(self._others), error)
        self._timer = None

    async def _send_digest(self) -> None:
        events, more = list(self._others), self._more
        # Further events may arrive while the e-mail is sent.
        self._others.clear()
        self._more = 0
        try:
            await asyncio.to_thread(self._server.send, **digest_of(events, more))
        except BaseException:
            later = [*events, *self._others]
            self._more += more + max(0, len(later) - _MOST)
            self._others.clear()
            self._others.extend(later)
            raise

    async def close(self) -> None:
        await self.release()
        await self._alerts.close()
        if self._others:
            await self._send_digest()

    async def release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._timer
        await self._alerts.release()
