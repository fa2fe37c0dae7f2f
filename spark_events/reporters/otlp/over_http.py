"""OTLP over HTTP: one POST per request, in the reporter's event loop."""

from __future__ import annotations

import gzip

from spark_events.config.confidence import in_headers, secret_address
from spark_events.errors import TransientError
from spark_events.reporters.http.post import Post
from spark_events.reporters.otlp.otlp_answers import failure, success
from spark_events.reporters.otlp.otlp_verdicts import of_http
from spark_events.reporters.otlp.target import Target

#: gzip level. It compresses almost as well as the default level, in a third of the time.
_GZIP_LEVEL = 3
#: Maximum size of a response in bytes, the same as in gRPC; it limits this process's memory.
_MOST_READ = 4 * 1024 * 1024


class HttpConnection(Post):
    """Client of one receiver; a new connection reads the certificates again.

    Args:
        target: address and options.
    """

    def __init__(self, target: Target) -> None:
        self._is_compressed = target.is_compressed
        own = {"content-type": "application/x-protobuf"} | ({"content-encoding": "gzip"} if self._is_compressed else {})
        lacks_certificate = target.is_secure and target.client_certificate is None
        advice = "; the receiver may require a client certificate (client.certificate, client.key)"
        super().__init__(
            target.address,
            target.context,
            (own | dict(target.headers)).items(),
            [*secret_address(target.address), *in_headers(target.headers.values())],
            timeout=target.timeout,
            advice=advice if lacks_certificate else "",
        )

    async def send(self, request: bytes) -> tuple[int, str]:
        """Send a request for logs or traces; return the number of rejected records or spans, and the reason.

        Raises:
            Exception: the receiver refused the request or could not be reached (see :mod:`verdicts`).
        """
        body = gzip.compress(request, _GZIP_LEVEL) if self._is_compressed else request
        answer = await self.post(body, most_read=_MOST_READ, read_seconds=None)
        if not answer.is_whole:
            raise TransientError(f"the HTTP {answer.status} response is cut off, or has more than {_MOST_READ} bytes")
        content_type = answer.headers.get("content-type", "")
        if 200 <= answer.status < 300:
            rejected, reason = success(content_type, answer.body)
            return rejected, self.hide(reason)
        message, is_otlp, is_page = failure(content_type, answer.body, self.hide)
        raise of_http(answer.status, answer.headers.get("retry-after"), message, is_otlp, is_page)
