"""Delivery of e-mails to a mail server by SMTP (RFC 5321), with the standard library."""

from __future__ import annotations

import smtplib
import socket
import ssl
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from spark_events.reporters.batch_progress import RefusedError
from spark_events.reporters.email.email_config import EmailConfig

__all__ = ["MailServer"]

_SECONDS = 30.0
#: Replies that concern the message or its receivers for good. Other 5xx replies concern the login or the server's
#: configuration, which an operator can correct, so the e-mail is sent again.
_REFUSED = frozenset({550, 551, 552, 553, 554, 555})


class MailServer:
    """Send e-mails; each e-mail has its own connection, because they are rare and servers close idle connections.

    Args:
        config: the settings.
    """

    def __init__(self, config: EmailConfig) -> None:
        self._config = config
        self._context = None if config.tls == "none" else ssl.create_default_context(cafile=config.tls_ca)

    def send(self, subject: str, text: str) -> None:
        """Send one e-mail; block until the server has accepted it for all receivers.

        Raises:
            RefusedError: the server refuses this e-mail for good.
            OSError: the server cannot be reached, or asks for a later attempt.
        """
        message = EmailMessage()
        message["Subject"], message["From"] = subject, self._config.sender
        message["To"] = ", ".join(self._config.to)
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain=socket.gethostname() or "localhost")
        # Auto-replies would answer to nobody.
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text)
        try:
            with self._connection() as server:
                refused = server.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            refused = error.recipients
            if any(code not in _REFUSED for code, _ in refused.values()):
                raise ConnectionError(_reply(next(iter(refused.values())))) from None
        except smtplib.SMTPResponseException as error:
            if error.smtp_code in _REFUSED and not isinstance(error, smtplib.SMTPAuthenticationError):
                raise RefusedError(_reply((error.smtp_code, error.smtp_error))) from None
            raise ConnectionError(_reply((error.smtp_code, error.smtp_error))) from None
        if refused:
            # The other receivers have the e-mail; a further attempt would send it to them again.
            reply = _reply(next(iter(refused.values())))
            raise RefusedError(f"{len(refused)} of {len(self._config.to)} receivers: {reply}")

    def _connection(self) -> smtplib.SMTP:
        host, port = self._config.host, self._config.used_port
        if self._config.tls == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=_SECONDS, context=self._context)
        else:
            server = smtplib.SMTP(host, port, timeout=_SECONDS)
        try:
            if self._config.tls == "starttls":
                server.starttls(context=self._context)
            if self._config.username is not None and self._config.password is not None:
                server.login(self._config.username, self._config.password.reveal())
        except BaseException:
            server.close()
            raise
        return server


def _reply(answer: tuple[int, bytes | str]) -> str:
    code, text = answer
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return f"SMTP {code}: {said[:300]}"
