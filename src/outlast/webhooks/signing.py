"""Signatures of messages in the Standard Webhooks format.

webhook-id          the delivery; the same on every attempt, so that receivers can deduplicate
webhook-timestamp   when this attempt was made: an old one is a replay
webhook-signature   v1,<base64 of HMAC-SHA256 over "id.timestamp.body">, one for each secret
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets as randomness
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from ..model.errors import InvalidOption, WebhookRefused

PREFIX = "whsec_"
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64  # bytes of a key
VERSION = "v1"
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"

Secrets = str | Iterable[str]


class Headers(Protocol):
    """The headers of a request, as a dictionary or an object of any web framework."""

    def items(self) -> Iterable[tuple[str, str]]: ...


class Received(NamedTuple):
    """A verified message."""

    id: str  # the same for every repetition of this message
    sent_at: datetime
    message: Any  # its type, timestamp and data


def new_secret() -> str:
    """A secret to share with one receiver."""
    return PREFIX + base64.b64encode(randomness.token_bytes(32)).decode()


def keys_of(secret: Secrets) -> tuple[bytes, ...]:
    """The keys of one secret or of several. Errors never quote a secret."""
    if not isinstance(secret, Iterable):  # None, from an environment variable that is not set
        raise _invalid_secret(f"must be text or a list of texts, not {type(secret).__name__}")
    keys = tuple(map(_key, [secret] if isinstance(secret, str) else secret))
    if not keys:
        raise _invalid_secret("must be given: without one, no receiver can verify a message")
    return keys


def signature_headers(
    keys: Iterable[bytes], id: str, body: bytes, timestamp: int
) -> dict[str, str]:
    """The headers that authenticate the sender and the time."""
    signatures = [f"{VERSION},{_signature(key, id, str(timestamp), body).decode()}" for key in keys]
    return {ID: id, TIMESTAMP: str(timestamp), SIGNATURE: " ".join(signatures)}


def verify(headers: Headers, body: bytes, secrets: Secrets, tolerance: float = 300.0) -> Received:
    """Verify a message: returns it if a holder of a secret sent it within the last `tolerance`
    seconds, else raises WebhookRefused. `body` is the body on the wire, byte by byte.

    Within that time a message may be repeated, by a retry or a replay: deduplicate by its id.
    """
    values = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in (ID, TIMESTAMP, SIGNATURE) if not values.get(name)]
    if missing:
        raise WebhookRefused(reason=f"it has no {' and no '.join(missing)}")
    sent = checked_timestamp(TIMESTAMP, values[TIMESTAMP], tolerance)
    expected = [_signature(key, values[ID], values[TIMESTAMP], body) for key in keys_of(secrets)]
    received = [_decode_signature(item) for item in values[SIGNATURE].split(" ")]
    if not any(hmac.compare_digest(one, other) for one in expected for other in received):
        raise WebhookRefused(reason="no signature matches: another secret, or other bytes")
    try:
        return Received(values[ID], datetime.fromtimestamp(sent, UTC), json.loads(body))
    except (ValueError, RecursionError):
        raise WebhookRefused(reason="its body is not JSON") from None


def _signature(key: bytes, id: str, timestamp: str, body: bytes) -> bytes:
    content = b".".join((id.encode(errors="replace"), timestamp.encode(errors="replace"), body))
    return base64.b64encode(hmac.digest(key, content, hashlib.sha256))


def _decode_signature(item: str) -> bytes:
    version, _, signature = item.partition(",")
    return signature.encode(errors="replace") if version == VERSION else b""


def checked_timestamp(name: str, timestamp: str, tolerance: float) -> int:
    """The time of a signature, in seconds since 1970, if it is recent. `name`: its header."""
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise WebhookRefused(reason=f"{name} is not a number of seconds since 1970")
    age = time.time() - int(timestamp)
    if age > tolerance:
        raise WebhookRefused(reason=f"it is {age:.0f} s old, and may be {tolerance:g}: a replay?")
    if age < -tolerance:
        raise WebhookRefused(reason=f"it is from {-age:.0f} s ahead: whose clock is wrong?")
    return int(timestamp)


def _key(secret: str) -> bytes:
    if not isinstance(secret, str) or not secret.startswith(PREFIX):
        raise _invalid_secret(f"must be text that begins with {PREFIX}, as from new_secret()")
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise _invalid_secret(f"must be base64 after {PREFIX}") from None
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise _invalid_secret(
            f"must be {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes, in base64, not {len(key)}"
        )
    return key


def _invalid_secret(reason: str) -> InvalidOption:
    return InvalidOption(option="secret", reason=reason)
