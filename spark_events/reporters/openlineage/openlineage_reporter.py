"""Reporter that sends the runs of applications and streaming queries to an OpenLineage API."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

from spark_events.config.confidence import Confidence, parts_of
from spark_events.errors import PermanentError, TransientError
from spark_events.event import Event, without_surrogates
from spark_events.reporters.http.http_answers import verdict
from spark_events.reporters.openlineage.openlineage_config import OpenLineageConfig
from spark_events.reporters.reporter import Reporter, load_extra

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

#: Timeout of one request, in seconds. The dispatcher retries the request.
_SECONDS = 5.0
_EXCERPT = 200
#: Path that the client adds to the URL.
_API_PATH = "/api/v1/lineage"


class OpenLineageReporter(Reporter):
    """Send run events one at a time, in order, through the OpenLineage client.

    The destination is the configured ``url``. Without ``url``, it comes from the client's own configuration, which also
    supports Kafka, files and other transports.
    """

    Config: ClassVar[type[OpenLineageConfig]] = OpenLineageConfig
    wants_heartbeats: ClassVar[bool] = True
    default_includes: ClassVar[str] = (
        "spark.application:JobStatusChangeEvent,JobFailureEvent;"
        "spark.streaming.query:JobStatusChangeEvent,JobFailureEvent,BatchCommitEvent;*:TestEvent"
    )

    def __init__(self, config: OpenLineageConfig) -> None:
        load_extra("openlineage.client", "openlineage")
        from spark_events.reporters.openlineage.lineage_runs import Runs

        # Each call receives a single event, so that a retry repeats only this event.
        self.max_batch_size = 1
        self._config = config
        # The library's errors quote the path of the URL, which may be a secret; so may a server's answer.
        given = [secret.reveal() for secret in (config.url, config.api_key) if secret is not None]
        given += [value for name, value in os.environ.items() if name.startswith("OPENLINEAGE_")]
        self._hide = Confidence(chain.from_iterable((value, *parts_of(value)) for value in given)).hide
        self._runs = Runs(config)
        # Of the current event: its run events that the server has not answered, and the last refusal.
        self._unsent: tuple[str, list[RunEvent]] = ("", [])
        self._refused: PermanentError | None = None
        self._client: OpenLineageClient | None = None

    def open(self) -> None:
        from openlineage.client import OpenLineageClient

        if self._config.url is None:
            self._client = OpenLineageClient()
            return
        transport: dict[str, Any] = {
            "type": "http",
            "url": _base_of(self._config.url.reveal()),
            "timeout": _SECONDS,
            "retry": {"total": 0},
        }
        if self._config.api_key is not None:
            transport["auth"] = {"type": "api_key", "apiKey": self._config.api_key.reveal()}
        self._client = OpenLineageClient(config={"transport": transport})

    def report(self, events: Sequence[Event]) -> None:
        assert self._client is not None
        for event in events:
            if self._unsent[0] != event.event_id:
                self._unsent = event.event_id, list(self._runs.of(without_surrogates(event)))
            left = self._unsent[1]
            while left:
                try:
                    self._emit(left[0])
                except PermanentError as error:
                    # Continue, because the other run events may end the application's run.
                    self._refused = error
                left.pop(0)
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused

    def _emit(self, event: RunEvent) -> None:
        import requests

        assert self._client is not None
        try:
            self._client.emit(event)
        except requests.HTTPError as error:
            answer = error.response
            if answer is None:
                raise TransientError(self._described(error)) from None
            excerpt = self._hide(answer.text)[:_EXCERPT]
            found = verdict(answer.status_code, answer.headers.get("Retry-After"), excerpt, time.time())
            raise (found or TransientError(self._described(error))) from None
        except requests.RequestException as error:
            raise TransientError(self._described(error)) from None

    def _described(self, error: Exception) -> str:
        # requests writes "Max retries exceeded with url: /path?query".
        return f"{type(error).__name__}: {re.sub(r'with url: [^ ]+', 'with this URL', self._hide(str(error)))}"

    def release(self) -> None:
        if self._client is not None:
            self._client.close()


def _base_of(url: str) -> str:
    """Return the URL with a slash at the end of its path; the client would replace a last part without a slash."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/").removesuffix(_API_PATH)
    return urlunsplit(parts._replace(path=f"{path}/", query="", fragment=""))
