"""Request signatures, so that a receiver can verify origin, integrity and age."""

from __future__ import annotations

import hashlib
import hmac

__all__ = ["sign"]


def sign(secret: str, body: bytes, now: float) -> str:
    """Sign a body: ``t=<seconds since the epoch>,v1=<HMAC-SHA256 of "t.body", hexadecimal>``.

    The scheme is that of Stripe's webhooks. The signature covers the time, which prevents replay of an old request.

    Args:
        secret: shared with the receiver.
        body: request body.
        now: seconds since the epoch.
    """
    stamp = str(int(now))
    digest = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={stamp},v1={digest}"
