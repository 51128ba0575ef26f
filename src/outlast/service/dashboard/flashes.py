"""Flash messages: the result of an action, shown once on the next page. They are stored in a signed
cookie: instances of the service keep no state, and others cannot forge a message."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

if TYPE_CHECKING:
    from ..components import Service

COOKIE = "outlast_flash"
MAX_TEXT_LENGTH = 1_000  # characters
MAX_AGE_S = 60  # seconds


class Flash(NamedTuple):
    kind: str  # done, or refused
    text: str


async def set_flash(service: Service, request: Request, response: Response, flash: Flash) -> None:
    text = json.dumps([flash.kind, flash.text[:MAX_TEXT_LENGTH]])
    payload = base64.urlsafe_b64encode(text.encode()).decode()
    value = f"{payload}.{await _signature(service, payload)}"
    response.set_cookie(
        COOKIE, value, MAX_AGE_S, path="/", httponly=True, samesite="strict",
        secure=request.url.scheme == "https",
    )  # fmt: skip


async def read_flash(service: Service, request: Request) -> Flash | None:
    payload, _, signature = request.cookies.get(COOKIE, "").partition(".")
    if not signature.isascii() or not payload:
        return None
    if not hmac.compare_digest(await _signature(service, payload), signature):
        return None
    try:
        kind, text = json.loads(base64.urlsafe_b64decode(payload))
    except (ValueError, binascii.Error):
        return None
    return Flash(str(kind), str(text))


def clear_flash(request: Request, response: Response) -> None:
    if COOKIE in request.cookies:
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")


async def _signature(service: Service, payload: str) -> str:
    key = await service.key("flash")
    return hmac.new(key, payload.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
