"""Reporter that pings a monitor; the monitor raises an alarm when the pings stop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, ClassVar

from spark_events.clocks import SYSTEM, Clocks
from spark_events.config import choice, option
from spark_events.errors import PermanentError, TransientError
from spark_events.event import Event, without_surrogates
from spark_events.reporters.heartbeat.signals import FORMATS, Ping, Signal, signal_of
from spark_events.reporters.http.http_config import HttpConfig
from spark_events.reporters.reporter import Reporter, load_extra

if TYPE_CHECKING:
    from spark_events.reporters.http.post import Post

#: Longest wait for an answer, in seconds. A slow monitor must not delay an application's shutdown.
_PING_SECONDS = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class HeartbeatReporterConfig(HttpConfig):
    """Settings below ``events.reporter.<name>.`` for type ``heartbeat``; ``url`` is the address of the monitor."""

    format: str = option(
        "format",
        choice("healthchecks", "pushgateway", "alertmanager"),
        "healthchecks",
        doc="Kind of monitor.",
    )


class HeartbeatReporter(Reporter):
    """Ping a monitor at the application's start, at each heartbeat, and at its end.

    Other events are ignored. If several heartbeats follow each other, for example after an outage of the monitor, only
    the last one is sent.
    """

    Config: ClassVar[type[HeartbeatReporterConfig]] = HeartbeatReporterConfig
    wants_heartbeats: ClassVar[bool] = True
    notifies: ClassVar[bool] = True
    default_includes: ClassVar[str] = "spark.application:JobStatusChangeEvent"

    def __init__(self, config: HeartbeatReporterConfig, clocks: Clocks = SYSTEM) -> None:
        load_extra("httpx", "webhook")
        from spark_events.reporters.http.post import post_to, trust

        self._url = config.url.reveal()
        self._request = FORMATS[config.format]
        self._post: Post = post_to(config, trust(config.tls_ca))
        self._clocks = clocks
        # Clock of the monitor when the monotonic clock was 0, in seconds; None before its first answer.
        self._monitor_origin: float | None = None
        # Of the current batch: ids of the events whose pings the monitor has answered, and reasons of refused pings.
        self._sent: set[str] = set()
        self._refused: list[str] = []

    async def report(self, events: Sequence[Event]) -> None:
        pings = [(signal, event) for event in events if (signal := signal_of(event)) is not None]
        following = [signal for signal, _ in pings[1:]]
        for (signal, event), next_signal in zip_longest(pings, following):
            is_superseded = signal is next_signal is Signal.ALIVE
            if is_superseded or event.event_id in self._sent:
                continue
            try:
                await self._ping(self._request(self._url, signal, without_surrogates(event), self._monitor_time()))
            except PermanentError as error:
                # After an error, continue with the later pings, because one of them may report a failure.
                self._refused.append(str(error))
            self._sent.add(event.event_id)
        refused, self._refused = self._refused, []
        self._sent.clear()
        if refused:
            raise PermanentError(refused[-1], rejected=len(refused))

    async def _ping(self, request: Ping) -> None:
        headers = {"Content-Type": request.content_type}
        try:
            answer = await asyncio.wait_for(self._post.deliver(request.body, headers, request.url), _PING_SECONDS)
        except asyncio.TimeoutError:
            raise TransientError(f"no answer within {_PING_SECONDS:g} s") from None
        with contextlib.suppress(ValueError):
            date = parsedate_to_datetime(answer.headers.get("Date", ""))
            self._monitor_origin = date.timestamp() - self._clocks.monotonic()

    def _monitor_time(self) -> int | None:
        """Return the time by the monitor's clock in milliseconds since the epoch; None if unknown."""
        origin = self._monitor_origin
        return None if origin is None else round((origin + self._clocks.monotonic()) * 1000)

    async def release(self) -> None:
        await self._post.close()
