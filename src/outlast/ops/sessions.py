"""Browser sessions: log in with a token, and out. A session is a row; deleting it ends the
session."""

from __future__ import annotations

import json
from collections.abc import Collection

from ..model.api_token import Token
from .operation import BEGIN, Op, Rows, Statement
from .tokens import read_token

MAX_SESSIONS_PER_TOKEN = 100  # per token; one more login ends the oldest


def begin(hash: str, token: str, life: float) -> Op[None]:
    yield BEGIN
    yield Statement("begin_session", {"hash": hash, "token": token, "life": life})
    yield Statement("clear_sessions", {"token": token, "keep": MAX_SESSIONS_PER_TOKEN})


def end(hash: str) -> Op[None]:
    """End a session; idempotent."""
    yield Statement("end_session", {"hash": hash})


def token_of(hash: str) -> Op[Token | None]:
    """The token of a session, if both are valid."""
    rows: Rows = yield Statement("token_of_session", {"hash": hash})
    return read_token(rows[0]) if rows else None


def valid_sessions(hashes: Collection[str]) -> Op[set[str]]:
    """The sessions that are still valid."""
    rows: Rows = yield Statement("valid_sessions", {"hashes": json.dumps(sorted(hashes))})
    return {hash for (hash,) in rows}
