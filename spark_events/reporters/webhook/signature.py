"""Signed requests: who knows the secret can see that a request is ours, untouched, and fresh."""

from __future__ import annotations

import hashlib
import hmac

__all__ = ["sign"]


def sign(secret: str, body: bytes, now: float) -> str:
    """``t=<seconds since the epoch>,v1=<HMAC-SHA256 of "t.body", hexadecimal>``, as Stripe signs its webhooks.

    The time is signed, too, so that nobody can send an old request again.

    Args:
        secret: shared with the receiver.
        body: what is posted.
        now: seconds since the epoch.
    """
    stamp = str(int(now))
    digest = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={stamp},v1={digest}"
