"""Mail server in this process: aiosmtpd, with STARTTLS or TLS and logins."""

from __future__ import annotations

import asyncio
import functools
import ssl
import threading
import warnings
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast

import trustme
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword

__all__ = ["MailReceiver"]


class MailReceiver:
    """Mail server that keeps the e-mails it accepts, as a context manager.

    Args:
        tls: ``starttls``, ``tls`` or ``none``.
        authority: signs the server's certificate.
        login: the accepted user name and password; None: no login.

    Attributes:
        answers: replies to the next e-mails instead of accepting them, first one first.
        refuses: receivers that the server refuses, each with its reply.
    """

    def __init__(self, tls: str, authority: trustme.CA, login: tuple[str, str] | None = None) -> None:
        self.mails: list[EmailMessage] = []
        self.answers: list[str] = []
        self.refuses: dict[str, str] = {}
        self._login = login
        context = None if tls == "none" else ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if context is not None:
            authority.issue_cert("localhost").configure_cert(context)
        options: dict[str, Any] = {}
        if tls == "starttls":
            options = {"tls_context": context, "require_starttls": True}
        if login is not None:
            options |= {"authenticator": self._authenticate, "auth_required": True}
            options |= {"auth_require_tls": tls == "starttls"}
        self._make = functools.partial(SMTP, self, hostname="localhost", **options)
        self._context = context if tls == "tls" else None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mail-server")

    def __enter__(self) -> MailReceiver:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()
        return self

    async def _serve(self) -> asyncio.Server:
        return await self._loop.create_server(self._session, "127.0.0.1", 0, ssl=self._context)

    def _session(self) -> SMTP:
        with warnings.catch_warnings():
            # The library does not see that the connection is encrypted from its first byte.
            warnings.simplefilter("ignore")
            return self._make(loop=self._loop)

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        # Connections that a client has left open.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    def _authenticate(self, *arguments: Any) -> AuthResult:
        given: LoginPassword = arguments[-1]
        is_right = (given.login.decode(), given.password.decode()) == self._login
        return AuthResult(success=is_right, handled=is_right)

    async def handle_RCPT(self, _: Any, __: Any, envelope: Envelope, address: str, ___: Any) -> str:
        if address in self.refuses:
            return self.refuses[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _: Any, __: Any, envelope: Envelope) -> str:
        if self.answers:
            return self.answers.pop(0)
        content = cast(bytes, envelope.content)
        self.mails.append(message_from_bytes(content, policy=policy.default))
        return "250 OK"
