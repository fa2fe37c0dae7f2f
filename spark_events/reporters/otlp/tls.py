"""TLS context of a connection; files are read for each connection, because certificates are renewed."""

from __future__ import annotations

import ssl
from pathlib import Path

from spark_events.reporters.otlp.target import Target
from spark_events.reporters.otlp.verdicts import UnavailableError

__all__ = ["context", "read"]


def context(target: Target) -> ssl.SSLContext | None:
    """Return a context with the configured certificates, or None if there are none.

    Raises:
        UnavailableError: a file is missing or invalid; the message names it.
    """
    if target.certificate is None and target.client_certificate is None:
        return None
    try:
        made = ssl.create_default_context(cafile=target.certificate)
    except OSError as error:
        raise UnavailableError(f"{target.certificate}: {_reason(error)}") from error
    if target.client_certificate is not None:
        try:
            made.load_cert_chain(target.client_certificate, target.client_key)
        except OSError as error:
            raise UnavailableError(f"{target.client_certificate} with {target.client_key}: {_reason(error)}") from error
    return made


def read(path: str | None) -> bytes | None:
    """Read a PEM file that :func:`context` has validated."""
    return None if path is None else Path(path).read_bytes()


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not usable: {error.reason or error}"
    return error.strerror or str(error)
