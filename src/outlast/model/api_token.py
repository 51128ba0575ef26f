"""API tokens: credentials of the service's callers, and the scopes that they grant.

A token is 256 random bits after a prefix that people and secret scanners recognise. It is shown
once; the database stores its SHA-256. So much randomness needs no salt, and a lookup by hash leaks
nothing through its timing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from .errors import InvalidOption
from .ids import entropy, new_job_id
from .options import check_name, seconds

PREFIX = "olt_"
TOKEN_BYTES = 32
MAX_TOKEN_CHARS = 200  # characters; longer credentials are rejected unread
MAX_QUEUES = 100


class Scope(StrEnum):
    """The scope of a token; each route requires one. `admin` includes all of them."""

    ENQUEUE = "enqueue"
    WORK = "work"
    READ = "read"
    SIGNAL = "signal"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to be stored: everything but the secret itself."""

    id: str
    name: str
    hash: str
    scopes: tuple[Scope, ...]
    tenant: str | None = None
    queues: tuple[str, ...] | None = None
    expires_in: float | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A token as read from the database."""

    id: str
    name: str
    scopes: tuple[str, ...]
    tenant: str | None
    queues: tuple[str, ...] | None
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None
    now: float  # the database's clock at the time of the read

    @property
    def state(self) -> str:
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at.timestamp() <= self.now:
            return "expired"
        return "good"

    def as_json(self) -> dict[str, object]:
        moments = {
            name: value and value.isoformat()
            for name in ("created_at", "expires_at", "used_at", "revoked_at")
            for value in [getattr(self, name)]
        }
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "scopes": list(self.scopes),
            "tenant": self.tenant,
            "queues": None if self.queues is None else list(self.queues),
            **moments,
        }


def new_token(
    name: str,
    scopes: Iterable[str],
    tenant: str | None = None,
    queues: Iterable[str] | None = None,
    expires_in: float | None = None,
) -> tuple[str, NewToken]:
    """Create a token: the secret, shown once, and the record to store."""
    given = tuple(dict.fromkeys(_scope(one) for one in scopes))
    if not given:
        raise InvalidOption(option="scope", reason=f"must be one of {', '.join(Scope)}, or several")
    if tenant is not None:
        check_name("tenant", tenant)
    named = tuple(dict.fromkeys(queues or ())) or None
    for queue in named or ():
        check_name("queue", queue)
    if named is not None and len(named) > MAX_QUEUES:
        raise InvalidOption(
            option="queue", reason=f"may be given {MAX_QUEUES} times; without it, all are allowed"
        )
    secret = PREFIX + base64.urlsafe_b64encode(entropy(TOKEN_BYTES)).rstrip(b"=").decode()
    expires_after = seconds("expires", expires_in, above=0.0)
    check_name("name", name)
    return secret, NewToken(
        new_job_id(), name, token_hash(secret), given, tenant, named, expires_after
    )


def token_hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _scope(name: str) -> Scope:
    try:
        return Scope(name)
    except ValueError:
        raise InvalidOption(
            option="scope", reason=f"must be one of {', '.join(Scope)}, not {name!r:.80}"
        ) from None
