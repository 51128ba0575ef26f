"""Signing keys of the service: one secret in the database, and a key for each purpose."""

from __future__ import annotations

import hashlib
import hmac

SIGNING_SECRET = "service signing"  # noqa: S105 - the name of the secret in the database


def service_key(secret: str, purpose: str) -> bytes:
    """The key for a purpose, the same in every process. Never log it."""
    return hmac.new(bytes.fromhex(secret), purpose.encode(), hashlib.sha256).digest()
