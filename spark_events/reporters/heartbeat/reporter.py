"""Reporter that pings a monitor; the monitor raises an alarm when the pings stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, ClassVar

from spark_events import _version
from spark_events.errors import PermanentError, TransientError
from spark_events.event import Event, without_surrogates
from spark_events.reporters.heartbeat.config import HeartbeatReporterConfig
from spark_events.reporters.heartbeat.signals import FORMATS, Ping, Signal, signal_of
from spark_events.reporters.reporter import Reporter, load_extra
from spark_events.reporters.webhook.reporter import verdict

if TYPE_CHECKING:
    from spark_events.reporters.webhook.post import Post

#: Longest wait for an answer, in seconds. A slow monitor must not delay an application's shutdown.
_PING_SECONDS = 2.0


class HeartbeatReporter(Reporter):
    """Ping a monitor at the application's start, at each heartbeat, and at its end.

    Other events are ignored. If several heartbeats follow each other, for example after an outage of the monitor, only
    the last one is sent.
    """

    Config: ClassVar[type[HeartbeatReporterConfig]] = HeartbeatReporterConfig
    wants_heartbeats: ClassVar[bool] = True

    def __init__(self, config: HeartbeatReporterConfig) -> None:
        load_extra("httpx", "webhook")
        self._config = config
        self._request = FORMATS[config.format]
        self._posts: dict[str, Post] = {}
        # Read the certificates here, so that an error is reported together with the other errors in the
        # configuration.
        self._post_to(config.url.reveal())
        # Ids of the current batch's events whose pings the monitor has accepted.
        self._sent: set[str] = set()

    async def report(self, events: Sequence[Event]) -> None:
        pings = [(signal, event) for event in events if (signal := signal_of(event)) is not None]
        refused = ""
        following = [signal for signal, _ in pings[1:]]
        for (signal, event), next_signal in zip_longest(pings, following):
            is_superseded = signal is next_signal is Signal.ALIVE
            if is_superseded or event.event_id in self._sent:
                continue
            try:
                await self._ping(self._request(self._config.url.reveal(), signal, without_surrogates(event)))
            except PermanentError as error:
                # After an error, continue with the later pings, because one of them may report a failure.
                refused = str(error)
            self._sent.add(event.event_id)
        self._sent.clear()
        if refused:
            raise PermanentError(refused, rejected=1)

    async def _ping(self, request: Ping) -> None:
        headers = {"Content-Type": request.content_type}
        try:
            answer = await asyncio.wait_for(self._post_to(request.url)(request.body, headers), _PING_SECONDS)
        except asyncio.TimeoutError:
            raise TransientError(f"no answer within {_PING_SECONDS:g} s") from None
        if (error := verdict(answer.status, answer.retry_after, answer.excerpt, time.time())) is not None:
            raise error

    def _post_to(self, url: str) -> Post:
        from spark_events.reporters.webhook.post import Post

        if url not in self._posts:
            headers = {"User-Agent": f"spark-events/{_version.__version__}"}
            self._posts[url] = Post(self._config.to(url), headers)
        return self._posts[url]

    async def close(self) -> None:
        for post in self._posts.values():
            await post.close()
