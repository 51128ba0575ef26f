"""Tokens: create, look up, mark as used, revoke. Actions of people are recorded."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import fields
from typing import Any

from ..model.api_token import NewToken, Token
from ..model.errors import TokenNotFound
from ..model.job import lenient_json
from ..model.timestamps import to_datetime
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement

MAX_TOKENS_LISTED = 1000


def create(new: NewToken, by: str) -> Op[Token]:
    yield BEGIN
    given = {
        "id": new.id,
        "name": new.name,
        "hash": new.hash,
        "scopes": json.dumps(new.scopes),
        "tenant": new.tenant,
        "queues": None if new.queues is None else json.dumps(new.queues),
        "expires_in": new.expires_in,
    }
    made: Rows = yield Statement("insert_token", given)
    token = yield from _token(new.id)
    if made:
        yield from record_action("token-created", [None], {"by": by, **_audit_fields(token)})
    return token


def tokens(limit: int = MAX_TOKENS_LISTED) -> Op[list[Token]]:
    rows: Rows = yield Statement("tokens", {"limit": limit})
    return [read_token(row) for row in rows]


def revoke(id: str, by: str) -> Op[Token]:
    """Revoke a token; idempotent."""
    yield BEGIN
    changed: Rows = yield Statement("revoke_token", {"id": id})
    token = yield from _token(id)
    if changed:
        yield from record_action("token-revoked", [None], {"by": by, **_audit_fields(token)})
    return token


def by_hash(hash: str) -> Op[Token | None]:
    """The token of this hash, if it is valid."""
    rows: Rows = yield Statement("token_by_hash", {"hash": hash})
    return read_token(rows[0]) if rows else None


def valid_tokens(ids: Collection[str]) -> Op[set[str]]:
    """The tokens that are still valid."""
    rows: Rows = yield Statement("valid_tokens", {"ids": json.dumps(sorted(ids))})
    return {id for (id,) in rows}


def live_hashes(limit: int) -> Op[frozenset[str]]:
    """The hashes of valid tokens, the most recently used or created first."""
    rows: Rows = yield Statement("live_token_hashes", {"limit": limit})
    return frozenset(hash for (hash,) in rows)


def any_exists() -> Op[bool]:
    rows: Rows = yield Statement("any_token")
    return bool(rows[0][0])


def mark_used(id: str) -> Op[None]:
    yield Statement("use_token", {"id": id})


def secret(name: str, fresh: str) -> Op[str]:
    """The secret of this name; `fresh` is stored if there is none. A concurrent second caller gets
    the first one's."""
    rows: Rows = yield Statement("secret", {"name": name})
    if not rows:
        yield Statement("keep_secret", {"name": name, "value": fresh})
        rows = yield Statement("secret", {"name": name})
    return str(rows[0][0])


def record_wrong_tokens(tries: int, addresses: Collection[str]) -> Op[None]:
    """Record wrong tokens, as a number of attempts since the last record."""
    facts = {"tries": tries, "addresses": sorted(addresses)}
    yield from record_action("wrong-tokens", [None], facts)


def _token(id: str) -> Op[Token]:
    rows: Rows = yield Statement("token", {"id": id})
    if not rows:
        raise TokenNotFound(token=id)
    return read_token(rows[0])


def _audit_fields(token: Token) -> dict[str, object]:
    fields_ = token.as_json()
    return {
        name: fields_[name] for name in ("id", "name", "scopes", "tenant", "queues", "expires_at")
    }


def _names(found: object) -> tuple[str, ...]:
    """A stored list. An unreadable one grants nothing: no scope and no queue has that name."""
    return tuple(map(str, found)) if isinstance(found, list) else ("!unreadable",)


def read_token(row: Any) -> Token:
    facts = dict(zip(_COLUMNS, row, strict=True))
    for name in ("scopes", "queues"):
        found = lenient_json(facts[name])
        facts[name] = None if found is None else _names(found)
    for name in ("created_at", "expires_at", "used_at", "revoked_at"):
        facts[name] = to_datetime(facts[name])
    return Token(**facts)


_COLUMNS = tuple(field.name for field in fields(Token))
