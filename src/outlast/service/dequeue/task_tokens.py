"""Task tokens: prove that a job was offered to this worker, under this claim.

A token is the signed claim: `1.<facts>.<mac>`. So a server keeps no record of its tokens, and any
instance can verify any token. The facts of a claim do not change while it is held; the database
compares fence and owner. For workers, a token is opaque.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from operator import attrgetter
from typing import Any

from ...model.claim import Claim
from ..json_response import json_line

PURPOSE = "task tokens"
MAX_TOKEN_LENGTH = 4_000  # characters

_KIND = "3"
# The facts of a claim that a finish needs. A change of this list needs a new kind.
_CLAIM_FIELDS = (
    "id",
    "fence",
    "queue",
    "tenant",
    "worker",
    "task",
    "attempt",
    "failures",
    "crashes",
    "max_attempts",
    "max_crashes",
    "started_at",
    "retry",
    "flow",
    "has_dependents",
    "has_hooks",
    "offered_by",
    "lane",
)
# Tokens of the first kind do not name the server that offered the job: they are valid once
# accepted. Tokens of the second kind have no lane.
_FIELDS_OF_KIND = {"1": _CLAIM_FIELDS[:-2], "2": _CLAIM_FIELDS[:-1], _KIND: _CLAIM_FIELDS}
_DEFAULTS: dict[str, Any] = {
    "args": "null", "priority": 0, "run_at": 0.0, "created_at": 0.0, "timeout": None,
    "trace": None, "key": None,
}  # fmt: skip


_field_values = attrgetter(*_CLAIM_FIELDS)


def sign(claim: Claim, key: bytes) -> str:
    facts = json_line(_field_values(claim))
    text = f"{_KIND}.{urlsafe_b64encode(facts).decode()}"
    return f"{text}.{_mac(text, key)}"


def read(token: str, key: bytes) -> Claim | None:
    """The claim of a token; None unless this service signed exactly this text."""
    text, _, mac = token.rpartition(".")
    # As text: another encoding of the same bytes is another token.
    if not token.isascii() or not hmac.compare_digest(mac, _mac(text, key)):
        return None
    kind, _, facts = text.partition(".")
    if (names := _FIELDS_OF_KIND.get(kind)) is None:
        return None
    given = json.loads(urlsafe_b64decode(facts))
    return Claim(**dict(zip(names, given, strict=True)), **_DEFAULTS)


def _mac(text: str, key: bytes) -> str:
    mac = _keyed(key).copy()
    mac.update(text.encode())
    return urlsafe_b64encode(mac.digest()).decode()


@lru_cache(maxsize=16)
def _keyed(key: bytes) -> hmac.HMAC:
    """The state after the key, which all tokens share."""
    return hmac.new(key, digestmod=hashlib.sha256)
