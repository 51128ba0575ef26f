"""Signatures of webhooks: HMAC-SHA256 over the raw body, in three styles.

standard   webhook-id, webhook-timestamp, webhook-signature; signed: "id.timestamp.body"
github     X-Hub-Signature-256, X-GitHub-Delivery; signed: the body alone
stripe     Stripe-Signature with timestamp and signatures; signed: "timestamp.body"

Invalid headers are refused before the body is read; the body is checked before it is parsed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..model.errors import InvalidOption, WebhookRefused
from ..webhooks import signing

GITHUB_SIGNATURE, GITHUB_ID = "x-hub-signature-256", "x-github-delivery"
STRIPE_SIGNATURE = "stripe-signature"
DIGEST_BYTES = 32
COMMON_HEADERS = ("content-type", "user-agent", "traceparent")


@dataclass(frozen=True, slots=True)
class SignedHead:
    """The claims of a request's headers, before its body is read."""

    signatures: tuple[bytes, ...]
    before_body: bytes  # signed together with the body
    id: str | None  # of the delivery; None: it is in the body

    def check(self, keys: Iterable[bytes], body: bytes) -> None:
        """Refuse a body that none of the keys has signed."""
        fits = False
        for key in keys:
            digest = hmac.new(key, self.before_body, hashlib.sha256)
            digest.update(body)
            expected = digest.digest()
            for signature in self.signatures:
                fits |= hmac.compare_digest(expected, signature)
        if not fits:
            raise WebhookRefused(reason="no signature matches: another secret, or a changed body")

    def id_in(self, body: bytes) -> str:
        """The id of the delivery: the sender's, or else a digest of the body."""
        if self.id is not None:
            return self.id
        try:
            id = json.loads(body)["id"]
        except (ValueError, RecursionError, TypeError, LookupError):
            id = None
        return id if id and isinstance(id, str) else f"sha256:{hashlib.sha256(body).hexdigest()}"


@dataclass(frozen=True, slots=True)
class SignatureStyle:
    """The style of a sender. `read` takes the headers, the tolerance in seconds and the name of the
    header with the delivery's id."""

    name: str
    keys: Callable[[Iterable[str]], tuple[bytes, ...]]
    read: Callable[[Mapping[str, str], float, str | None], SignedHead]
    headers: tuple[str, ...]  # prefixes of the names of headers that are kept
    signature: str  # the header that is not kept
    id_header: str | None = None  # the default, if it can be changed


def _text_keys(secrets: Iterable[str]) -> tuple[bytes, ...]:
    given = list(secrets)
    if not given or not all(isinstance(secret, str) and secret for secret in given):
        raise InvalidOption(option="secret", reason="must be the text that the sender signs with")
    return tuple(secret.encode() for secret in given)


def _read_standard(headers: Mapping[str, str], tolerance: float, id_header: object) -> SignedHead:
    id, timestamp, given = _present(headers, signing.ID, signing.TIMESTAMP, signing.SIGNATURE)
    signing.checked_timestamp(signing.TIMESTAMP, timestamp, tolerance)
    versions = (item.partition(",") for item in given.split(" "))
    texts = [text for version, _, text in versions if version == signing.VERSION]
    before = f"{id}.{timestamp}.".encode("latin-1", "replace")
    return SignedHead(_digests(_from_base64, texts), before, id)


def _read_github(headers: Mapping[str, str], tolerance: float, id_header: str | None) -> SignedHead:
    given, id = _present(headers, GITHUB_SIGNATURE, id_header or GITHUB_ID)
    algorithm, _, text = given.partition("=")
    texts = [text] if algorithm == "sha256" else []
    return SignedHead(_digests(bytes.fromhex, texts), b"", id)


def _read_stripe(headers: Mapping[str, str], tolerance: float, id_header: object) -> SignedHead:
    (given,) = _present(headers, STRIPE_SIGNATURE)
    pairs = [item.strip().partition("=") for item in given.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    if len(times) != 1:
        raise WebhookRefused(reason=f"its {STRIPE_SIGNATURE} has no timestamp, or several")
    signing.checked_timestamp(STRIPE_SIGNATURE, times[0], tolerance)
    texts = [value for name, _, value in pairs if name == "v1"]
    return SignedHead(_digests(bytes.fromhex, texts), f"{times[0]}.".encode(), None)


def _present(headers: Mapping[str, str], *names: str) -> list[str]:
    missing = [name for name in names if not headers.get(name)]
    if missing:
        raise WebhookRefused(reason=f"it has no {' and no '.join(missing)}")
    return [headers[name] for name in names]


def _digests(decode: Callable[[str], bytes], texts: Iterable[str]) -> tuple[bytes, ...]:
    """The signatures that have the correct length."""
    found = []
    for text in texts:
        try:
            found.append(decode(text))
        except (ValueError, binascii.Error):
            continue
    return tuple(one for one in found if len(one) == DIGEST_BYTES)


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


STYLES = {
    style.name: style
    for style in (
        SignatureStyle(
            "standard", signing.keys_of, _read_standard, ("webhook-",), signing.SIGNATURE
        ),
        SignatureStyle(
            "github", _text_keys, _read_github, ("x-github-",), GITHUB_SIGNATURE, GITHUB_ID
        ),
        SignatureStyle("stripe", _text_keys, _read_stripe, ("stripe-",), STRIPE_SIGNATURE),
    )
}
