"""One-time links: an address that sends a signal, once, without a login.

    https://jobs.example.com/signal/<192 random bits><120 bits of signature>

The database has the SHA-256 of the whole, so that a copy of the database reveals no link. The
signature refuses guesses without a query. Links expire, can be revoked, and end with their job.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from .arguments.signal_value import write_signal
from .errors import InvalidOption, InvalidSetting
from .ids import entropy, new_job_id
from .options import check_name, seconds
from .wait import wait_seconds

PATH = "/signal/"
KEY_PURPOSE = "signal link"
SECRET_BYTES, SIGNATURE_BYTES = 24, 15
LINK_CHARS = (SECRET_BYTES + SIGNATURE_BYTES) * 4 // 3  # multiples of 3 bytes need no padding
MAX_CHOICES = 20
MAX_TEXT_CHARS = 1000


class Choice(NamedTuple):
    """A button of a link's page, and the value that it sends."""

    label: str
    value: str  # JSON text


class LinkState(StrEnum):
    GOOD = "good"
    USED = "used"
    REVOKED = "revoked"
    EXPIRED = "expired"
    ANSWERED = "answered"  # by another link of the same key
    ENDED = "ended"  # its job ended
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NewLink:
    """A link to be stored; only a hash of its secret is stored."""

    job: str
    name: str
    choices: tuple[Choice, ...] | None
    expires_in: float
    text: str = ""
    key: str | None = None
    id: str = field(default_factory=new_job_id)
    secret: str = field(default_factory=lambda: _encoded(entropy(SECRET_BYTES)), repr=False)


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """A link as read from the database, without its secret."""

    id: str
    job: str
    name: str
    key: str | None
    text: str
    choices: tuple[Choice, ...] | None
    form: Mapping[str, Any] | None  # the JSON schema of the value, if there are no choices
    created_by: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None
    revoked_at: datetime | None
    job_ended: bool
    now: float  # the database's clock at the time of the read

    @property
    def state(self) -> LinkState:
        if self.used_at is not None:
            return LinkState.USED
        if self.revoked_at is not None:
            return LinkState.REVOKED
        if self.job_ended:
            return LinkState.ENDED
        return LinkState.EXPIRED if self.expires_at.timestamp() <= self.now else LinkState.GOOD

    def as_json(self) -> dict[str, object]:
        moments = ("created_at", "expires_at", "used_at", "revoked_at")
        named = {name: getattr(self, name) for name in ("id", "job", "name", "key", "created_by")}
        times = {name: value and value.isoformat() for name in moments
                 for value in [getattr(self, name)]}  # fmt: skip
        return {**named, "state": str(self.state), **times}


@dataclass(frozen=True, slots=True)
class SignalLink:
    """A new link. Its address is the credential: send it by mail, but do not log it."""

    id: str
    job: str
    name: str
    expires_at: datetime
    path: str = field(repr=False)  # below the address of the service
    base: str | None = field(repr=False, default=None)

    @property
    def url(self) -> str:
        """The whole address."""
        if self.base is None:
            reason = 'is not set: pass public_url="https://…" to Outlast, or set OUTLAST_PUBLIC_URL'
            raise InvalidSetting(field="public_url", reason=reason)
        return self.base + self.path


def new_link(
    job: str,
    name: str,
    choices: Mapping[str, object] | None,
    expires: object,
    text: str,
    key: str | None,
) -> NewLink:
    """Validate the options of a new link."""
    check_name("signal", name)
    if key is not None:
        check_name("key", key)
    if not isinstance(text, str) or len(text) > MAX_TEXT_CHARS:
        reason = f"must be text of at most {MAX_TEXT_CHARS} characters"
        raise InvalidOption(option="text", reason=reason)
    expires_in = seconds("expires", wait_seconds("expires", expires), above=0.0)
    assert expires_in is not None
    return NewLink(job, name, _choices(name, choices), expires_in, text, key)


def _choices(name: str, choices: Mapping[str, object] | None) -> tuple[Choice, ...] | None:
    if choices is None:
        return None
    if not isinstance(choices, Mapping) or not 0 < len(choices) <= MAX_CHOICES:
        reason = f'must map 1 to {MAX_CHOICES} labels to values, as in {{"Approve": True}}'
        raise InvalidOption(option="choices", reason=reason)
    return tuple(
        Choice(check_name("choices", label), write_signal(name, value))
        for label, value in choices.items()
    )


def sign(key: bytes, secret: str) -> str:
    """The last part of a link's address."""
    return secret + _signature(key, secret)


def is_signed(key: bytes, link: str) -> bool:
    """Whether this service has created a link; takes constant time."""
    if len(link) != LINK_CHARS or not link.isascii():
        return False
    secret = link[: SECRET_BYTES * 4 // 3]
    return hmac.compare_digest(_signature(key, secret), link[len(secret) :])


def _signature(key: bytes, secret: str) -> str:
    return _encoded(hmac.new(key, secret.encode(), hashlib.sha256).digest()[:SIGNATURE_BYTES])


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def link_hash(link: str) -> str:
    return hashlib.sha256(link.encode("utf-8", "surrogatepass")).hexdigest()


def read_choices(text: str | None) -> tuple[Choice, ...] | None:
    return None if text is None else tuple(Choice(*one) for one in json.loads(text))


def check_public_url(url: str | None) -> str | None:
    """The address under which people reach the service, without a slash at its end."""
    if url is None:
        return None
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        reason = f"must be an address such as https://jobs.example.com, not {url!r:.80}"
        raise InvalidSetting(field="public_url", reason=reason)
    if parts.query or parts.fragment or parts.username or parts.password:
        reason = "must be a plain address, without a query, a fragment or a password"
        raise InvalidSetting(field="public_url", reason=reason)
    return url.rstrip("/")
